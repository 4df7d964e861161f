// Mixtures of representations (family MorOps): the device measures and rounds, and the host decides about the
// tensor with the totals that it reads back.
#include "common.hpp"
#include "device_common/quantized.hpp"

#include <tenon/kernels/cuda/mor.hpp>

#include <algorithm>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;
using device_arguments::check_scratch;

template <class S>
class CudaMorKernel final : public MorKernel {
 public:
  CudaMorKernel(Queue& queue, const MorSpec& spec) : queue_(queue), spec_(spec), matrix_{} {
    matrix_.rows = spec.rows, matrix_.columns = spec.columns;
    matrix_.block_rows = spec.block_rows > 0 ? spec.block_rows : std::max<std::int64_t>(spec.rows, 1);
    matrix_.block_columns =
        spec.block_columns > 0 ? spec.block_columns : std::max<std::int64_t>(spec.columns, 1);
  }

  std::size_t scratch_bytes() const override { return float_sums_at() + float_sums() * sizeof(float); }
  std::int64_t blocks() const override { return matrix_.down() * matrix_.across(); }

  MorDecision run(TensorView x, TensorView values, TensorView choices, TensorView scratch) override {
    const std::int64_t n = spec_.rows * spec_.columns;
    bodies::MorMatrix<S> m = matrix_;
    m.x = checked<S>(x, n, kWhere, "x");
    Bf16* const out = checked<Bf16>(values, n, kWhere, "values");
    auto* const chosen = checked_or_null<std::uint8_t>(choices, blocks(), kWhere, "choices");
    MorDecision decision;
    if (n == 0) {
      if (spec_.mode == MorMode::kTensor) decision.tensor = MorChoice::kE4M3;
      return decision;
    }
    check_scratch(scratch, scratch_bytes(), kWhere);
    auto* const memory = static_cast<std::byte*>(scratch.data);
    m.totals = reinterpret_cast<bodies::MorTotals*>(memory);
    m.blocks = reinterpret_cast<bodies::MorBlock*>(memory + blocks_at());
    m.errors = reinterpret_cast<double*>(memory + errors_at());
    m.sums = reinterpret_cast<float*>(memory + float_sums_at());
    const auto launch = [this](const Grid& grid, const auto& body) { queue_.launch(kWhere, grid, body); };
    const bodies::MorRules rules = {static_cast<kernels::MorStrategy>(spec_.strategy),
                                    static_cast<kernels::MorMode>(spec_.mode), spec_.e2m3};
    bodies::start_mor(m, rules, out, chosen, launch);

    const bodies::MorTotals totals = queue_.read(m.totals);
    decision.amax = std::bit_cast<float>(totals.largest);
    decision.finite = totals.largest < kernels::kInfinityBits;
    decision.non_zero = totals.non_zero;
    if (decision.finite && totals.non_zero > 0)
      decision.error = totals.error / static_cast<double>(totals.non_zero);
    const bool tensor = spec_.mode == MorMode::kTensor;
    if (!decision.finite || (tensor && decision.error > spec_.threshold)) {
      bodies::start_mor_keep(m, out, launch);
      if (chosen != nullptr) queue_.clear(chosen, blocks());
      decision.blocks[0] = blocks();
      decision.elements[0] = n;
      return decision;
    }
    if (tensor) decision.tensor = MorChoice::kE4M3;
    std::copy_n(totals.blocks, 4, decision.blocks);
    std::copy_n(totals.elements, 4, decision.elements);
    return decision;
  }

 private:
  static constexpr const char* kWhere = "mor";
  static_assert(static_cast<int>(MorChoice::kKeep) == 0, "choices are cleared to it");

  static std::size_t rounded(std::size_t bytes) { return (bytes + 63) / 64 * 64; }
  std::size_t blocks_at() const { return rounded(sizeof(bodies::MorTotals)); }
  std::size_t errors_at() const { return rounded(blocks_at() + blocks() * sizeof(bodies::MorBlock)); }
  std::size_t float_sums_at() const {
    return rounded(errors_at() + (matrix_.strips() * matrix_.across()) * sizeof(double));
  }
  std::size_t float_sums() const { return matrix_.strips() * matrix_.columns; }

  Queue& queue_;
  const MorSpec spec_;
  bodies::MorMatrix<S> matrix_;  ///< without pointers
};

class CudaMorOps final : public MorOps {
 public:
  explicit CudaMorOps(Queue& queue) : queue_(queue) {}
  std::unique_ptr<MorKernel> prepare(const MorSpec& spec) override {
    check_mor_spec(spec);
    if (spec.input == DType::kBF16) return std::make_unique<CudaMorKernel<Bf16>>(queue_, spec);
    return std::make_unique<CudaMorKernel<float>>(queue_, spec);
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<MorOps> make_mor_ops(Queue& queue) {
  return std::make_unique<CudaMorOps>(queue);
}

}  // namespace tenon::cuda
