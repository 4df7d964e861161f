// Conversion of options to settings, and of names to patterns.
#include "settings.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <charconv>

namespace tenon::mor {
namespace {

constexpr std::int64_t kLargestExtent = 1 << 20;

/// Returns the positive number that is the whole of `text`, or 0.
std::int64_t extent_of(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value >= 1 && value <= kLargestExtent ? value : 0;
}

}  // namespace

Partition partition_of(std::string_view text) {
  if (text == "tensor") return {0, 0};
  if (text == "row") return {1, 0};
  if (text == "column") return {0, 1};
  const std::size_t cross = text.find('x');
  if (cross != std::string_view::npos) {
    const Partition partition{extent_of(text.substr(0, cross)), extent_of(text.substr(cross + 1))};
    if (partition.across > 0 && partition.along > 0) return partition;
  }
  fail_config(
      fmt::format("precision.mor: partition = '{}'; expected row, column, tensor, or the extents of a block "
                  "as RxC, each between 1 and {}, e.g. 128x128",
                  text, kLargestExtent));
}

Settings settings_of(const Options& options) {
  Settings settings;
  settings.mode = options.choice("level", kLevels);
  settings.strategy = options.choice("strategy", kStrategies);
  settings.partition = partition_of(options.text("partition"));
  settings.threshold = options.real("threshold");
  settings.e2m3 = options.boolean("e2m3");
  settings.fp4 = options.boolean("fp4");
  settings.fp4_threshold = options.real("fp4_threshold");
  if (settings.mode == MorMode::kTensor && settings.e2m3) {
    fail_config("precision.mor: e2m3 chooses among formats of blocks; set level = 'sub2' or 'sub3'");
  }
  if (settings.mode != MorMode::kTensor && settings.fp4) {
    fail_config("precision.mor: fp4 decides about whole operands; set level = 'tensor'");
  }
  if (settings.mode != MorMode::kTensor && settings.strategy == MorStrategy::kCurrent) {
    fail_config(
        "precision.mor: strategy = 'current' has one scale for all blocks, and level = 'sub2' and 'sub3' ask "
        "whether "
        "a block's own span fits a format; set strategy to gam, block or e8");
  }
  return settings;
}

}  // namespace tenon::mor
