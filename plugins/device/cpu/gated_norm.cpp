// Norms of gated values (family GatedNorms of <tenon/sdk/ops/ssd.hpp>). Work is shared by rows; gradients of
// the weight are summed per block of rows, whose number depends on the shape alone.
#include "common.hpp"
#include "device_common/ssd.hpp"
#include "joined_runs.hpp"

#include <limits>
#include <vector>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::GatedNormArgs;

/// Blocks of rows with sums of their own: at most so many, of at least so many rows.
constexpr std::int64_t kSumBlocks = 64, kLeastRows = 16;

template <class S>
class CpuGatedNorm final : public GatedNormKernel {
  using A = Arith<S>;

 public:
  CpuGatedNorm(const Kernels& kernels, const GatedNormSpec& spec)
      : kernels_(kernels),
        spec_(spec),
        runs_(joined_runs(spec.gates, std::numeric_limits<std::int64_t>::max(), spec.group_width)) {
    if (spec.parameter == DType::kBF16) parameters_.resize(static_cast<std::size_t>(2 * width()));
  }

  std::size_t scratch_bytes() const override {
    return kernels::gated_norm_blocks(sizes()) * width() * sizeof(A);
  }

  void forward(TensorView y, TensorView projected, TensorView weight, TensorView out) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      const auto tensors = device_ssd::gated_norm_forward<S, P>(spec_, y, projected, weight, out);
      GatedNormArgs<S> args = with_inputs(tensors);
      args.out = tensors.out;
      parallel_for(spec_.rows, row_block(width()), [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().gated_norm.forward(args, begin, end);
      });
    });
  }

  void backward(TensorView y, TensorView projected, TensorView weight, TensorView dout, TensorView dy,
                TensorView dprojected, TensorView dweight, bool accumulate, TensorView scratch) override {
    device_ssd::with_parameter<S>(spec_.parameter, [&](auto tag) {
      using P = typename decltype(tag)::type;
      const auto tensors =
          device_ssd::gated_norm_backward<S, P>(spec_, y, projected, weight, dout, dy, dprojected, dweight);
      device_arguments::check_scratch_view(scratch, scratch_bytes(), device_ssd::kGatedNormBackward);
      GatedNormArgs<S> args = with_inputs(tensors);
      args.dout = tensors.dout;
      args.dy = tensors.dy;
      args.dprojected = tensors.dprojected;
      args.sums = scratch.as<A>();
      const std::int64_t blocks = kernels::gated_norm_blocks(args);
      parallel_for(blocks, 1, [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().gated_norm.backward(args, begin, end);
      });
      A* total = parameters_.data() + (parameters_.empty() ? 0 : width());
      bool onto = false;
      if constexpr (std::is_same_v<P, A>) total = tensors.dweight, onto = accumulate;
      parallel_for(width(), kColumnBlock, [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<A>().reduce.column_sums(args.sums, total, blocks, width(), begin, end, onto);
      });
      if constexpr (!std::is_same_v<P, A>) add_narrowed(total, tensors.dweight, width(), accumulate);
    });
  }

 private:
  std::int64_t width() const { return spec_.groups * spec_.group_width; }

  GatedNormArgs<S> sizes() const {
    GatedNormArgs<S> args;
    args.rows = spec_.rows, args.groups = spec_.groups, args.group_width = spec_.group_width;
    args.columns = spec_.columns, args.runs = runs_.data(), args.eps = static_cast<A>(spec_.eps);
    args.block = std::max(kLeastRows, (spec_.rows + kSumBlocks - 1) / kSumBlocks);
    return args;
  }

  template <class P>
  GatedNormArgs<S> with_inputs(const device_ssd::GatedNormTensors<S, P>& tensors) {
    GatedNormArgs<S> args = sizes();
    args.y = tensors.y;
    args.projected = tensors.projected;
    if constexpr (std::is_same_v<P, A>) {
      args.weight = tensors.weight;
    } else {
      for (std::int64_t i = 0; i < width(); ++i) parameters_[i] = widen(tensors.weight[i]);
      args.weight = parameters_.data();
    }
    return args;
  }

  Kernels kernels_;
  GatedNormSpec spec_;
  std::vector<kernels::JoinedRun> runs_;
  std::vector<A> parameters_;  ///< of a bf16 weight: its values, then its gradient
};

class CpuGatedNorms final : public GatedNorms {
 public:
  explicit CpuGatedNorms(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<GatedNormKernel> prepare(const GatedNormSpec& spec) override {
    device_ssd::check_gated_norm(spec);
    return with_storage(spec.dtype, device_ssd::kGatedNorm,
                        [&](auto tag) -> std::unique_ptr<GatedNormKernel> {
                          return std::make_unique<CpuGatedNorm<typename decltype(tag)::type>>(kernels_, spec);
                        });
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<GatedNorms> make_gated_norms(const Kernels& kernels) {
  return std::make_unique<CpuGatedNorms>(kernels);
}

}  // namespace tenon::cpu
