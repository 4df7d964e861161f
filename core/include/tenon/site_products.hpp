// For authors of precision policies: the three products of a linear site, prepared for every number of rows
// that the site's chunks have, with operands of one dtype; and measurement of rounding. The policy decides
// what an operand holds.
#pragma once

#include <tenon/numerics.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/site.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

enum class SiteProduct : std::uint8_t {
  kFprop = 0,  ///< y[m,n] = x[m,k] w[n,k]^T (+ bias, epilogue)
  kDgrad = 1,  ///< dx[m,k] = dy[m,n] w[n,k]
  kWgrad = 2,  ///< dw[n,k] = dy[m,n]^T x[m,k]
};

/// The operands of the three products, two for each in the order of SiteProduct.
enum class SiteOperand : std::uint8_t { kFpropX, kFpropW, kDgradDy, kDgradW, kWgradDy, kWgradX };
inline constexpr int kSiteOperands = 6;

constexpr std::size_t index_of(SiteOperand operand) {
  return static_cast<std::size_t>(operand);
}
constexpr bool is_weight(SiteOperand operand) {
  return operand == SiteOperand::kFpropW || operand == SiteOperand::kDgradW;
}
constexpr bool is_gradient(SiteOperand operand) {
  return operand == SiteOperand::kDgradDy || operand == SiteOperand::kWgradDy;
}
/// Returns whether the product sums over the rows of the matrix as stored.
constexpr bool along_rows(SiteOperand operand) {
  return operand == SiteOperand::kDgradW || operand == SiteOperand::kWgradDy ||
         operand == SiteOperand::kWgradX;
}
/// OperandNumerics::gemm: "fprop", "dgrad" or "wgrad".
constexpr std::string_view gemm_of(SiteOperand operand) {
  constexpr std::string_view kGemms[] = {"fprop", "dgrad", "wgrad"};
  return kGemms[index_of(operand) / 2];
}
/// OperandNumerics::operand: "x", "w" or "dy".
constexpr std::string_view operand_of(SiteOperand operand) {
  return is_weight(operand) ? "w" : is_gradient(operand) ? "dy" : "x";
}

/// Bytes up to the next cache line: products like their operands to begin on one.
constexpr std::size_t line_up(std::size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

class SiteProducts {
 public:
  /// operands: dtype of x, w and dy as the products read them.
  SiteProducts(const SiteInfo& info, Blas& blas, DType operands)
      : n_(info.n),
        k_(info.k),
        bias_(info.bias),
        epilogue_(info.epilogue),
        operands_(operands),
        blas_(&blas),
        rows_(info.chunk > 0 ? std::min(info.chunk, info.m) : info.m) {
    for (const std::int64_t rows : {rows_, info.m % std::max<std::int64_t>(rows_, 1)}) {
      if (rows == 0) continue;
      for (const bool accumulate : {false, true}) {
        find(SiteProduct::kDgrad, rows, info.activation, accumulate);
        find(SiteProduct::kWgrad, rows, info.parameter, accumulate);
      }
      for (const DType result : {info.activation, info.parameter})
        find(SiteProduct::kFprop, rows, result, false);
    }
  }

  /// Rows of one call at most.
  std::int64_t rows() const { return rows_; }
  /// Scratch of run(), a multiple of a cache line.
  std::size_t scratch_bytes() const { return line_up(scratch_); }

  /// a, b as in SiteProduct. `scratch` has at least scratch_bytes().
  void run(SiteProduct product, TensorView a, TensorView b, TensorView c, TensorView bias, bool accumulate,
           TensorView scratch) {
    find(product, a.shape[0], c.dtype, accumulate).run(a, b, c, bias, 1.0f, scratch);
  }

 private:
  struct Entry {
    SiteProduct product;
    std::int64_t rows;
    DType result;
    bool accumulate;
    std::unique_ptr<Gemm> gemm;
  };

  /// Prepares a product that is missing; after construction a steady step finds all.
  Gemm& find(SiteProduct product, std::int64_t rows, DType result, bool accumulate) {
    for (Entry& entry : entries_) {
      if (entry.product == product && entry.rows == rows && entry.result == result &&
          entry.accumulate == accumulate)
        return *entry.gemm;
    }
    GemmSpec spec;
    spec.a = spec.b = operands_;
    spec.c = result;
    spec.accumulate = accumulate;
    switch (product) {
      case SiteProduct::kFprop:
        spec.m = rows, spec.n = n_, spec.k = k_, spec.transpose_b = true;
        spec.bias = bias_, spec.epilogue = epilogue_;
        break;
      case SiteProduct::kDgrad:
        spec.m = rows, spec.n = k_, spec.k = n_;
        break;
      case SiteProduct::kWgrad:
        spec.m = n_, spec.n = k_, spec.k = rows, spec.transpose_a = true;
        break;
    }
    entries_.push_back({product, rows, result, accumulate, blas_->gemm(spec)});
    scratch_ = std::max(scratch_, entries_.back().gemm->scratch_bytes());
    return *entries_.back().gemm;
  }

  std::int64_t n_, k_;
  bool bias_;
  Epilogue epilogue_;
  DType operands_;
  Blas* blas_;
  std::int64_t rows_;
  std::vector<Entry> entries_;
  std::size_t scratch_ = 0;
};

/// Returns a report that states the place of its operand; the policy fills in formats, statistics and views.
inline OperandNumerics operand_place(const SiteCall& call, std::string_view layer, int site,
                                     std::string_view gemm, std::string_view operand) {
  OperandNumerics place;
  place.layer = layer;
  place.site = site;
  place.gemm = gemm;
  place.operand = operand;
  place.slot = call.step;
  place.micro = call.micro;
  place.first_row = call.first_row;
  return place;
}

/// Compares an operand with its rounded form, element by element, in host memory: amax, signal, noise,
/// relative error and underflow; the rest is left at 0. A slow pass.
QuantizeStats measure_rounding(TensorView input, TensorView rounded);

TENON_ABI_END
