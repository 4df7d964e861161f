#include "simulate/progress.hpp"

#include <fmt/format.h>

#include <cmath>

namespace tenon::simulate {
namespace {

/// "0:26", "1:02:03".
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace

std::string progress_line(const Progress& progress) {
  const std::int64_t settled = progress.finished + progress.failed;
  std::string line =
      fmt::format("sample {}/{} ({:.1f} %)", settled, progress.samples,
                  100.0 * static_cast<double>(settled) / static_cast<double>(progress.samples));
  if (progress.failed > 0) line += fmt::format(" | {} failed", progress.failed);
  if (progress.settled_here == 0 || !(progress.seconds > 0)) return line + " | ETA -:--";
  const double rate = static_cast<double>(progress.settled_here) / progress.seconds;
  const double left = static_cast<double>(progress.samples - settled) / rate;
  return line + fmt::format(" | {:.3g} samples/s | ETA {}", rate, clock_text(left));
}

}  // namespace tenon::simulate
