// The rule of lion.hpp over flat memory, split into fixed blocks so that no number of threads changes a bit.
#include "lion.hpp"

#include <tenon/ops/formula.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/row_update.hpp>

#include <string>

namespace lion {
namespace {

using tenon::DType;
using tenon::TensorView;

constexpr tenon::StateSlot kSlots[] = {{"exp_avg"}};
constexpr tenon::RowStateSlot kRowSlots[] = {{"exp_avg", 0}};
constexpr std::int64_t kBlock = 16384;  // elements: three arrays of f32 stay within an L2 cache

struct Settings {
  double lr, beta1, beta2, decay, gradient_scale;
};

// [step]
template <typename T>
void update(TensorView weights, TensorView gradients, TensorView momentum, const Settings& settings) {
  T* const w = weights.as<T>();
  T* const m = momentum.as<T>();
  const T* const g = gradients.as<T>();
  const auto lr = static_cast<T>(settings.lr), decay = static_cast<T>(settings.decay);
  const auto beta1 = static_cast<T>(settings.beta1), beta2 = static_cast<T>(settings.beta2);
  const auto scale = static_cast<T>(settings.gradient_scale);
  tenon::parallel_for(weights.elements(), kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] * scale;
      const T direction = beta1 * m[i] + (1 - beta1) * gradient;
      const T sign = static_cast<T>(direction > 0) - static_cast<T>(direction < 0);
      w[i] -= lr * (sign + decay * w[i]);
      m[i] = beta2 * m[i] + (1 - beta2) * gradient;
    }
  });
}
// [/step]

void update(TensorView weights, TensorView gradients, TensorView momentum, const Settings& settings) {
  if (weights.dtype == DType::kF32) return update<float>(weights, gradients, momentum, settings);
  if (weights.dtype == DType::kF64) return update<double>(weights, gradients, momentum, settings);
  tenon::fail_config("optimizer lion: updates weights of f32 and f64, found " +
                     std::string(tenon::dtype_name(weights.dtype)) +
                     "; choose a precision whose master weights are one of these");
}

}  // namespace

// [construct]
Lion::Lion(const tenon::Options& options)
    : OptimizerBase(options),
      beta1_(options.reals("betas")[0]),
      beta2_(options.reals("betas")[1]),
      decay_(options.real("weight_decay")) {}
// [/construct]

std::span<const tenon::StateSlot> Lion::slots() const {
  return kSlots;
}

std::span<const tenon::RowStateSlot> Lion::row_slots() const {
  return kRowSlots;
}

// [query]
void* Lion::query(std::string_view interface_id) {
  if (interface_id == RowOptimizer::kId) return static_cast<RowOptimizer*>(this);
  if (interface_id == tenon::ComponentIdentities::kId) return static_cast<tenon::ComponentIdentities*>(this);
  return interface_id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
}
// [/query]

void Lion::bind(const tenon::OptimizerSetup& setup) {
  undecayed_.assign(setup.parameters.size(), false);
  for (const tenon::ParameterInfo& info : setup.parameters) undecayed_[info.index] = !info.spec.decay;
}

void Lion::step(const tenon::UpdateContext& context, const tenon::ParameterSlice& slice) {
  // The rule reads host memory; the slice of a device with memory of its own is copied there and back.
  tenon::update_on_host(*context.device, slice, [&](const tenon::ParameterSlice& here) {
    update(here.weights, here.gradients, here.state[0],
           {context.lr, beta1_, beta2_, here.decay ? decay_ : 0.0, context.gradient_scale});
  });
}

void Lion::step_rows(const tenon::UpdateContext& context, tenon::RowTable& weights,
                     std::span<tenon::RowTable* const> state, const tenon::RowGradient& gradient) {
  const std::size_t index = gradient.parameter;
  const bool decay = index >= undecayed_.size() || !undecayed_[index];
  const Settings settings{context.lr, beta1_, beta2_, decay ? decay_ : 0.0, context.gradient_scale};
  tenon::for_each_row_block(weights, state, gradient, [&](const tenon::RowBlock& block) {
    update(block.weights, block.gradients, block.state[0], settings);
  });
}

}  // namespace lion

// [plugin]
TENON_PLUGIN(tenon::PluginInfo{.id = "example.lion",
                               .version = "0.1.0",
                               .summary = "Lion optimizer",
                               .vendor = "Tenon contributors",
                               .licence = "Apache-2.0"},
             lion::Lion)
// [/plugin]
