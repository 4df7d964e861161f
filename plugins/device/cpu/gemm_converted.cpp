// A product whose operands have other dtypes than the available arithmetic: copies in the caller's scratch,
// the inner product, one rounding of C. A product with large copies is split along m or n, so that scratch is
// bounded by the operand that must be whole.
#include "common.hpp"
#include "gemm.hpp"

namespace tenon::cpu {
namespace {

constexpr std::int64_t kOperandLine = 64;
/// Copies of one part should fit this, as far as the smallest part allows.
constexpr std::int64_t kCopyBytes = std::int64_t{32} << 20;
/// Fewer rows or columns than this would starve the inner product.
constexpr std::int64_t kLeastPart = 256;

/// One matrix as stored, [rows, columns], and the part of it that one inner product reads.
struct Operand {
  DType outer = DType::kF32, inner = DType::kF32;
  std::int64_t rows = 0, columns = 0;
  bool splits_rows = false, splits_columns = false;

  /// Inner products read packed matrices: a range of columns must be copied even where its dtype is right.
  bool copied() const { return outer != inner || splits_columns; }
  bool is_split() const { return splits_rows || splits_columns; }
  /// Elements of `part` rows or columns; all elements where this operand is not split.
  std::int64_t elements(std::int64_t part) const {
    return splits_rows ? part * columns : splits_columns ? rows * part : rows * columns;
  }
  std::int64_t copy_bytes(std::int64_t part) const {
    return copied() ? (dtype_bytes(inner, elements(part)) + kOperandLine - 1) / kOperandLine * kOperandLine
                    : 0;
  }
};

class ConvertedGemm final : public Gemm {
 public:
  ConvertedGemm(const Kernels& kernels, const GemmSpec& spec, GemmSpec inner, const MakeGemm& make)
      : kernels_(kernels), spec_(spec), products_(1) {
    a_ = operand(spec.a, inner.a, spec.m, spec.k, spec.transpose_a);
    b_ = operand(spec.b, inner.b, spec.k, spec.n, spec.transpose_b);
    c_ = operand(spec.c, inner.c, spec.m, spec.n, false);
    a_.rows *= spec.batch, b_.rows *= spec.batch, c_.rows *= spec.batch;
    length_ = part_ = 1;
    if (copies() > kCopyBytes) {
      a_.rows /= spec.batch, b_.rows /= spec.batch, c_.rows /= spec.batch;
      products_ = spec.batch;
      inner.batch = 1;
      if (copies() > kCopyBytes) choose_split();
    }
    whole_ = make(sized(inner, part_));
    const std::int64_t rest = length_ % part_;
    if (rest != 0) rest_ = make(sized(inner, rest));
    inner_scratch_ = std::max(whole_->scratch_bytes(), rest_ == nullptr ? 0 : rest_->scratch_bytes());
  }

  std::size_t scratch_bytes() const override { return static_cast<std::size_t>(copies()) + inner_scratch_; }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, scratch_bytes());
    auto* memory = static_cast<std::byte*>(scratch.data);
    std::byte* const a_copy = memory;
    std::byte* const b_copy = a_copy + a_.copy_bytes(part_);
    std::byte* const c_copy = b_copy + b_.copy_bytes(part_);
    const TensorView rest{c_copy + c_.copy_bytes(part_), Shape{static_cast<std::int64_t>(inner_scratch_)},
                          DType::kU8};
    for (std::int64_t product = 0; product < products_; ++product) {
      for (std::int64_t begin = 0; begin < length_; begin += part_) {
        const std::int64_t count = std::min(part_, length_ - begin);
        const bool fresh = begin == 0;
        const TensorView inner_a = part_of(a_, a, product, begin, count, a_copy, fresh || a_.is_split());
        const TensorView inner_b = part_of(b_, b, product, begin, count, b_copy, fresh || b_.is_split());
        const TensorView inner_c = part_of(c_, c, product, begin, count, c_copy, spec_.accumulate);
        TensorView inner_bias = bias;
        if (spec_.bias && b_.is_split()) {
          inner_bias.data = static_cast<std::byte*>(bias.data) + dtype_bytes(bias.dtype, begin);
          inner_bias.shape = Shape{count};
        }
        (count == part_ ? *whole_ : *rest_).run(inner_a, inner_b, inner_c, inner_bias, alpha, rest);
        if (c_.copied()) put_back(c, product, begin, count, c_copy);
      }
    }
  }

 private:
  static Operand operand(DType outer, DType inner, std::int64_t rows, std::int64_t columns, bool transposed) {
    return {.outer = outer,
            .inner = inner,
            .rows = transposed ? columns : rows,
            .columns = transposed ? rows : columns};
  }

  std::int64_t copies() const { return a_.copy_bytes(part_) + b_.copy_bytes(part_) + c_.copy_bytes(part_); }

  /// A split along m keeps B whole, one along n keeps A; the smaller one should stay whole. Where C needs no
  /// copy, a split along n would need one.
  void choose_split() {
    const bool along_m = !c_.copied() || b_.copy_bytes(1) <= a_.copy_bytes(1);
    length_ = along_m ? spec_.m : spec_.n;
    if (along_m) {
      (spec_.transpose_a ? a_.splits_columns : a_.splits_rows) = true;
      c_.splits_rows = true;
    } else {
      (spec_.transpose_b ? b_.splits_rows : b_.splits_columns) = true;
      c_.splits_columns = true;
    }
    part_ = 0;
    const std::int64_t fixed = copies();
    part_ = kLeastPart;
    const std::int64_t each = std::max<std::int64_t>(1, (copies() - fixed) / kLeastPart);
    part_ = std::min(length_, std::max(kLeastPart, (kCopyBytes - fixed) / each / kLeastPart * kLeastPart));
  }

  GemmSpec sized(GemmSpec inner, std::int64_t count) const {
    if (a_.is_split()) inner.m = count;
    if (b_.is_split()) inner.n = count;
    return inner;
  }

  /// Position of the first element of a part in the stored matrix.
  static std::int64_t start(const Operand& operand, std::int64_t product, std::int64_t begin) {
    return product * operand.rows * operand.columns + (operand.splits_rows      ? begin * operand.columns
                                                       : operand.splits_columns ? begin
                                                                                : 0);
  }

  TensorView part_of(const Operand& operand, const TensorView& view, std::int64_t product, std::int64_t begin,
                     std::int64_t count, std::byte* copy, bool filled) const {
    auto* source =
        static_cast<std::byte*>(view.data) + dtype_bytes(view.dtype, start(operand, product, begin));
    TensorView part{source, Shape{operand.elements(count)}, view.dtype, view.space};
    if (!operand.copied()) return part;
    const std::int64_t columns = operand.splits_columns ? count : operand.columns;
    if (filled) {
      convert_rows(kernels_, operand.outer, source, operand.columns, operand.inner, copy, columns,
                   columns == 0 ? 0 : part.elements() / columns, columns);
    }
    part.data = copy;
    part.dtype = operand.inner;
    return part;
  }

  void put_back(const TensorView& c, std::int64_t product, std::int64_t begin, std::int64_t count,
                const std::byte* copy) const {
    auto* target = static_cast<std::byte*>(c.data) + dtype_bytes(c.dtype, start(c_, product, begin));
    const std::int64_t columns = c_.splits_columns ? count : c_.columns;
    convert_rows(kernels_, c_.inner, copy, columns, c_.outer, target, c_.columns,
                 columns == 0 ? 0 : c_.elements(count) / columns, columns);
  }

  Kernels kernels_;
  GemmSpec spec_;
  Operand a_, b_, c_;
  std::int64_t products_;       ///< products that are run one by one
  std::int64_t length_, part_;  ///< extent along the split, and how much of it one inner product computes
  std::unique_ptr<Gemm> whole_, rest_;
  std::size_t inner_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_converted_gemm(const Kernels& kernels, const GemmSpec& spec, const GemmSpec& inner,
                                          const MakeGemm& make) {
  return std::make_unique<ConvertedGemm>(kernels, spec, inner, make);
}

}  // namespace tenon::cpu
