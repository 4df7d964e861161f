// Options of `mor` as numbers.
#pragma once

#include <tenon/options.hpp>
#include <tenon/sdk/ops/mor.hpp>

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

}  // namespace tenon::mor
