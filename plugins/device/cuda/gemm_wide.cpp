// A product whose sums are f32 in the caller's scratch before their tail rounds them to C. Large ones are
// split along the rows, so that scratch stays small and the tail finds the sums in the device's cache.
#include "gemm.hpp"

#include <algorithm>

namespace tenon::cuda {
namespace {

constexpr std::int64_t kSumBytes = std::int64_t{32} << 20;
/// Fewer rows than this would starve the inner product; a multiple of every alignment that it relies on.
constexpr std::int64_t kLeastRows = 256;
constexpr std::int64_t kLine = 256;

class WideGemm final : public Gemm {
 public:
  WideGemm(Queue& queue, const GemmSpec& spec, std::int64_t products, std::int64_t rows,
           std::unique_ptr<Gemm> whole, std::unique_ptr<Gemm> rest)
      : queue_(queue),
        spec_(spec),
        products_(products),
        rows_(rows),
        whole_(std::move(whole)),
        rest_(std::move(rest)) {
    inner_scratch_ = std::max(whole_->scratch_bytes(), rest_ == nullptr ? 0 : rest_->scratch_bytes());
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(sum_bytes()) + inner_scratch_;
  }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, scratch_bytes());
    TensorView rest = scratch;
    rest.data = scratch.as<std::byte>() + sum_bytes();
    rest.shape = Shape{static_cast<std::int64_t>(inner_scratch_)};
    GemmSpec part = spec_;
    part.batch = products_;
    for (std::int64_t product = 0; product < spec_.batch; product += products_)
      for (std::int64_t row = 0; row < spec_.m; row += rows_) {
        part.m = std::min(rows_, spec_.m - row);
        const std::int64_t first = product * spec_.m + row;
        const TensorView part_a = from(a, first * spec_.k, products_ * part.m * spec_.k);
        const TensorView part_b = from(b, product * spec_.k * spec_.n, products_ * spec_.k * spec_.n);
        const TensorView part_c = from(c, first * spec_.n, products_ * part.m * spec_.n);
        const TensorView sums{scratch.data, part_c.shape, DType::kF32, scratch.space};
        (part.m == rows_ ? *whole_ : *rest_).run(part_a, part_b, sums, {}, alpha, rest);
        finish_gemm(queue_, part, sums.data, part_c, bias);
      }
  }

 private:
  std::int64_t sum_bytes() const {
    const auto bytes = products_ * rows_ * spec_.n * static_cast<std::int64_t>(sizeof(float));
    return (bytes + kLine - 1) / kLine * kLine;
  }

  static TensorView from(const TensorView& view, std::int64_t element, std::int64_t count) {
    TensorView part = view;
    part.data = view.as<std::byte>() + dtype_bytes(view.dtype, element);
    part.shape = Shape{count};
    return part;
  }

  Queue& queue_;
  GemmSpec spec_;
  std::int64_t products_, rows_;  ///< inner products, and the rows of one of them
  std::unique_ptr<Gemm> whole_, rest_;
  std::size_t inner_scratch_ = 0;
};

}  // namespace

std::unique_ptr<Gemm> make_wide_gemm(Queue& queue, const GemmSpec& spec, const MakeGemm& make) {
  GemmSpec inner = spec;
  inner.c = DType::kF32;
  inner.bias = inner.accumulate = false;
  inner.epilogue = Epilogue::kNone;
  const std::int64_t row_bytes = spec.n * static_cast<std::int64_t>(sizeof(float));
  if (spec.batch * spec.m * row_bytes > kSumBytes) {
    inner.batch = 1;
    // Rows of a transposed A are stored as columns: it stays whole.
    if (!spec.transpose_a) {
      const std::int64_t most = kSumBytes / row_bytes / kLeastRows * kLeastRows;
      inner.m = std::min(spec.m, std::max(kLeastRows, most));
    }
  }
  auto whole = make(inner);
  if (whole == nullptr) return nullptr;
  std::unique_ptr<Gemm> rest;
  const std::int64_t rows = inner.m;
  if (spec.m % rows != 0) {
    inner.m = spec.m % rows;
    rest = make(inner);
    if (rest == nullptr) return nullptr;
  }
  return std::make_unique<WideGemm>(queue, spec, inner.batch, rows, std::move(whole), std::move(rest));
}

}  // namespace tenon::cuda
