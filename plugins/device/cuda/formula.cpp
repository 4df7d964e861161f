// Formulas over flat tensors (family FormulaOps). The host adds the results of the device's blocks.
#include "common.hpp"

#include <tenon/kernels/cuda/formula.hpp>
#include <tenon/kernels/reduce.hpp>

#include <algorithm>
#include <vector>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

static_assert(static_cast<int>(bodies::StepOp::kLoad) == static_cast<int>(FormulaOp::kLoad) &&
              static_cast<int>(bodies::StepOp::kLess) == static_cast<int>(FormulaOp::kLess) &&
              static_cast<int>(bodies::StepOp::kSum) == static_cast<int>(FormulaOp::kSum));

class CudaFormulaOps final : public FormulaOps {
 public:
  explicit CudaFormulaOps(Queue& queue) : queue_(queue) {}

  void evaluate(const Formula& formula, std::span<const TensorView> tensors,
                std::span<double> sums) override {
    constexpr const char* kWhere = "formula";
    const std::size_t wanted = formula.tensors();
    if (tensors.size() != wanted || sums.size() != formula.sums() || wanted == 0) {
      fail_run("device " + std::string(kDeviceName) + ": a formula of " + std::to_string(wanted) +
               " tensors and " + std::to_string(formula.sums()) + " sums was given " +
               std::to_string(tensors.size()) + " and " + std::to_string(sums.size()));
    }
    std::fill(sums.begin(), sums.end(), 0.0);
    with_arithmetic(tensors[0].dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      using Body = bodies::EvaluateFormula<T>;
      static_assert(Body::kMostSteps == Formula::kMostSteps && Body::kMostTensors == Formula::kMostTensors &&
                    Body::kMostConstants == Formula::kMostConstants);
      Body body{};
      body.n = tensors[0].elements();
      for (std::size_t i = 0; i < tensors.size(); ++i)
        body.tensors[i] = checked<T>(tensors[i], body.n, kWhere, "a tensor");
      if (body.n == 0) return;
      for (const FormulaStep& step : formula.steps())
        body.steps[body.step_count++] = {static_cast<bodies::StepOp>(step.op), step.to, step.a, step.b,
                                         step.c};
      for (const double constant : formula.constants())
        body.constants[body.constant_count++] = static_cast<T>(constant);
      body.value_count = static_cast<int>(formula.values());
      body.sum_count = static_cast<int>(sums.size());
      body.partial = queue_.scratch<double>();
      const bodies::Grid grid = body.mesh();
      queue_.launch(kWhere, grid, body);
      join(static_cast<std::size_t>(grid.blocks), sums);
    });
  }

 private:
  void join(std::size_t blocks, std::span<double> sums) {
    if (sums.empty()) return;
    found_.resize(blocks * sums.size());
    queue_.copy(queue_.scratch<double>(), MemorySpace::kCuda, found_.data(), MemorySpace::kHost,
                found_.size() * sizeof(double));
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = kernels::pairwise_sum(found_.data() + i * blocks, static_cast<std::int64_t>(blocks));
  }

  Queue& queue_;
  std::vector<double> found_;
};

}  // namespace

std::unique_ptr<FormulaOps> make_formula_ops(Queue& queue) {
  return std::make_unique<CudaFormulaOps>(queue);
}

}  // namespace tenon::cuda
