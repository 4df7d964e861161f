// Refusals of quantizers and mixtures in this device's name, and what the calls of the family may be given.
#include "quant.hpp"

#include "arguments.hpp"
#include "device_common/quantizers.hpp"

#include <fmt/format.h>

#include <string>

namespace tenon::cuda {
void check_quantize_spec(const QuantizeSpec& spec) {
  const std::string reason = device_quantizers::quantizer_refusal(spec);
  if (!reason.empty()) fail_config(fmt::format("device {}: quantizer: {}", kDeviceName, reason));
}

void check_mor_spec(const MorSpec& spec) {
  const std::string reason = device_quantizers::mor_refusal(spec);
  if (!reason.empty()) fail_config(fmt::format("device {}: {}", kDeviceName, reason));
}

void check_scratch(const TensorView& scratch, std::size_t expected, const char* where) {
  const std::int64_t bytes = scratch.data == nullptr ? 0 : scratch.bytes();
  if (static_cast<std::size_t>(bytes) < expected) {
    fail_run(
        fmt::format("device {}: {}: scratch has {} bytes, expected {}", kDeviceName, where, bytes, expected));
  }
}

const float* checked_scales(const ProductScales& side, std::int64_t extent, const char* name) {
  constexpr const char* kWhere = "scale_product";
  if (side.scales.empty()) return nullptr;
  if (side.lines < 1 || side.first < 0 || side.step < 0) {
    fail_run(fmt::format("device {}: {}: scales of {}: {} lines from {} in steps of {}", kDeviceName, kWhere,
                         name, side.lines, side.first, side.step));
  }
  const std::int64_t last = side.first + (blocks_of(extent, side.lines) - 1) * side.step;
  if (extent > 0 && last >= side.scales.elements()) {
    fail_run(fmt::format("device {}: {}: scales of {} are {}, and element {} is asked for", kDeviceName,
                         kWhere, name, side.scales.elements(), last));
  }
  return checked<float>(side.scales, side.scales.elements(), kWhere, name) + side.first;
}

void refuse_quantizer(const char* reason) {
  fail_run(fmt::format("device {}: quantizer: {}", kDeviceName, reason));
}

}  // namespace tenon::cuda
