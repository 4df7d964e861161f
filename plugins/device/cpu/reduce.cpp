// Reductions (family ReduceOps). Blocks are counted from the first element and combined in a tree that
// depends on the length alone; block results are on the stack, so a long vector is split into spans whose
// sums are added in order.
#include "common.hpp"
#include "device_common/reductions.hpp"

#include <tenon/kernels/bf16.hpp>

#include <bit>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;
using kernels::kReduceBlock;

using device_arguments::kSpan;
using device_arguments::kSpanBlocks;

/// Blocks of kReduceBlock elements per call of a kernel.
constexpr std::int64_t kBlocksPerCall = 8;

/// Bits of |x|: they order like the values, with NaN above infinity.
std::int32_t magnitude(float x) {
  return static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x) & 0x7fffffffu);
}
std::int64_t magnitude(double x) {
  return static_cast<std::int64_t>(std::bit_cast<std::uint64_t>(x) & 0x7fffffffffffffffull);
}
std::int16_t magnitude(Bf16 x) {
  return static_cast<std::int16_t>(x.bits & 0x7fffu);
}
double value(std::int32_t magnitude) {
  return std::bit_cast<float>(magnitude);
}
double value(std::int64_t magnitude) {
  return std::bit_cast<double>(magnitude);
}
double value(std::int16_t magnitude) {
  return kernels::to_float(Bf16{static_cast<std::uint16_t>(magnitude)});
}

class CpuReduceOps final : public ReduceOps {
 public:
  explicit CpuReduceOps(const Kernels& kernels) : kernels_(kernels) {}

  double sum(TensorView x) override {
    return total(x, "sum", [](const auto& ops) { return ops.block_sums; });
  }

  double sum_of_squares(TensorView x) override {
    return total(x, "sum_of_squares", [](const auto& ops) { return ops.block_sums_of_squares; });
  }

  double absolute_max(TensorView x) override {
    return with_storage(x.dtype, "absolute_max", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* in = checked<S>(x, x.elements(), "absolute_max", "x");
      using Bits = decltype(magnitude(S{}));
      Bits result = 0;
      for_spans(x.elements(), [&](std::int64_t start, std::int64_t n) {
        Bits best[kSpanBlocks];
        parallel_for(n, kReduceBlock, [&](std::int64_t begin, std::int64_t end) {
          Bits most = 0;
          for (std::int64_t i = begin; i < end; ++i) most = std::max(most, magnitude(in[start + i]));
          best[begin / kReduceBlock] = most;
        });
        result = std::max(result, *std::max_element(best, best + kernels::reduce_blocks(n)));
        return true;
      });
      return value(result);
    });
  }

  std::int64_t first_non_finite(TensorView x) override {
    return with_storage(x.dtype, "first_non_finite", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* in = checked<S>(x, x.elements(), "first_non_finite", "x");
      std::int64_t result = -1;
      for_spans(x.elements(), [&](std::int64_t start, std::int64_t n) {
        constexpr std::int64_t kCall = kBlocksPerCall * kReduceBlock;
        std::int64_t found[kSpanBlocks / kBlocksPerCall];
        parallel_for(n, kCall, [&](std::int64_t begin, std::int64_t end) {
          const std::int64_t at = kernels_.ops<S>().reduce.first_non_finite(in + start + begin, end - begin);
          found[begin / kCall] = at < 0 ? -1 : start + begin + at;
        });
        for (std::int64_t call = 0; call * kCall < n && result < 0; ++call) result = found[call];
        return result < 0;
      });
      return result;
    });
  }

  void sum_rows(TensorView x, TensorView out, bool accumulate, TensorView) override {
    with_storage(x.dtype, "sum_rows", [&](auto tag) {
      using S = typename decltype(tag)::type;
      const device_arguments::RowSums<S> of(x, out, "sum_rows");
      parallel_for(of.columns, kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().reduce.column_sums(of.x, of.out, of.rows, of.columns, begin, end, accumulate);
      });
    });
  }

  std::size_t sum_rows_scratch(std::int64_t, std::int64_t, DType) const override { return 0; }

 private:
  /// Calls body(start, length) for spans in order, until one returns false.
  template <class Body>
  static void for_spans(std::int64_t n, Body body) {
    for (std::int64_t start = 0; start < n; start += kSpan) {
      if (!body(start, std::min(kSpan, n - start))) return;
    }
  }

  template <class Pick>
  double total(const TensorView& x, const char* where, Pick pick) {
    return with_storage(x.dtype, where, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* in = checked<S>(x, x.elements(), where, "x");
      const auto block_sums = pick(kernels_.ops<S>().reduce);
      double result = 0;
      for_spans(x.elements(), [&](std::int64_t start, std::int64_t n) {
        double sums[kSpanBlocks];
        parallel_for(n, kBlocksPerCall * kReduceBlock, [&](std::int64_t begin, std::int64_t end) {
          block_sums(in + start + begin, end - begin, sums + begin / kReduceBlock);
        });
        result += kernels::pairwise_sum(sums, kernels::reduce_blocks(n));
        return true;
      });
      return result;
    });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<ReduceOps> make_reduce_ops(const Kernels& kernels) {
  return std::make_unique<CpuReduceOps>(kernels);
}

}  // namespace tenon::cpu
