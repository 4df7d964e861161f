// The check of document numbers that layers over time have in common: numbers along a row must not decrease,
// which every device relies on. It is done on the host, in every pass.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon::layer_common {

/// Throws Error(kRun) where the numbers of a sample of i32 [batch, time] decrease, of which `counts` count by
/// row; empty: all. The error begins with the name of the layer.
inline void check_documents(std::string_view layer, Device& device, HostStage& stage,
                            const TensorView& documents, std::span<const std::int64_t> counts) {
  const TensorView here = stage.read(device, documents);
  const auto* const numbers = here.as<std::int32_t>();
  const std::int64_t time = here.shape[1];
  for (std::int64_t i = 1; i < here.elements(); ++i) {
    if (i % time == 0 || numbers[i] >= numbers[i - 1]) continue;
    if (!counts.empty() && i % time >= counts[i / time]) continue;
    fail_run(
        fmt::format("layer '{}': the documents of sample {} go backwards at position {}: {} follows {}; "
                    "number the documents of a row in ascending order",
                    layer, i / time, i % time, numbers[i], numbers[i - 1]));
  }
}

}  // namespace tenon::layer_common
