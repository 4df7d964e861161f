// Optimizer `rowwise_adagrad` (Naumov et al., arXiv 1906.00091), for models whose memory is mostly tables.
// For each row of a table that a batch read, with g the sum of its gradients and d the width:
//   m <- m + (g_1^2 + ... + g_d^2) / d          w <- w - lr g / (sqrt(m) + eps)
// Before the first gradient m = initial_accumulator. Dense parameters follow Adagrad, one m per element.
// The rules are RowwiseAdagradRule and AdagradRule of <tenon/sdk/update_rules.hpp>; the device evaluates the
// latter, and the former for rows in its own memory. Loops over host memory update other rows.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/kernels/table_rows.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <array>
#include <string>

namespace tenon::rowwise_adagrad {

class RowwiseAdagrad final : public OptimizerBase, public RowOptimizer, private IdentitiesOf<RowwiseAdagrad> {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate before the schedule"),
      option::real("eps", "1e-10").at_least(0).doc_text("added to the root of the sum of squares"),
      option::real("initial_accumulator", "0")
          .at_least(0)
          .doc_text("sum of squares of a row, or a weight, before its first gradient"),
  };
  static constexpr ComponentInfo kInfo{.id = "rowwise_adagrad",
                                       .summary = "Adagrad with one accumulator per row of a table",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "beside an accumulator that no gradient moves, a step is lr / sqrt(accumulator) times the "
              "gradient",
       .options = "lr = 1e6\ninitial_accumulator = 1e16",
       .other = "type = 'sgd'\nlr = 0.01",
       .given = "precision.type = 'fp64'\nschedule.type = 'constant'\nsync.type = 'ddp'",
       .within = 1e-9},
  };

  explicit RowwiseAdagrad(const Options& options);
  std::span<const StateSlot> slots() const override;
  void step(const UpdateContext& context, const ParameterSlice& slice) override;
  void* query(std::string_view interface_id) override;

  std::span<const RowStateSlot> row_slots() const override;
  void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient) override;

 private:
  double eps_, initial_;
};

namespace {

constexpr StateSlot kSlots[] = {{"sum"}};
constexpr RowStateSlot kRowSlots[] = {{"sum", 1}};
/// Calls visit(T{}) for f32 and f64.
template <typename Visit>
void with_real(DType dtype, Visit visit) {
  if (dtype == DType::kF32) return visit(float{});
  if (dtype == DType::kF64) return visit(double{});
  fail_run("optimizer rowwise_adagrad updates f32 and f64, found " + std::string(dtype_name(dtype)));
}

/// grad, w: [rows, width]; sum: [rows], at most kRowBlock.
template <class T>
void update_block(const T* constants, T scale, const T* __restrict grad, T* __restrict w, T* sum,
                  std::int64_t rows, std::int64_t width) {
  std::array<T, kRowBlock> rates;
  for (std::int64_t row = 0; row < rows; ++row)
    rates[row] = kernels::sum_of_squares(grad + row * width, scale, width) / static_cast<T>(width);
  T* const tensors[] = {sum, rates.data()};
  update_elements<RowwiseAdagradRule>(tensors, constants, rows, nullptr);
  for (std::int64_t row = 0; row < rows; ++row, grad += width, w += width) {
    const T rate = rates[row];
    for (std::int64_t i = 0; i < width; ++i) w[i] -= rate * (scale * grad[i]);
  }
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
  if (interface_id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
  return interface_id == RowOptimizer::kId ? static_cast<RowOptimizer*>(this) : nullptr;
}

void RowwiseAdagrad::step(const UpdateContext& context, const ParameterSlice& slice) {
  with_real(slice.weights.dtype, [&](auto) {
    const AdagradRule rule{
        .grad_scale = context.gradient_scale, .lr = context.lr, .eps = eps_, .initial = initial_};
    update_slice(*context.device, slice, rule);
  });
}

void RowwiseAdagrad::step_rows(const UpdateContext& context, RowTable& weights,
                               std::span<RowTable* const> state, const RowGradient& gradient) {
  Formula formula;
  RowwiseAdagradRule{.lr = context.lr, .eps = eps_, .initial = initial_}.write(formula);
  FormulaOps* const formulas = formulas_of(*context.device);
  const auto there = [&](const DeviceRowBlock& block) {
    auto& rows = context.device->family<TableRowOps>();
    rows.mean_squares(block.gradients, context.gradient_scale, block.numbers);
    const std::array<TensorView, RowwiseAdagradRule::kTensors> tensors{block.state[0], block.numbers};
    formulas->evaluate(formula, tensors, {});
    rows.subtract_scaled(block.weights, block.gradients, context.gradient_scale, block.numbers);
  };
  if (formulas != nullptr && for_each_device_block(*context.device, weights, state, gradient, there)) return;
  with_real(weights.dtype(), [&](auto zero) {
    using T = decltype(zero);
    const auto constants = rounded_constants<T>(formula);
    for_each_row_block(weights, state, gradient, [&](const RowBlock& block) {
      update_block(constants.data(), static_cast<T>(context.gradient_scale), block.gradients.as<T>(),
                   block.weights.as<T>(), block.state[0].as<T>(), block.weights.shape[0],
                   block.weights.shape[1]);
    });
  });
}

}  // namespace tenon::rowwise_adagrad

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.rowwise_adagrad",
                               .version = "0.1.0",
                               .summary = "Adagrad with one accumulator per row of a table"},
             tenon::rowwise_adagrad::RowwiseAdagrad)
