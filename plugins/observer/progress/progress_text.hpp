// Text of a progress line, independent of when and where it is shown.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tenon::progress {

/// A short text without allocation; longer text is truncated.
template <std::size_t Capacity>
class ShortText {
 public:
  void assign(std::string_view text) {
    size_ = text.size() < Capacity ? text.size() : Capacity;
    text.copy(data_.data(), size_);
  }
  std::string_view view() const { return {data_.data(), size_}; }

 private:
  std::array<char, Capacity> data_{};
  std::size_t size_ = 0;
};

struct NamedValue {
  ShortText<24> name;
  double value = 0;
};

/// State of the run for display. NaN = not known yet.
struct Snapshot {
  std::string_view run;
  std::int64_t done = 0, steps = 0;  ///< slots
  double loss = 0, lr = 0;
  std::array<NamedValue, 2> validation;  ///< "loss", then the first other metric
  int validations = 0;
  double rate = 0;        ///< units per second
  std::string_view unit;  ///< "tok" or "samples"
  double seconds_left = 0;
};

inline constexpr std::size_t kLineCapacity = 512;
using LineBuffer = std::array<char, kLineCapacity>;

/// Formats one line for a terminal of `width` columns, at most width - 1 long, with a bar if there is room
/// for one: "tiny [=====>    ] 120/400 | loss 2.345 | val loss 2.401 | lr 1.00e-03 | 12.3k tok/s | ETA 0:42".
std::string_view bar_line(LineBuffer& buffer, const Snapshot& now, int width);
/// Formats the same facts for a log file: "step 120/400 (30.0 %) | loss 2.345 | ...", newline included.
std::string_view plain_line(LineBuffer& buffer, const Snapshot& now);
/// Formats the last line: "completed: 400/400 steps in 0:12 | loss 1.900 | ... ", with the message if there
/// is one, newline included.
std::string_view final_line(LineBuffer& buffer, const Snapshot& now, std::string_view status,
                            std::string_view message, double seconds);

}  // namespace tenon::progress
