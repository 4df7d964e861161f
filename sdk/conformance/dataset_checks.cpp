// Checks of contract dataset/1: samples are functions of their position, in any batch, order and thread.
#include "allocation_watch.hpp"
#include "subject.hpp"

#include <tenon/dataset.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <thread>

namespace tenon::conformance {
namespace {

using Bytes = std::vector<std::byte>;

/// The component, opened.
testing::Made<Dataset> open(Subject& subject) {
  testing::Made<Dataset> data = subject.make<Dataset>();
  data->open(subject.seed());
  return data;
}

/// Memory of one batch between guards, filled with `pattern`.
class Batch {
 public:
  Batch(Dataset& data, std::byte pattern) : data_(data), samples_(data.batch()), pattern_(pattern) {
    for (const DataField& field : data.info().fields) {
      std::vector<std::int64_t> extents{samples_};
      extents.insert(extents.end(), field.shape.extents().begin(), field.shape.extents().end());
      TensorView view{nullptr, Shape(std::span<const std::int64_t>(extents)), field.dtype};
      memory_.emplace_back(static_cast<std::size_t>(view.bytes()) + 2 * kGuard, pattern);
      view.data = memory_.back().data() + kGuard;
      views_.push_back(view);
    }
  }
  Batch(const Batch&) = delete;

  void read(const BatchRequest& request) { data_.read(request, views_); }
  /// Calls read() into memory that holds the pattern again.
  void read_afresh(const BatchRequest& request) {
    for (Bytes& bytes : memory_) std::fill(bytes.begin(), bytes.end(), pattern_);
    read(request);
  }
  std::span<const TensorView> views() const { return views_; }
  /// Returns the bytes of one sample of one field.
  Bytes sample(std::size_t field, std::int64_t index) const {
    const std::size_t size = views_[field].bytes() / samples_;
    const auto first =
        memory_[field].begin() + static_cast<std::ptrdiff_t>(kGuard + static_cast<std::size_t>(index) * size);
    return {first, first + static_cast<std::ptrdiff_t>(size)};
  }
  std::vector<Bytes> samples(std::int64_t count) const {
    std::vector<Bytes> all;
    for (std::size_t field = 0; field < views_.size(); ++field) {
      for (std::int64_t i = 0; i < count; ++i) all.push_back(sample(field, i));
    }
    return all;
  }
  bool stayed_inside() const {
    const auto untouched = [&](std::byte byte) { return byte == pattern_; };
    return std::all_of(memory_.begin(), memory_.end(), [&](const Bytes& bytes) {
      return std::all_of(bytes.begin(), bytes.begin() + kGuard, untouched) &&
             std::all_of(bytes.end() - kGuard, bytes.end(), untouched);
    });
  }

 private:
  static constexpr std::ptrdiff_t kGuard = 64;
  Dataset& data_;
  std::int64_t samples_;
  std::byte pattern_;
  std::vector<Bytes> memory_;
  std::vector<TensorView> views_;
};

constexpr std::byte kOne{0x5A}, kOther{0xA5};

std::string text(const BatchRequest& request) {
  return fmt::format("samples {} to {} of {}", request.first, request.first + request.count - 1,
                     split_name(request.split));
}

/// Full batches: the first ones, some within, and around the ends of epochs.
std::vector<BatchRequest> places(Dataset& data) {
  const std::int64_t batch = data.batch(), train = data.info().train_samples, val = data.info().val_samples;
  std::vector<BatchRequest> all;
  for (const std::int64_t first : {std::int64_t{0}, batch, std::int64_t{7}, train / 2,
                                   std::max<std::int64_t>(0, train - batch / 2 - 1), train, 3 * train + 5})
    all.push_back({.split = Split::kTrain, .first = first, .count = batch});
  for (const std::int64_t first : {std::int64_t{0}, val / 2, val - batch}) {
    if (first >= 0 && first + batch <= val)
      all.push_back({.split = Split::kVal, .first = first, .count = batch});
  }
  return all;
}

std::string described(const DataInfo& info) {
  std::string all = fmt::format("{} train samples, {} val samples, {} tokens per sample", info.train_samples,
                                info.val_samples, info.tokens_per_sample);
  for (const DataField& field : info.fields)
    all += fmt::format(", field {} {} {}", field.name, dtype_name(field.dtype), field.shape.text());
  for (const DataAttribute& attribute : info.attributes)
    all += fmt::format(", {} = {}", attribute.name, attribute.value);
  for (const DataSource& source : info.sources) all += fmt::format(", {} {}", source.path, source.sha256);
  return all;
}

void describes_itself(Subject& subject) {
  const testing::Made<Dataset> data = open(subject), again = open(subject);
  const DataInfo& info = data->info();
  if (info.fields.empty()) fail("info() names no field");
  std::set<std::string> names;
  for (const DataField& field : info.fields) {
    if (field.name.empty() || !names.insert(field.name).second)
      fail(fmt::format("field '{}': names are not empty and not given twice", field.name));
    if (field.shape.elements() < 1)
      fail(fmt::format("field '{}' is empty: {}", field.name, field.shape.text()));
  }
  if (info.train_samples < 1 || info.val_samples < 0 || info.tokens_per_sample < 1 || data->batch() < 1) {
    fail(
        fmt::format("expected at least 1 train sample, 0 val samples, 1 token per sample and a batch of 1, "
                    "found {}, {}, {} and {}",
                    info.train_samples, info.val_samples, info.tokens_per_sample, data->batch()));
  }
  const std::string before = described(info);
  if (described(again->info()) != before)
    fail(fmt::format("two objects with equal options describe {} and {}", before, described(again->info())));
  Batch batch(*data, kOne);
  for (const BatchRequest& request : places(*data)) batch.read(request);
  if (described(data->info()) != before)
    fail(fmt::format("reading changed the description from {} to {}", before, described(data->info())));
}

void reads_are_pure(Subject& subject) {
  const testing::Made<Dataset> data = open(subject), again = open(subject);
  const std::vector<BatchRequest> all = places(*data);
  Batch batch(*data, kOne), other(*again, kOther);
  std::vector<std::vector<Bytes>> expected;
  for (const BatchRequest& request : all) {
    batch.read_afresh(request);
    expected.push_back(batch.samples(request.count));
  }
  for (std::size_t i = all.size(); i-- > 0;) {
    batch.read_afresh(all[i]);
    if (batch.samples(all[i].count) != expected[i])
      fail(text(all[i]) + " are other bytes when they are read again, after others");
    other.read_afresh(all[i]);
    if (other.samples(all[i].count) != expected[i]) {
      fail(text(all[i]) +
           " are other bytes in a second object with the same seed, in memory that held "
           "something else: a sample depends on seed, epoch and index alone, and is written whole");
    }
  }
}

void batches_agree(Subject& subject) {
  const testing::Made<Dataset> data = open(subject);
  Batch whole(*data, kOne), one(*data, kOne);
  for (const BatchRequest& request : places(*data)) {
    whole.read_afresh(request);
    for (std::int64_t i = 0; i < request.count; i += std::max<std::int64_t>(1, request.count / 16)) {
      const BatchRequest single{.split = request.split, .first = request.first + i, .count = 1};
      one.read_afresh(single);
      for (std::size_t field = 0; field < whole.views().size(); ++field) {
        if (one.sample(field, 0) != whole.sample(field, i))
          fail(fmt::format("field {}: {} read alone are other bytes than in a batch that begins at {}",
                           data->info().fields[field].name, text(single), request.first));
      }
    }
  }
}

/// Returns whether a loss ignores this target: a negative whole number, or NaN.
bool is_no_target(DType dtype, const Bytes& sample) {
  const std::vector<double> values = testing::to_doubles(dtype, sample);
  return std::all_of(values.begin(), values.end(),
                     [&](double v) { return dtype_is_real(dtype) ? std::isnan(v) : v < 0; });
}

void pads(Subject& subject) {
  const testing::Made<Dataset> data = open(subject);
  Batch whole(*data, kOne), part(*data, kOne), other(*data, kOther);
  whole.read_afresh({.first = 0, .count = data->batch()});
  for (const std::int64_t count : {data->batch() - 1, data->batch() / 2, std::int64_t{0}}) {
    const BatchRequest request{.first = 0, .count = count};
    part.read_afresh(request);
    other.read_afresh(request);
    if (part.samples(count) != whole.samples(count))
      fail(fmt::format("the first {} samples are other bytes when only they are asked for", count));
    if (part.samples(data->batch()) != other.samples(data->batch()))
      fail(fmt::format("with {} samples of a batch of {} the rest is not written: fill it with padding",
                       count, data->batch()));
    for (std::int64_t i = count; i < data->batch() && data->info().fields.size() > 1; ++i) {
      bool marked = false;
      for (std::size_t field = 0; field < part.views().size(); ++field)
        marked = marked || is_no_target(data->info().fields[field].dtype, part.sample(field, i));
      if (!marked)
        fail(fmt::format(
            "with {} samples of a batch of {} sample {} is padding, but no field says so; whole-numbered "
            "targets are -1 there, real ones not a number",
            count, data->batch(), i));
    }
  }
}

void stays_inside(Subject& subject) {
  const testing::Made<Dataset> data = open(subject);
  Batch batch(*data, kOne);
  std::vector<BatchRequest> all = places(*data);
  all.push_back({.first = 0, .count = data->batch() / 2});
  all.push_back({.first = 0, .count = 0});
  for (const BatchRequest& request : all) {
    batch.read_afresh(request);
    if (!batch.stayed_inside())
      fail("reading " + text(request) + " wrote outside of the memory of its fields");
  }
}

void reads_in_threads(Subject& subject) {
  const testing::Made<Dataset> data = open(subject);
  const std::vector<BatchRequest> all = places(*data);
  std::vector<std::vector<Bytes>> expected;
  Batch batch(*data, kOne);
  for (const BatchRequest& request : all) {
    batch.read_afresh(request);
    expected.push_back(batch.samples(request.count));
  }
  std::vector<std::string> problems(4);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < problems.size(); ++t) {
    threads.emplace_back([&, t] {
      try {
        Batch own(*data, kOne);
        for (std::size_t round = 0; round < 20 * all.size(); ++round) {
          const std::size_t i = (round * (t + 1) + t) % all.size();
          own.read(all[i]);
          if (own.samples(all[i].count) != expected[i]) problems[t] = text(all[i]) + " are other bytes";
        }
      } catch (const std::exception& error) {
        problems[t] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& problem : problems) {
    if (!problem.empty())
      fail("with four threads that read at once: " + problem +
           ". Ranks and prefetchers call read() concurrently");
  }
}

void allocates_nothing(Subject& subject) {
  const AllocationWatch* const watch = allocation_watch();
  if (watch == nullptr) not_applicable("allocations cannot be counted in a build with a sanitizer");
  const testing::Made<Dataset> data = open(subject);
  Batch batch(*data, kOne);
  const std::vector<BatchRequest> all = places(*data);
  for (const BatchRequest& request : all) batch.read(request);
  watch->open();
  for (const BatchRequest& request : all) batch.read(request);
  watch->close();
  const std::string stack = first_allocation_from(*watch, subject.file().string());
  if (!stack.empty())
    fail("read() asks the heap for memory; prepare buffers in open(). First of them:" + stack);
}

/// Largest value that whole numbers of a field may have, less one; by the attributes that models rely on.
std::int64_t bound_of(const DataInfo& info, const std::string& field, std::int64_t column) {
  const bool target = field == "targets" || field == "labels" || field == "label";
  for (const DataAttribute& attribute : info.attributes) {
    if (attribute.name == "vocabulary" && (target || field == "tokens")) return attribute.value;
    if (attribute.name == "classes" && target) return attribute.value;
    if (field == "ids" && attribute.name == fmt::format("rows.{}", column)) return attribute.value;
  }
  return 0;
}

void keeps_its_ranges(Subject& subject) {
  const testing::Made<Dataset> data = open(subject);
  const DataInfo& info = data->info();
  bool any = false;
  Batch batch(*data, kOne);
  for (const BatchRequest& request : places(*data)) {
    batch.read_afresh(request);
    for (std::size_t f = 0; f < info.fields.size(); ++f) {
      const DataField& field = info.fields[f];
      if (dtype_is_real(field.dtype)) continue;
      const std::int64_t columns = field.shape.rank() == 0 ? 1 : field.shape[0];
      for (std::int64_t i = 0; i < request.count; ++i) {
        const std::vector<double> values = testing::to_doubles(field.dtype, batch.sample(f, i));
        for (std::size_t j = 0; j < values.size(); ++j) {
          const std::int64_t column =
              static_cast<std::int64_t>(j) * columns / static_cast<std::int64_t>(values.size());
          const std::int64_t bound = bound_of(info, field.name, column);
          any = any || bound > 0;
          if (bound > 0 && (values[j] >= static_cast<double>(bound) || values[j] < -1)) {
            fail(fmt::format("{}: field {} holds {}, but an attribute says that numbers there lie below {}",
                             text(request), field.name, values[j], bound));
          }
        }
      }
    }
  }
  if (!any) not_applicable("no attribute (vocabulary, classes, rows.0) bounds a field");
}

constexpr const char* kDatasetKind = Dataset::kKind;
constexpr Check kDatasetChecks[] = {
    {"dataset.describes_itself", kDatasetKind,
     "info() is sound, and the same for equal options and after reads", describes_itself},
    {"dataset.reads_are_pure", kDatasetKind,
     "a position gives the same bytes in any order, object and memory", reads_are_pure},
    {"dataset.batches_agree", kDatasetKind,
     "samples are the same one by one and in batches, across epochs too", batches_agree},
    {"dataset.pads", kDatasetKind, "what is missing from a batch is padding that no loss counts", pads},
    {"dataset.stays_inside", kDatasetKind, "nothing beside the fields is written", stays_inside},
    {"dataset.reads_in_threads", kDatasetKind, "four threads that read at once get the right bytes",
     reads_in_threads},
    {"dataset.allocates_nothing", kDatasetKind, "read() takes nothing from the heap", allocates_nothing, 20,
     true},
    {"dataset.keeps_its_ranges", kDatasetKind, "ids, tokens and targets lie within the attributes",
     keeps_its_ranges},
};

}  // namespace

std::span<const Check> dataset_checks() {
  return kDatasetChecks;
}

}  // namespace tenon::conformance
