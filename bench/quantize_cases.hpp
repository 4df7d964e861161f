// The formats that the benchmarks of quantizers measure, and a call of one of them on a bf16 matrix of any
// device. A pass for the largest magnitude, where a format needs one, is part of a call.
#pragma once

#include "product_limit.hpp"

#include <tenon/ops/quant.hpp>

namespace tenon::bench {

struct QuantizeCase {
  const char* name;
  QuantizeSpec spec;
  bool codes = false;   ///< codes are written beside values
  bool decode = false;  ///< stored codes to values
};

inline std::vector<QuantizeCase> quantize_cases() {
  using E = ElementFormat;
  using B = BlockScale;
  constexpr auto kStochastic = RoundingMode::kStochastic;
  return {
      {"nvfp4 1x16", {}},
      {"nvfp4 1x16, codes too", {}, true},
      {"nvfp4 1x16 stochastic", {.rounding = kStochastic}},
      {"nvfp4 1x16 stochastic, 24 bits", {.rounding = kStochastic, .random_bits = 24}},
      {"nvfp4 16x16", {.block_rows = 16}},
      {"nvfp4 16x1 rotated, codes too", {.block_rows = 16, .block_columns = 1, .rotate = true}, true},
      {"nvfp4 16x1 rotated stochastic",
       {.block_rows = 16, .block_columns = 1, .rounding = kStochastic, .rotate = true}},
      {"nvfp4 1x16 decode", {}, true, true},
      {"mxfp4 1x32", {.scale = B::kPower, .block_columns = 32}},
      {"mxfp8 1x32", {.element = E::kE4M3, .scale = B::kPower, .block_columns = 32}},
      {"mxfp8 32x1", {.element = E::kE4M3, .scale = B::kPower, .block_rows = 32, .block_columns = 1}},
      {"fp8 per tensor", {.element = E::kE4M3, .scale = B::kTensor}},
      {"fp8 1x128", {.element = E::kE4M3, .scale = B::kFloat, .block_columns = 128}},
      {"fp8 128x1", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 1}},
      {"fp8 128x128", {.element = E::kE4M3, .scale = B::kFloat, .block_rows = 128, .block_columns = 128}},
  };
}

/// x: bf16 [rows, columns] with its values; outlives this object.
class QuantizeCall {
 public:
  QuantizeCall(Device& device, const QuantizeCase& c, TensorView x)
      : decode_(c.decode), x_(x), kernel_(device.family<QuantOps>().quantizer(spec_of(c, x))) {
    const bool floats = c.spec.scale == BlockScale::kFloat;
    const auto bytes = [](std::size_t count) { return static_cast<std::int64_t>(count); };
    values_ = std::make_unique<DeviceMemory>(device, Shape{kernel_->padded_rows(), x.shape[1]}, DType::kBF16);
    codes_ = std::make_unique<DeviceMemory>(device, Shape{bytes(kernel_->code_bytes())}, DType::kU8);
    scales_ = std::make_unique<DeviceMemory>(device, Shape{bytes(kernel_->scale_bytes()) / (floats ? 4 : 1)},
                                             floats ? DType::kF32 : DType::kU8);
    scratch_ = std::make_unique<DeviceMemory>(device, Shape{bytes(kernel_->scratch_bytes())}, DType::kU8);
    out_.values = values_->view();
    if (c.codes) out_.codes = codes_->view();
    if (kernel_->scale_bytes() > 0) out_.scales = scales_->view();
    quantize(nullptr);
  }

  void operator()() {
    if (decode_)
      kernel_->decode(codes_->view(), scales_->view(), out_.values);
    else
      quantize(nullptr);
  }
  /// The call with measurement of errors.
  void measured() {
    QuantizeStats stats;
    quantize(&stats);
  }

 private:
  static QuantizeSpec spec_of(const QuantizeCase& c, TensorView x) {
    QuantizeSpec result = c.spec;
    result.rows = x.shape[0];
    result.columns = x.shape[1];
    return result;
  }
  void quantize(QuantizeStats* stats) {
    const float amax = kernel_->needs_amax() ? kernel_->amax(x_, scratch_->view()) : 0;
    kernel_->run(x_, amax, {.key = {{1, 2}}, .step = 3}, out_, scratch_->view(), stats);
  }

  bool decode_;
  TensorView x_;
  std::unique_ptr<QuantizeKernel> kernel_;
  std::unique_ptr<DeviceMemory> values_, codes_, scales_, scratch_;
  QuantizeOutput out_;
};

}  // namespace tenon::bench
