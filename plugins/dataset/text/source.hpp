// One text or token file as windows of `context` tokens: the training part, its order, and the held-out part.
// With C = context and a part of T tokens, a train window that begins at b reads tokens b .. b+C-1 and
// predicts b+1 .. b+C.
#pragma once

#include "token_file.hpp"

#include <tenon/dataset.hpp>
#include <tenon/random.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Order of the train windows. Pure in (key, epoch, index).
enum class Order {
  kRandom,      ///< window begins drawn anew for every sample, with replacement
  kShuffled,    ///< every non-overlapping window once per epoch, in another order each time
  kSequential,  ///< non-overlapping windows in file order
};

struct SourceSpec {
  std::string path, val_path;  ///< val_path empty: a tail of `path` is held out
  std::string format;
  std::int64_t context = 1;
  std::int64_t at_least = 1;    ///< training windows that the batch needs
  std::int64_t vocabulary = 0;  ///< 0 = of the tokenizer, else by format
  std::int64_t tokenizer = 0;   ///< tokens of the tokenizer that wrote files of tokens; 0 = not known
  double val_fraction = 0;
  Order order = Order::kRandom;
};

class Source {
 public:
  /// Opens and checks the files; throws Error(kConfig).
  Source(const SourceSpec& spec, RandomKey key);

  std::int64_t train_windows() const { return (train_.count - 1) / spec_.context; }
  std::int64_t val_windows() const;
  std::int64_t vocabulary() const { return spec_.vocabulary; }
  std::string_view format() const { return file_.format(); }
  /// Files with their checksums.
  std::vector<DataSource> files() const;

  /// sample >= 0 counts through all epochs; targets are the tokens one place later. Allocates nothing.
  void read_train(std::int64_t sample, std::int32_t* tokens, std::int32_t* targets) const;
  /// Validation covers the whole held-out part: window i begins at i*C, so every token but the first is
  /// predicted exactly once, and the last window is padded with targets -1.
  void read_val(std::int64_t window, std::int32_t* tokens, std::int32_t* targets) const;

 private:
  /// A contiguous range of tokens of one file.
  struct Part {
    bool of_val_file = false;
    std::int64_t begin = 0;
    std::int64_t count = 0;
  };

  void split();
  void check_sizes() const;
  std::int64_t train_begin(std::int64_t sample) const;
  void fill(const Part& part, std::int64_t begin, std::int32_t* tokens, std::int32_t* targets) const;

  SourceSpec spec_;
  RandomKey key_;
  TokenFile file_;
  std::optional<TokenFile> val_file_;
  Part train_, val_;
};

}  // namespace tenon::text
