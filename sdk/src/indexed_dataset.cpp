// Order, split and padding of indexed_dataset.hpp. Places 0 .. train-1 of the main files are trained on, the
// rest is held out; a "mixed" split maps places through a permutation whose key depends on no seed, so that
// every run of the same files validates on the same samples.
#include <tenon/sdk/indexed_dataset.hpp>

#include <tenon/error.hpp>
#include <tenon/sdk/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

TENON_ABI_BEGIN
namespace {

std::string fields_text(std::span<const DataField> fields, std::int64_t batch) {
  std::vector<std::string> texts;
  for (const DataField& field : fields) {
    std::vector<std::int64_t> extents{batch};
    for (const std::int64_t extent : field.shape.extents()) extents.push_back(extent);
    texts.push_back(fmt::format("{} {} {}", field.name, dtype_name(field.dtype),
                                Shape(std::span<const std::int64_t>(extents)).text()));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

template <typename T>
void fill_rows(const TensorView& view, std::int64_t skipped, T value) {
  const std::span<T> all = view.span<T>();
  std::fill(all.begin() + skipped, all.end(), value);
}

}  // namespace

IndexedDataset::IndexedDataset(std::string owner, const Options& options, OwnSplit)
    : owner_(std::move(owner)),
      batch_(options.integer("batch")),
      val_fraction_(0),
      mixed_(false),
      order_(options.choice("order", kOrders)) {}

IndexedDataset::IndexedDataset(std::string owner, const Options& options)
    : IndexedDataset(std::move(owner), options, OwnSplit{}) {
  val_fraction_ = options.real("val_fraction");
  mixed_ = options.text("split") == "mixed";
}

IndexedDataset::~IndexedDataset() = default;

std::int64_t IndexedDataset::batch() const {
  return batch_;
}
const DataInfo& IndexedDataset::info() const {
  return info_;
}
void* IndexedDataset::query(std::string_view) {
  return nullptr;
}

void IndexedDataset::open(std::uint64_t seed_order) {
  order_key_ = random_key(seed_order, "order");
  split_key_ = random_key(0, "split");
  IndexedContent content = load();
  divide(content);
  info_.fields = std::move(content.fields);
  info_.attributes = std::move(content.attributes);
  info_.sources = std::move(content.sources);
  is_target_ = std::move(content.is_target);
  opened(info_);
}

void IndexedDataset::opened(DataInfo&) {}

void IndexedDataset::divide(const IndexedContent& content) {
  samples_ = content.samples;
  val_files_ = content.val_samples >= 0;
  info_.val_samples =
      val_files_
          ? content.val_samples
          : static_cast<std::int64_t>(std::llround(static_cast<double>(content.samples) * val_fraction_));
  info_.train_samples = val_files_ ? content.samples : content.samples - info_.val_samples;
  const std::string found = fmt::format("{} has {} samples, {} of them to train on and {} to validate on",
                                        owner_, content.samples + (val_files_ ? content.val_samples : 0),
                                        info_.train_samples, info_.val_samples);
  if (batch_ > info_.train_samples) {
    fail_config(
        fmt::format("{}: batch = {} is larger than the part to train on; lower batch{}, or take more data",
                    found, batch_, val_files_ ? "" : " or val_fraction"));
  }
  if (info_.val_samples == 0 && (val_files_ || val_fraction_ > 0)) {
    fail_config(
        fmt::format("{}: validation needs at least one sample; raise val_fraction, or set it to 0 to train "
                    "without validation",
                    found));
  }
  held_out_.clear();
  if (order_ != SampleOrder::kSequential || !mixed_ || val_files_) return;
  for (std::int64_t v = 0; v < info_.val_samples; ++v)
    held_out_.push_back(place_in_file(info_.train_samples + v));
  std::ranges::sort(held_out_);
}

std::int64_t IndexedDataset::train_place(std::int64_t sample) const {
  const auto epoch = static_cast<std::uint64_t>(sample / info_.train_samples);
  const auto index = static_cast<std::uint64_t>(sample % info_.train_samples);
  const auto size = static_cast<std::uint64_t>(info_.train_samples);
  switch (order_) {
    case SampleOrder::kShuffled:
      return static_cast<std::int64_t>(Permutation(size, order_key_, epoch)(index));
    case SampleOrder::kRandom:
      return static_cast<std::int64_t>(random_below(order_key_, epoch, index, size));
    case SampleOrder::kSequential:
      break;
  }
  return static_cast<std::int64_t>(index);
}

std::int64_t IndexedDataset::train_index(std::int64_t i) const {
  if (order_ != SampleOrder::kSequential) return place_in_file(i);
  // held_out_[h] - h samples before held_out_[h] are trained on: the first h with more than i of them.
  std::size_t low = 0, high = held_out_.size();
  while (low < high) {
    const std::size_t h = (low + high) / 2;
    if (held_out_[h] - static_cast<std::int64_t>(h) > i)
      high = h;
    else
      low = h + 1;
  }
  return i + static_cast<std::int64_t>(low);
}

std::int64_t IndexedDataset::place_in_file(std::int64_t place) const {
  if (!mixed_ || val_files_) return place;
  const Permutation mix(static_cast<std::uint64_t>(samples_), split_key_, 0);
  return static_cast<std::int64_t>(mix(static_cast<std::uint64_t>(place)));
}

void IndexedDataset::check_request(const BatchRequest& request, std::span<const TensorView> fields) const {
  const bool train = request.split == Split::kTrain;
  if (request.first < 0 || request.count < 0 || request.count > batch_ ||
      (!train && request.first + request.count > info_.val_samples)) {
    fail_run(fmt::format(
        "{}: samples {} to {} of the {} split were asked for; there are {} per {}, at most {} at once",
        owner_, request.first, request.first + request.count, split_name(request.split),
        train ? info_.train_samples : info_.val_samples, train ? "epoch" : "pass", batch_));
  }
  bool fits = fields.size() == info_.fields.size();
  for (std::size_t i = 0; fits && i < fields.size(); ++i) {
    const DataField& field = info_.fields[i];
    fits = fields[i].dtype == field.dtype && fields[i].elements() == batch_ * field.shape.elements() &&
           fields[i].space == MemorySpace::kHost && fields[i].data != nullptr;
  }
  if (fits) return;
  std::vector<std::string> found;
  for (const TensorView& view : fields)
    found.push_back(fmt::format("{} {}", dtype_name(view.dtype), view.shape.text()));
  fail_run(fmt::format("{}: expected {} in host memory, found {}", owner_, fields_text(info_.fields, batch_),
                       found.empty() ? "no fields" : fmt::format("{}", fmt::join(found, ", "))));
}

void IndexedDataset::read(const BatchRequest& request, std::span<const TensorView> fields) {
  check_request(request, fields);
  const bool train = request.split == Split::kTrain;
  for (std::int64_t row = 0; row < request.count; ++row) {
    const std::int64_t sample = request.first + row;
    const bool from_val_files = !train && val_files_;
    const std::int64_t index = train            ? train_index(train_place(sample))
                               : from_val_files ? sample
                                                : place_in_file(info_.train_samples + sample);
    copy(from_val_files, index, row, fields);
  }
  pad(request.count, fields);
}

void IndexedDataset::pad(std::int64_t rows, std::span<const TensorView> fields) const {
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const TensorView& view = fields[i];
    const std::int64_t elements = rows * info_.fields[i].shape.elements();
    if (is_target_[i] && view.dtype == DType::kI32) {
      fill_rows(view, elements, std::int32_t{-1});
    } else if (is_target_[i] && view.dtype == DType::kI64) {
      fill_rows(view, elements, std::int64_t{-1});
    } else if (is_target_[i] && view.dtype == DType::kF32) {
      fill_rows(view, elements, std::numeric_limits<float>::quiet_NaN());
    } else if (is_target_[i] && view.dtype == DType::kF64) {
      fill_rows(view, elements, std::numeric_limits<double>::quiet_NaN());
    } else {
      const std::span<std::byte> bytes = view.raw();
      std::fill(bytes.begin() + dtype_bytes(view.dtype, elements), bytes.end(), std::byte{0});
    }
  }
}

TENON_ABI_END
