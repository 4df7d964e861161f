// Windows of text.hpp. With C = context and a part of T tokens, a train window that begins at b reads tokens
// b .. b+C-1 and predicts b+1 .. b+C. Validation covers the whole held-out part: window i begins at i*C, so
// every token but the first is predicted exactly once, and the last window is padded with targets -1.
#include "text.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::text {
namespace {

/// Windows of `context` that predict all but the first of `count` tokens; the last may be partial.
std::int64_t windows_covering(std::int64_t count, std::int64_t context) {
  return count < 2 ? 0 : (count - 2) / context + 1;
}

}  // namespace

Text::Text(const Options& options)
    : path_(options.text("path")),
      val_path_(options.has("val_path") ? options.text("val_path") : std::string_view()),
      format_(options.text("format")),
      context_(options.integer("context")),
      batch_(options.integer("batch")),
      vocabulary_(options.integer("vocabulary")),
      val_fraction_(options.real("val_fraction")),
      order_(options.text("order") == "random"     ? Order::kRandom
             : options.text("order") == "shuffled" ? Order::kShuffled
                                                   : Order::kSequential) {}

void Text::open(std::uint64_t seed_order) {
  key_ = random_key(seed_order, "order");
  file_.emplace(path_, format_);
  if (!val_path_.empty()) val_file_.emplace(val_path_, format_);
  split();
  check_sizes();
  if (vocabulary_ == 0) vocabulary_ = file_->usual_vocabulary();
  const std::unique_ptr<FileSystem> files = make_posix_files();
  for (const std::optional<TokenFile>* file : {&file_, &val_file_}) {
    if (!file->has_value()) continue;
    (*file)->check_tokens(vocabulary_);
    info_.sources.push_back({(*file)->path(), sha256_of_file(*files, (*file)->path())});
  }
  info_.fields = {{"tokens", DType::kI32, Shape{context_}}, {"targets", DType::kI32, Shape{context_}}};
  info_.attributes = {{"vocabulary", vocabulary_}};
  info_.train_samples = (train_.count - 1) / context_;
  info_.val_samples = windows_covering(val_.count, context_);
  info_.tokens_per_sample = context_;
}

void Text::split() {
  const std::int64_t count = file_->size();
  if (val_file_) {
    train_ = {&*file_, 0, count};
    val_ = {&*val_file_, 0, val_file_->size()};
    return;
  }
  const auto train = static_cast<std::int64_t>(static_cast<double>(count) * (1.0 - val_fraction_));
  train_ = {&*file_, 0, train};
  val_ = {&*file_, train, count - train};
}

void Text::check_sizes() const {
  if (val_file_ && val_file_->plain_bytes() != file_->plain_bytes()) {
    fail_config(fmt::format("data files '{}' and '{}': expected one format, found {} and {}", path_,
                            val_path_, file_->format(), val_file_->format()));
  }
  const std::string found = fmt::format("'{}' has {} tokens, {} of them to train on and {} to validate on",
                                        path_, file_->size(), train_.count, val_.count);
  const std::int64_t windows = (train_.count - 1) / context_;
  if (windows < 1) {
    fail_config(
        fmt::format("data file {}: a window of context = {} needs {} tokens to train on; lower context or "
                    "val_fraction, or take a longer file",
                    found, context_, context_ + 1));
  }
  if (batch_ > windows) {
    fail_config(fmt::format(
        "data file {}: batch = {} is larger than the data, which holds {} windows of context = {}; "
        "lower batch or context, or take a longer file",
        found, batch_, windows, context_));
  }
  if ((val_file_ || val_fraction_ > 0) && val_.count < 2) {
    fail_config(
        fmt::format("data file {}: validation needs at least 2 tokens; raise val_fraction, or set it to 0 to "
                    "train without validation",
                    found));
  }
}

std::int64_t Text::train_window(std::int64_t sample) const {
  const std::int64_t epoch = sample / info_.train_samples, index = sample % info_.train_samples;
  const auto step = static_cast<std::uint64_t>(epoch), place = static_cast<std::uint64_t>(index);
  switch (order_) {
    case Order::kRandom:
      return static_cast<std::int64_t>(
          random_below(key_, step, place, static_cast<std::uint64_t>(train_.count - context_)));
    case Order::kShuffled: {
      const Permutation shuffle(static_cast<std::uint64_t>(info_.train_samples), key_, step);
      return static_cast<std::int64_t>(shuffle(place)) * context_;
    }
    case Order::kSequential:
      break;
  }
  return index * context_;
}

void Text::fill(const Part& part, std::int64_t begin, std::int32_t* tokens, std::int32_t* targets) const {
  const std::int64_t inputs = std::clamp<std::int64_t>(part.count - begin, 0, context_);
  const std::int64_t predicted = std::clamp<std::int64_t>(part.count - begin - 1, 0, context_);
  part.file->copy(part.begin + begin, inputs, tokens);
  part.file->copy(part.begin + begin + 1, predicted, targets);
  std::fill(tokens + inputs, tokens + context_, 0);
  std::fill(targets + predicted, targets + context_, -1);
}

void Text::read(const BatchRequest& request, std::span<const TensorView> fields) {
  const bool train = request.split == Split::kTrain;
  if (request.first < 0 || request.count < 0 || request.count > batch_ ||
      (!train && request.first + request.count > info_.val_samples)) {
    fail_run(fmt::format(
        "data.text: samples {} to {} of the {} split were asked for; there are {} per {}, at most {} at "
        "once",
        request.first, request.first + request.count, split_name(request.split),
        train ? info_.train_samples : info_.val_samples, train ? "epoch" : "pass", batch_));
  }
  for (const TensorView& field : fields) {
    if (field.dtype != DType::kI32 || field.elements() != batch_ * context_ ||
        field.space != MemorySpace::kHost) {
      fail_run(fmt::format("data.text: expected i32 {} in host memory for each field, found {} {}",
                           Shape{batch_, context_}.text(), dtype_name(field.dtype), field.shape.text()));
    }
  }
  if (fields.size() != 2) fail_run(fmt::format("data.text: expected 2 fields, found {}", fields.size()));
  std::int32_t* tokens = fields[0].as<std::int32_t>();
  std::int32_t* targets = fields[1].as<std::int32_t>();
  for (std::int64_t i = 0; i < request.count; ++i, tokens += context_, targets += context_) {
    const std::int64_t sample = request.first + i;
    fill(train ? train_ : val_, train ? train_window(sample) : sample * context_, tokens, targets);
  }
  const std::int64_t padding = (batch_ - request.count) * context_;
  std::fill(tokens, tokens + padding, 0);
  std::fill(targets, targets + padding, -1);
}

}  // namespace tenon::text
