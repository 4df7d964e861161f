// Splitting, ordering and copying of source.hpp.
#include "source.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/sdk/permutation.hpp>

#include <fmt/format.h>

#include <algorithm>

namespace tenon::text {

Source::Source(const SourceSpec& spec, RandomKey key)
    : spec_(spec), key_(key), file_(spec.path, spec.format) {
  if (!spec_.val_path.empty()) val_file_.emplace(spec_.val_path, spec_.format);
  split();
  check_sizes();
  if (spec_.vocabulary == 0 && !file_.plain_bytes()) spec_.vocabulary = spec_.tokenizer;
  if (spec_.vocabulary == 0) spec_.vocabulary = file_.usual_vocabulary();
  file_.check_tokens(spec_.vocabulary);
  if (val_file_) val_file_->check_tokens(spec_.vocabulary);
}

std::vector<DataSource> Source::files() const {
  const std::unique_ptr<FileSystem> system = make_posix_files();
  std::vector<DataSource> found{{file_.path(), sha256_of_file(*system, file_.path())}};
  if (val_file_) found.push_back({val_file_->path(), sha256_of_file(*system, val_file_->path())});
  return found;
}

// Windows that predict all but the first token; the last may be partial.
std::int64_t Source::val_windows() const {
  return val_.count < 2 ? 0 : (val_.count - 2) / spec_.context + 1;
}

void Source::split() {
  const std::int64_t count = file_.size();
  if (val_file_) {
    train_ = {false, 0, count};
    val_ = {true, 0, val_file_->size()};
    return;
  }
  const auto train = static_cast<std::int64_t>(static_cast<double>(count) * (1.0 - spec_.val_fraction));
  train_ = {false, 0, train};
  val_ = {false, train, count - train};
}

void Source::check_sizes() const {
  if (val_file_ && val_file_->plain_bytes() != file_.plain_bytes()) {
    fail_config(fmt::format("data files '{}' and '{}': expected one format, found {} and {}", spec_.path,
                            spec_.val_path, file_.format(), val_file_->format()));
  }
  const std::string found = fmt::format("'{}' has {} tokens, {} of them to train on and {} to validate on",
                                        spec_.path, file_.size(), train_.count, val_.count);
  const std::int64_t windows = train_windows();
  if (windows < 1) {
    fail_config(
        fmt::format("data file {}: a window of context = {} needs {} tokens to train on; lower context or "
                    "val_fraction, or take a longer file",
                    found, spec_.context, spec_.context + 1));
  }
  if (spec_.at_least > windows) {
    fail_config(fmt::format(
        "data file {}: batch = {} is larger than the data, which holds {} windows of context = {}; "
        "lower batch or context, or take a longer file",
        found, spec_.at_least, windows, spec_.context));
  }
  if ((val_file_ || spec_.val_fraction > 0) && val_.count < 2) {
    fail_config(
        fmt::format("data file {}: validation needs at least 2 tokens; raise val_fraction, or set it to 0 to "
                    "train without validation",
                    found));
  }
}

std::int64_t Source::train_begin(std::int64_t sample) const {
  const std::int64_t epoch = sample / train_windows(), index = sample % train_windows();
  const auto step = static_cast<std::uint64_t>(epoch), place = static_cast<std::uint64_t>(index);
  switch (spec_.order) {
    case Order::kRandom:
      return static_cast<std::int64_t>(
          random_below(key_, step, place, static_cast<std::uint64_t>(train_.count - spec_.context)));
    case Order::kShuffled: {
      const Permutation shuffle(static_cast<std::uint64_t>(train_windows()), key_, step);
      return static_cast<std::int64_t>(shuffle(place)) * spec_.context;
    }
    case Order::kSequential:
      break;
  }
  return index * spec_.context;
}

void Source::fill(const Part& part, std::int64_t begin, std::int32_t* tokens, std::int32_t* targets) const {
  const std::int64_t inputs = std::clamp<std::int64_t>(part.count - begin, 0, spec_.context);
  const std::int64_t predicted = std::clamp<std::int64_t>(part.count - begin - 1, 0, spec_.context);
  const TokenFile& file = part.of_val_file ? *val_file_ : file_;
  file.copy(part.begin + begin, inputs, tokens);
  file.copy(part.begin + begin + 1, predicted, targets);
  std::fill(tokens + inputs, tokens + spec_.context, 0);
  std::fill(targets + predicted, targets + spec_.context, -1);
}

void Source::read_train(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const {
  fill(train_, train_begin(sample), tokens, targets);
}

void Source::read_val(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const {
  fill(val_, window * spec_.context, tokens, targets);
}

}  // namespace tenon::text
