// Optimizer `adagrad`: one loop over host memory. The formula stands in the header.
#include "adagrad.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <cmath>
#include <string>

namespace tenon::adagrad {
namespace {

constexpr StateSlot kSlots[] = {{"sum"}};
constexpr std::int64_t kBlock = 16384;

struct Step {
  double lr, decay, eps, gradient_scale, initial;
  bool first;
};

template <typename T>
void update(const ParameterSlice& slice, const Step& step) {
  T* const w = slice.weights.as<T>();
  const T* const g = slice.gradients.as<T>();
  T* const sum = slice.state[0].as<T>();
  const T lr = static_cast<T>(step.lr), decay = static_cast<T>(step.decay), eps = static_cast<T>(step.eps);
  const T scale = static_cast<T>(step.gradient_scale), initial = static_cast<T>(step.initial);
  parallel_for(slice.weights.elements(), kBlock, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = g[i] * scale + decay * w[i];
      sum[i] = (step.first ? initial : sum[i]) + gradient * gradient;
      w[i] -= lr * (gradient / (std::sqrt(sum[i]) + eps));
    }
  });
}

}  // namespace

Adagrad::Adagrad(const Options& options)
    : OptimizerBase(options),
      lr_decay_(options.real("lr_decay")),
      initial_(options.real("initial_accumulator")),
      eps_(options.real("eps")),
      decay_(options.real("weight_decay")) {
  if (initial_ == 0 && eps_ == 0) {
    fail_config(
        "optimizer adagrad: eps = 0 needs initial_accumulator above 0; a weight whose gradient is zero would "
        "become 0 / 0");
  }
}

std::span<const StateSlot> Adagrad::slots() const {
  return kSlots;
}

void Adagrad::step(const UpdateContext& context, const ParameterSlice& slice) {
  const Step step{.lr = context.lr / (1 + static_cast<double>(context.count - 1) * lr_decay_),
                  .decay = slice.decay ? decay_ : 0.0,
                  .eps = eps_,
                  .gradient_scale = context.gradient_scale,
                  .initial = initial_,
                  .first = context.count == 1};
  if (slice.weights.dtype == DType::kF32) return update<float>(slice, step);
  if (slice.weights.dtype == DType::kF64) return update<double>(slice, step);
  fail_run("optimizer adagrad updates f32 and f64, found " + std::string(dtype_name(slice.weights.dtype)));
}

}  // namespace tenon::adagrad
