// Kernel body that evaluates a formula: steps over values of an element, read from tensors and written to
// them, with optional sums. All threads execute the same step at a time, so only choices diverge, and every
// tensor is read and written in order, once.
#pragma once

#include <cmath>
#include <tenon/kernels/cuda/launch.hpp>

namespace tenon::kernels::cuda {

enum class StepOp : std::uint8_t {
  kLoad,
  kStore,
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRoot,
  kLess,
  kSelect,
  kSum
};

/// a, b and c number values: constants from 0, those of steps from kMostConstants. `to` numbers a value, of
/// kStore a tensor, of kSum a sum; a of kLoad numbers a tensor.
struct Step {
  StepOp op;
  std::uint8_t to, a, b, c;
};

/// Sums are those of blocks, [sum][block]: a thread adds its elements ascending, threads are joined by
/// halves.
template <class T>
struct EvaluateFormula {
  static constexpr int kMostSteps = 64, kMostConstants = 16, kMostTensors = 8;
  /// Elements of a block where there are few: enough for a tree of sums to be worth its barriers.
  static constexpr std::int64_t kPerBlock = 2048;

  Step steps[kMostSteps];
  T constants[kMostConstants];
  T* tensors[kMostTensors];
  std::int64_t n;
  double* partial;
  int step_count, constant_count, value_count, sum_count;

  /// Depends on n alone, and so does the order of sums.
  static std::int64_t blocks(std::int64_t n) {
    return grid_for((n * kThreads + kPerBlock - 1) / kPerBlock).blocks;
  }
  Grid mesh() const { return grid(blocks(n), kThreads); }
  /// The values of a thread are in shared memory, side by side with those of its neighbours, since registers
  /// cannot be indexed. Sums come first, as they need the strictest alignment.
  Grid grid(std::int64_t blocks, int threads) const {
    const std::size_t width = threads;
    return {blocks, threads,
            width * sum_count * sizeof(double) +
                (kMostConstants + width * static_cast<std::size_t>(value_count)) * sizeof(T)};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const EvaluateFormula& f = *this;
    const int threads = block.threads();
    double* const sums = block.shared<double>();
    T* const values = block.shared<T>((f.sum_count * threads) * sizeof(double));
    block.each([&](int thread) {
      for (int k = thread; k < f.constant_count; k += threads) values[k] = f.constants[k];
      for (int s = 0; s < f.sum_count; ++s) sums[s * threads + thread] = 0;
    });
    block.each([&](int thread) {
      const auto at = [&](std::uint8_t number) -> T& {
        return values[number < kMostConstants
                          ? number
                          : kMostConstants + (number - kMostConstants) * threads + thread];
      };
      const std::int64_t stride = block.blocks() * threads;
      for (std::int64_t i = block.index() * threads + thread; i < f.n; i += stride) {
        for (int k = 0; k < f.step_count; ++k) {
          const Step& step = f.steps[k];
          switch (step.op) {
            case StepOp::kLoad:
              at(step.to) = f.tensors[step.a][i];
              break;
            case StepOp::kStore:
              f.tensors[step.to][i] = at(step.a);
              break;
            case StepOp::kAdd:
              at(step.to) = at(step.a) + at(step.b);
              break;
            case StepOp::kSubtract:
              at(step.to) = at(step.a) - at(step.b);
              break;
            case StepOp::kMultiply:
              at(step.to) = at(step.a) * at(step.b);
              break;
            case StepOp::kDivide:
              at(step.to) = at(step.a) / at(step.b);
              break;
            case StepOp::kRoot:
              at(step.to) = std::sqrt(at(step.a));
              break;
            case StepOp::kLess:
              at(step.to) = at(step.a) < at(step.b) ? T{1} : T{0};
              break;
            case StepOp::kSelect:
              at(step.to) = at(step.a) != 0 ? at(step.b) : at(step.c);
              break;
            case StepOp::kSum:
              sums[step.to * threads + thread] +=
                  static_cast<double>(at(step.a)) * static_cast<double>(at(step.b));
              break;
          }
        }
      }
    });
    for (int s = 0; s < f.sum_count; ++s) reduce_block(block, sums + s * threads, Add{});
    block.each([&](int thread) {
      if (thread < f.sum_count) f.partial[thread * block.blocks() + block.index()] = sums[thread * threads];
    });
  }
};

}  // namespace tenon::kernels::cuda
