// Formulas over flat tensors (family FormulaOps). Known rules without sums are kernels that were compiled
// from their text, whose values are in registers; other formulas are interpreted by one kernel. Both give the
// same bits. The host adds the sums of the device's blocks.
#include "common.hpp"
#include "device_common/formulas.hpp"

#include <tenon/kernels/cuda/formula.hpp>
#include <tenon/kernels/reduce.hpp>
#include <tenon/sdk/update_rule.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace tenon::cuda {

namespace bodies = kernels::cuda;

/// A rule of <tenon/sdk/update_rules.hpp>, one element per thread.
template <class T, class Rule>
struct EvaluateRule {
  T* tensors[Rule::kTensors];
  T constants[Formula::kMostConstants];
  std::int64_t n;

  TENON_BOTH void operator()(const bodies::Block& block) const {
    const EvaluateRule& r = *this;
    bodies::for_each_element(block, n, [&](std::int64_t i) {
      FormulaElement<T> element(r.tensors, r.constants, i, nullptr);
      Rule{}.write(element);
    });
  }
};

namespace {

static_assert(static_cast<int>(bodies::StepOp::kLoad) == static_cast<int>(FormulaOp::kLoad) &&
              static_cast<int>(bodies::StepOp::kLess) == static_cast<int>(FormulaOp::kLess) &&
              static_cast<int>(bodies::StepOp::kSum) == static_cast<int>(FormulaOp::kSum));

/// Arguments of a formula after their checks.
template <class T>
struct Arguments {
  std::array<T*, Formula::kMostTensors> tensors{};
  std::array<T, Formula::kMostConstants> constants{};
  std::int64_t n = 0;
};

/// Launches the kernel of a rule; null for rules with sums, whose order is that of the interpreter.
template <class T>
using LaunchRule = void (*)(Queue& queue, const Arguments<T>& arguments);

template <class T, class Rule>
void launch_rule(Queue& queue, const Arguments<T>& arguments) {
  EvaluateRule<T, Rule> body{};
  std::copy_n(arguments.tensors.begin(), Rule::kTensors, body.tensors);
  std::copy(arguments.constants.begin(), arguments.constants.end(), body.constants);
  body.n = arguments.n;
  queue.launch("formula", grid_for(body.n), body);
}

template <class T, class Rule>
constexpr LaunchRule<T> launch_of() {
  if constexpr (Rule::kSums == 0) {
    return launch_rule<T, Rule>;
  } else {
    return nullptr;
  }
}

template <class T, class... Rules>
constexpr std::array<LaunchRule<T>, sizeof...(Rules)> launches_of(RuleList<Rules...>) {
  return {launch_of<T, Rules>()...};
}

class CudaFormulaOps final : public FormulaOps {
 public:
  explicit CudaFormulaOps(Queue& queue) : queue_(queue) {}

  void evaluate(const Formula& formula, std::span<const TensorView> tensors,
                std::span<double> sums) override {
    device_arguments::check_formula(formula, tensors, sums);
    std::fill(sums.begin(), sums.end(), 0.0);
    with_arithmetic(tensors[0].dtype, kWhere, [&](auto tag) {
      using T = typename decltype(tag)::type;
      Arguments<T> arguments{
          .tensors = {}, .constants = rounded_constants<T>(formula), .n = tensors[0].elements()};
      for (std::size_t i = 0; i < tensors.size(); ++i)
        arguments.tensors[i] = checked<T>(tensors[i], arguments.n, kWhere, "a tensor");
      if (arguments.n == 0) return;
      static constexpr auto kLaunches = launches_of<T>(UpdateRules{});
      const std::size_t rule = rules_.find(formula);
      if (rule != rules_.kNone && kLaunches[rule] != nullptr) return kLaunches[rule](queue_, arguments);
      interpret(formula, arguments, sums);
    });
  }

 private:
  static constexpr const char* kWhere = "formula";

  template <class T>
  void interpret(const Formula& formula, const Arguments<T>& arguments, std::span<double> sums) {
    using Body = bodies::EvaluateFormula<T>;
    static_assert(Body::kMostSteps == Formula::kMostSteps && Body::kMostTensors == Formula::kMostTensors &&
                  Body::kMostConstants == Formula::kMostConstants);
    Body body{};
    body.n = arguments.n;
    std::copy(arguments.tensors.begin(), arguments.tensors.end(), body.tensors);
    std::copy(arguments.constants.begin(), arguments.constants.end(), body.constants);
    for (const FormulaStep& step : formula.steps())
      body.steps[body.step_count++] = {static_cast<bodies::StepOp>(step.op), step.to, step.a, step.b, step.c};
    body.constant_count = static_cast<int>(formula.constants().size());
    body.value_count = static_cast<int>(formula.values());
    body.sum_count = static_cast<int>(sums.size());
    body.partial = queue_.scratch<double>();
    const bodies::Grid grid = body.mesh();
    queue_.launch(kWhere, grid, body);
    join(static_cast<std::size_t>(grid.blocks), sums);
  }

  void join(std::size_t blocks, std::span<double> sums) {
    if (sums.empty()) return;
    found_.resize(blocks * sums.size());
    queue_.copy(queue_.scratch<double>(), MemorySpace::kCuda, found_.data(), MemorySpace::kHost,
                found_.size() * sizeof(double));
    for (std::size_t i = 0; i < sums.size(); ++i)
      sums[i] = kernels::pairwise_sum(found_.data() + i * blocks, static_cast<std::int64_t>(blocks));
  }

  Queue& queue_;
  device_arguments::RecordedRules<UpdateRules> rules_;
  std::vector<double> found_;
};

}  // namespace

std::unique_ptr<FormulaOps> make_formula_ops(Queue& queue) {
  return std::make_unique<CudaFormulaOps>(queue);
}

}  // namespace tenon::cuda
