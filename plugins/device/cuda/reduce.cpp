// Reductions (family ReduceOps). Sums use the order of the other devices, hence have their bits; the host
// adds the results of the device's blocks.
#include "common.hpp"
#include "device_common/reductions.hpp"
#include "sums.hpp"

#include <bit>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;
using device_arguments::kSpan;
using device_arguments::kSpanBlocks;

/// Spans whose block sums are copied to the host together.
constexpr std::int64_t kTogether = 64;
static_assert(kTogether * kSpanBlocks * sizeof(double) <= Queue::kScratchBytes);

class CudaReduceOps final : public ReduceOps {
 public:
  explicit CudaReduceOps(Queue& queue) : queue_(queue) {}

  double sum(TensorView x) override { return total<false>(x, "sum"); }

  double sum_of_squares(TensorView x) override { return total<true>(x, "sum_of_squares"); }

  double absolute_max(TensorView x) override {
    constexpr const char* kWhere = "absolute_max";
    return with_storage(x.dtype, kWhere, [&](auto tag) -> double {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      const std::int64_t bits = join_integers(
          queue_, kWhere, n, 0, bodies::Magnitude<S>{checked<S>(x, n, kWhere, "x")}, bodies::Larger{});
      if constexpr (std::is_same_v<S, double>) {
        return std::bit_cast<double>(bits);
      } else {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits));
      }
    });
  }

  std::int64_t first_non_finite(TensorView x) override {
    constexpr const char* kWhere = "first_non_finite";
    return with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const std::int64_t n = x.elements();
      const std::int64_t at = join_integers(
          queue_, kWhere, n, n, bodies::NotFinite<S>{checked<S>(x, n, kWhere, "x"), n}, bodies::Smaller{});
      return at == n ? std::int64_t{-1} : at;
    });
  }

  void sum_rows(TensorView x, TensorView out, bool accumulate, TensorView) override {
    constexpr const char* kWhere = "sum_rows";
    with_storage(x.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using A = Arith<S>;
      const device_arguments::RowSums<S> of(x, out, kWhere);
      const bodies::ColumnOutputs<A, 1> sums{{of.out}, accumulate};
      sum_columns<A, 1>(queue_, kWhere, of.rows, of.columns, bodies::RowTerms<S>{of.columns, of.x}, sums);
    });
  }

  /// Partial sums are in the queue's own scratch.
  std::size_t sum_rows_scratch(std::int64_t, std::int64_t, DType) const override { return 0; }

 private:
  template <bool Squares>
  double total(const TensorView& x, const char* where) {
    return with_storage(x.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using Body = bodies::BlockSums<S, Squares>;
      const S* const in = checked<S>(x, x.elements(), where, "x");
      auto* const partial = queue_.scratch<double>();
      std::vector<double> sums;
      double result = 0;
      for (std::int64_t start = 0; start < x.elements(); start += kTogether * kSpan) {
        const std::int64_t n = std::min(kTogether * kSpan, x.elements() - start);
        const std::int64_t blocks = kernels::reduce_blocks(n);
        queue_.launch(where, Body::grid(n), Body{in + start, n, partial});
        sums.resize(blocks);
        queue_.copy(partial, MemorySpace::kCuda, sums.data(), MemorySpace::kHost,
                    sums.size() * sizeof(double));
        for (std::int64_t block = 0; block < blocks; block += kSpanBlocks)
          result += kernels::pairwise_sum(sums.data() + block, std::min(kSpanBlocks, blocks - block));
      }
      return result;
    });
  }

  Queue& queue_;
};

}  // namespace

void check_indices(Queue& queue, const std::int32_t* indices, std::int64_t count, std::int32_t lowest,
                   std::int64_t bound, const char* where, const char* name) {
  const std::int64_t at =
      join_integers(queue, where, count, count, kernels::cuda::OutOfRange{indices, lowest, bound, count},
                    kernels::cuda::Smaller{});
  if (at != count) device_arguments::refuse_index(where, name, at, queue.read(indices + at), lowest, bound);
}

std::unique_ptr<ReduceOps> make_reduce_ops(Queue& queue) {
  return std::make_unique<CudaReduceOps>(queue);
}

}  // namespace tenon::cuda
