// Interface `tenon.quantizer/1` of precision components: rounding one matrix outside training, for
// `tenon quantize` and for studies. Memory belongs to the caller.
#pragma once

#include <tenon/device.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// Empty texts and zeros select the format's default.
struct QuantizeRequest {
  std::string_view format;  ///< one of formats()
  std::int64_t block_rows = 0, block_columns = 0;
  /// MX: "floor", "ceil", "even", "rceil"; FP8 blocks: "float", "power"; MoR: "gam", "block", "e8", "current"
  std::string_view scale;
  std::string_view rounding;   ///< "rne" or "sr"
  std::string_view transform;  ///< "none" or "rht16"
  std::uint64_t seed = 0;
  std::int64_t rows = 0, columns = 0;
};

/// Shapes of the results. An extent of 0: there is no such result.
struct QuantizeShape {
  std::int64_t rows = 0, columns = 0;              ///< of codes and of dequantized
  std::int64_t scale_rows = 0, scale_columns = 0;  ///< of block_scales
  DType scale = DType::kU8;                        ///< u8 bit patterns, or f32
};

struct QuantizeReport {
  float tensor_scale = 1;  ///< decode scale s_dec
  double sqnr_db = 0, mean_relative_error = 0, underflow_fraction = 0, saturated_fraction = 0, amax = 0;
  std::string decision;  ///< the format, or the one chosen: "e4m3", "bf16"
};

class Quantizer {
 public:
  static constexpr const char* kId = "tenon.quantizer/1";
  virtual ~Quantizer();
  virtual std::span<const std::string_view> formats() const = 0;
  /// Throws Error(kConfig) with the reason for an undefined combination.
  virtual QuantizeShape shape(const QuantizeRequest& request) const = 0;
  /// x: f32 [rows, columns]; codes: u8, one per element; dequantized: f32 (code x scale) x tensor scale; all
  /// in the device's memory.
  virtual QuantizeReport run(const QuantizeRequest& request, Device& device, TensorView x, TensorView codes,
                             TensorView block_scales, TensorView dequantized) = 0;
};

TENON_ABI_END
