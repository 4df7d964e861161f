// Arguments of quantizers and of products under scales (family QuantOps): sizes that follow from a spec, and
// the tensors of a call as pointers. The available specs are in quantizers.hpp, which formats its reasons.
// Does not use fmt, which nvcc does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/kernels/quantize.hpp>
#include <tenon/kernels/scales.hpp>
#include <tenon/ops/quant.hpp>

#include <string>

namespace tenon::device_arguments {

inline constexpr const char* kQuantizer = "quantizer";
inline constexpr const char* kScaleProduct = "scale_product";

/// Blocks run down the columns: so do groups of draws, rotation and lines.
inline bool runs_down(const QuantizeSpec& spec) {
  return spec.scale != BlockScale::kTensor && spec.block_rows > spec.block_columns;
}

inline std::int64_t blocks_of(std::int64_t extent, std::int64_t block) {
  return (extent + block - 1) / block;
}

/// Pointer to the scale of line 0, or null without scales. `extent`: lines of the product.
inline const float* checked_scales(const ProductScales& side, std::int64_t extent, const char* name) {
  if (side.scales.empty()) return nullptr;
  const std::string scales = std::string("scales of ") + name;
  if (side.lines < 1 || side.first < 0 || side.step < 0) {
    refuse(kScaleProduct, scales + ": " + std::to_string(side.lines) + " lines from " +
                              std::to_string(side.first) + " in steps of " + std::to_string(side.step));
  }
  const std::int64_t last = side.first + (blocks_of(extent, side.lines) - 1) * side.step;
  if (extent > 0 && last >= side.scales.elements()) {
    refuse(kScaleProduct, scales + " are " + std::to_string(side.scales.elements()) + ", and element " +
                              std::to_string(last) + " is asked for");
  }
  return checked<float>(side.scales, side.scales.elements(), kScaleProduct, name) + side.first;
}

/// c (+)= p [rows, columns] times a scale per line of either side; null for a side without scales.
struct ScaleProduct {
  ScaleProduct(const TensorView& p_view, const ProductScales& a, const ProductScales& b,
               const TensorView& c_view)
      : size(as_matrix(p_view)),
        p(checked<float>(p_view, size.rows * size.columns, kScaleProduct, "p")),
        c(checked<float>(c_view, size.rows * size.columns, kScaleProduct, "c")),
        of_rows(checked_scales(a, size.rows, "a")),
        of_columns(checked_scales(b, size.columns, "b")) {}

  Matrix size;
  const float* p;
  float* c;
  const float *of_rows, *of_columns;
};

/// Answers common to all quantizers of a checked spec, and the arguments of their kernels.
template <class S>
class QuantizerShape : public QuantizeKernel {
 public:
  explicit QuantizerShape(const QuantizeSpec& spec)
      : spec_(spec), packed_(spec.element == ElementFormat::kE2M1) {}

  std::int64_t padded_rows() const override {
    return spec_.rotate && runs_down(spec_) ? blocks_of(spec_.rows, 16) * 16 : spec_.rows;
  }
  std::size_t code_bytes() const override { return padded_rows() * code_stride(); }
  std::size_t scale_bytes() const override { return static_cast<std::size_t>(blocks()) * scale_size(); }
  bool needs_amax() const override {
    return spec_.scale == BlockScale::kTensor || (spec_.scale == BlockScale::kTwoLevel && !spec_.line_scale);
  }

 protected:
  using Args = kernels::QuantizeArgs<S>;

  std::int64_t code_stride() const { return packed_ ? blocks_of(spec_.columns, 2) : spec_.columns; }
  std::int64_t scale_stride() const {
    return spec_.scale == BlockScale::kTensor ? 0 : blocks_of(spec_.columns, spec_.block_columns);
  }
  std::int64_t blocks() const {
    return spec_.scale == BlockScale::kTensor ? 0 : blocks_of(spec_.rows, spec_.block_rows) * scale_stride();
  }
  std::size_t scale_size() const { return spec_.scale == BlockScale::kFloat ? sizeof(float) : 1; }
  std::size_t rounded_scale_bytes() const { return (scale_bytes() + 63) / 64 * 64; }
  std::int64_t lines() const {
    if (!spec_.line_scale) return 0;
    return runs_down(spec_) ? spec_.columns : spec_.rows;
  }

  /// Arguments for the whole matrix; pointers are not set.
  Args arguments() const {
    Args args;
    args.rows = spec_.rows;
    args.columns = spec_.columns;
    args.stride = spec_.columns;
    args.element = static_cast<kernels::Element>(spec_.element);
    args.scaling = static_cast<kernels::Scaling>(spec_.scale);
    args.power = static_cast<kernels::PowerRule>(spec_.power);
    args.block_rows = spec_.block_rows;
    args.block_columns = spec_.block_columns;
    args.stochastic = spec_.rounding == RoundingMode::kStochastic;
    args.random_bits = spec_.random_bits;
    args.rotate = spec_.rotate;
    args.four_over_six = spec_.four_over_six;
    args.values_stride = spec_.columns;
    args.codes_stride = code_stride();
    args.packed = packed_;
    args.scales_stride = scale_stride();
    return args;
  }

  /// Arguments for a call that rounds x; args.scales is not set. `scales` is where they are, which may be the
  /// head of the scratch.
  Args quantizing(const TensorView& x, const QuantizeDraws& draws, const QuantizeOutput& out,
                  const TensorView& scratch, bool measured, void*& scales) const {
    Args args = arguments();
    args.x = input(x);
    args.key = draws.key.words[0] | std::uint64_t{draws.key.words[1]} << 32;
    args.step = draws.step;
    args.micro = draws.micro;
    args.origin_row = draws.origin_row;
    args.origin_column = draws.origin_column;
    args.values =
        checked_or_null<kernels::Bf16>(out.values, padded_rows() * spec_.columns, kQuantizer, "values");
    args.codes = bytes(out.codes, code_bytes(), "codes");
    scales = scale_memory(out.scales);
    if (measured && args.values == nullptr && x.elements() > 0)
      refuse(kQuantizer, "measuring needs the values that quantizing writes, found none");
    if ((measured && scales == nullptr) || spec_.line_scale) {
      check_scratch(scratch, this->scratch_bytes(), kQuantizer);
      if (scales == nullptr) scales = scratch.data;
    }
    set_scales(args, scales);
    return args;
  }

  Args decoding(const TensorView& codes, const TensorView& scales, const TensorView& values) const {
    Args args = arguments();
    args.codes = bytes(codes, code_bytes(), "codes");
    set_scales(args, scale_memory(scales));
    args.values = checked<kernels::Bf16>(values, padded_rows() * spec_.columns, kQuantizer, "values");
    if (args.codes == nullptr && code_bytes() > 0) refuse(kQuantizer, "decoding needs codes, found none");
    if (args.scales == nullptr && scale_size() == 1 && scale_bytes() > 0)
      refuse(kQuantizer, "decoding needs scales, found none");
    return args;
  }

  const S* input(const TensorView& x) const {
    return checked<S>(x, spec_.rows * spec_.columns, kQuantizer, "x");
  }

  /// The largest scale of blocks under two levels.
  float top() const { return spec_.four_over_six ? kernels::kScaleTopOfSix : kernels::kScaleTop; }
  kernels::TensorScale matrix_scale(float amax) const {
    switch (spec_.scale) {
      case BlockScale::kTensor:
        return kernels::tensor_scale(amax, static_cast<kernels::Element>(spec_.element));
      case BlockScale::kTwoLevel:
        return kernels::two_level_scale(amax, top());
      default:
        return {};
    }
  }

  const QuantizeSpec spec_;
  const bool packed_;

 private:
  static std::uint8_t* bytes(const TensorView& view, std::size_t expected, const char* name) {
    return checked_or_null<std::uint8_t>(view, static_cast<std::int64_t>(expected), kQuantizer, name);
  }
  /// The caller's memory for scales, or null.
  void* scale_memory(const TensorView& view) const {
    if (scale_size() == 1) return bytes(view, scale_bytes(), "scales");
    return checked_or_null<float>(view, blocks(), kQuantizer, "scales");
  }
  void set_scales(Args& args, void* memory) const {
    if (blocks() == 0) return;  // an empty view may point at memory of another owner
    if (scale_size() == 1)
      args.scales = static_cast<std::uint8_t*>(memory);
    else
      args.float_scales = static_cast<float*>(memory);
  }
};

}  // namespace tenon::device_arguments
