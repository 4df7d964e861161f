// Options of `mor` as numbers, and their conversion.
#pragma once

#include <tenon/error.hpp>
#include <tenon/options.hpp>
#include <tenon/sdk/ops/mor.hpp>

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::mor {

inline constexpr auto kLevels = option::choice<MorMode>(
    {{"tensor", MorMode::kTensor}, {"sub2", MorMode::kQuantError}, {"sub3", MorMode::kDynamicRange}});
inline constexpr auto kStrategies = option::choice<MorStrategy>({{"gam", MorStrategy::kGam},
                                                                 {"block", MorStrategy::kBlock},
                                                                 {"e8", MorStrategy::kE8},
                                                                 {"current", MorStrategy::kCurrent}});

/// Extents of an operand's block: across the dimension that a product sums over, and along it. 0 = all of it.
struct Partition {
  std::int64_t across = 128, along = 128;
};

/// Parses "128x128" (any extents), "row" = 1 x all, "column" = all x 1, "tensor" = all x all. Throws
/// Error(kConfig).
Partition partition_of(std::string_view text);

struct Settings {
  MorMode mode = MorMode::kTensor;
  MorStrategy strategy = MorStrategy::kGam;
  Partition partition;
  double threshold = 0.045;
  bool e2m3 = false;
  bool fp4 = false;
  double fp4_threshold = 0;
};

/// Throws Error(kConfig) for undefined combinations.
Settings settings_of(const Options& options);

inline constexpr std::int64_t kLargestExtent = 1 << 20;

/// Returns the positive number that is the whole of `text`, or 0.
inline std::int64_t extent_of(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  return error == std::errc() && stop == end && value >= 1 && value <= kLargestExtent ? value : 0;
}

inline Partition partition_of(std::string_view text) {
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

inline Settings settings_of(const Options& options) {
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
