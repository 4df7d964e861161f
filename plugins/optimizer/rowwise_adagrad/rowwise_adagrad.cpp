// Optimizer `rowwise_adagrad` (Naumov et al., arXiv 1906.00091), for models whose memory is mostly tables.
// For each row of a table that a batch read, with g the sum of its gradients and d the width:
//   m <- m + (g_1^2 + ... + g_d^2) / d          w <- w - lr g / (sqrt(m) + eps)
// Before the first gradient m = initial_accumulator. Dense parameters follow Adagrad, one m per element.
// The update is a loop over host memory; dense weights on a device whose memory the host cannot access are
// updated by a formula.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/kernels/adagrad.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/row_update.hpp>

#include <string>

namespace tenon::rowwise_adagrad {

class RowwiseAdagrad final : public OptimizerBase, public RowOptimizer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("eps", "1e-10").at_least(0).doc_text("added to the root of the sum of squares"),
      option::real("initial_accumulator", "0")
          .at_least(0)
          .doc_text("sum of squares of a row, or a weight, before its first gradient"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "rowwise_adagrad",
      .summary = "Adagrad with one accumulator per row of a table",
      .options = kOptions,
      .capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC | TENON_CAP_HOGWILD};

  explicit RowwiseAdagrad(const Options& options);
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;

 private:
  kernels::AdagradCoefficients<double> coefficients(const UpdateContext& context) const;

  double eps_, initial_;
};

namespace {

constexpr StateSlot kSlots[] = {{"sum"}};
constexpr RowStateSlot kRowSlots[] = {{"sum", 1}};
constexpr std::int64_t kBlock = 16384;

/// Calls visit(T{}) for f32 and f64.
template <typename Visit>
void with_real(DType dtype, Visit visit) {
  if (dtype == DType::kF32) return visit(float{});
  if (dtype == DType::kF64) return visit(double{});
  fail_run("optimizer rowwise_adagrad updates f32 and f64, found " + std::string(dtype_name(dtype)));
}

void update(FormulaOps& formulas, const ParameterSlice& slice,
            const kernels::AdagradCoefficients<double>& c) {
  Formula f;
  kernels::adagrad_formula(c, f);
  const TensorView tensors[] = {slice.weights, slice.gradients, slice.state[0]};
  formulas.evaluate(f, tensors, {});
}

}  // namespace

RowwiseAdagrad::RowwiseAdagrad(const Options& options)
    : OptimizerBase(options), eps_(options.real("eps")), initial_(options.real("initial_accumulator")) {
  if (initial_ == 0 && eps_ == 0) {
    fail_config(
        "optimizer rowwise_adagrad: eps = 0 needs initial_accumulator above 0; a row whose gradient is zero "
        "would become 0 / 0");
  }
}

std::span<const StateSlot> RowwiseAdagrad::slots() const {
  return kSlots;
}

std::span<const RowStateSlot> RowwiseAdagrad::row_slots() const {
  return kRowSlots;
}

void* RowwiseAdagrad::query(std::string_view interface_id) {
  return interface_id == RowOptimizer::kId ? static_cast<RowOptimizer*>(this) : nullptr;
}

kernels::AdagradCoefficients<double> RowwiseAdagrad::coefficients(const UpdateContext& context) const {
  return {.grad_scale = context.gradient_scale, .lr = context.lr, .eps = eps_, .initial = initial_};
}

void RowwiseAdagrad::step(const UpdateContext& context, const ParameterSlice& slice) {
  with_real(slice.weights.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (FormulaOps* const formulas = formulas_of(*context.device))
      return update(*formulas, slice, coefficients(context));
    const auto c = kernels::rounded<T>(coefficients(context));
    update_on_host(*context.device, slice, [&](const ParameterSlice& here) {
      parallel_for(here.weights.elements(), kBlock, [&](std::int64_t begin, std::int64_t end) {
        kernels::adagrad(c, here.gradients.as<T>() + begin, here.weights.as<T>() + begin,
                         here.state[0].as<T>() + begin, end - begin);
      });
    });
  });
}

void RowwiseAdagrad::step_rows(const UpdateContext& context, RowTable& weights,
                               std::span<RowTable* const> state, const RowGradient& gradient) {
  with_real(weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto c = kernels::rounded<T>(coefficients(context));
    for_each_row_block(weights, state, gradient, [&](const RowBlock& block) {
      kernels::rowwise_adagrad(c, block.gradients.as<T>(), block.weights.as<T>(), block.state[0].as<T>(),
                               block.weights.shape[0], block.weights.shape[1]);
    });
  });
}

}  // namespace tenon::rowwise_adagrad

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.rowwise_adagrad",
                               .version = "0.1.0",
                               .summary = "Adagrad with one accumulator per row of a table"},
             tenon::rowwise_adagrad::RowwiseAdagrad)
