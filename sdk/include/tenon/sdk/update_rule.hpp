// Rules of optimizers that are written once and evaluated everywhere. A rule is a type like those of
// <tenon/sdk/update_rules.hpp>:
//   static constexpr int kTensors, kSums;                      tensors: weights, gradients, then state
//   template <class F> constexpr void write(F& f) const;       the rule, one element at a time
// A device with formulas evaluates what write() records in a Formula. Elsewhere write() itself is compiled
// into a loop over host memory, with the same bits.
#pragma once

#include <tenon/error.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/row_update.hpp>

#include <math.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// One element of a formula, with the operators of Formula, computed at once. Constants are those that a
/// Formula recorded, in the order in which write() asks for them; the numbers given here are ignored, so a
/// rule without values serves. A rule must therefore ask for its constants in declarations of their own, not
/// inside expressions, whose order is the compiler's. Tag: a type of the source that includes this, where the
/// code must not be shared with other sources.
template <class T, class Tag = void>
class FormulaElement {
 public:
  class Value {
   public:
    friend constexpr Value operator+(Value a, Value b) { return Value(a.number_ + b.number_); }
    friend constexpr Value operator-(Value a, Value b) { return Value(a.number_ - b.number_); }
    friend constexpr Value operator*(Value a, Value b) { return Value(a.number_ * b.number_); }
    friend constexpr Value operator/(Value a, Value b) { return Value(a.number_ / b.number_); }
    friend constexpr Value sqrt(Value a) {
      if constexpr (sizeof(T) == sizeof(float)) {
        return Value(::sqrtf(a.number_));
      } else {
        return Value(::sqrt(a.number_));
      }
    }
    friend constexpr Value less(Value a, Value b) { return Value(a.number_ < b.number_ ? T{1} : T{0}); }
    friend constexpr Value select(Value which, Value a, Value b) {
      return Value(which.number_ != 0 ? a.number_ : b.number_);
    }

   private:
    friend class FormulaElement;
    explicit constexpr Value(T number) : number_(number) {}
    T number_;
  };

  constexpr FormulaElement(T* const* tensors, const T* constants, std::int64_t at, double* sums)
      : tensors_(tensors), constants_(constants), at_(at), sums_(sums) {}

  constexpr Value load(int tensor) const { return Value(tensors_[tensor][at_]); }
  constexpr void store(int tensor, Value value) const { tensors_[tensor][at_] = value.number_; }
  constexpr Value constant(double) { return Value(constants_[next_++]); }
  constexpr void sum(std::size_t which, Value a, Value b) const {
    sums_[which] += static_cast<double>(a.number_) * static_cast<double>(b.number_);
  }

 private:
  T* const* tensors_;
  const T* constants_;
  std::int64_t at_;
  double* sums_;
  int next_ = 0;
};

/// Evaluates a rule for n elements in ascending order and adds to its sums. No two tensors overlap.
template <class Rule, class T, class Tag = void>
void update_elements(T* const* tensors, const T* constants, std::int64_t n, double* sums) {
  // Copies that no store of the loop can change.
  T* tensor[Rule::kTensors];
  T constant[Formula::kMostConstants];
  double sum[Formula::kMostSums] = {};
  for (int i = 0; i < Rule::kTensors; ++i) tensor[i] = tensors[i];
  for (std::size_t i = 0; i < Formula::kMostConstants; ++i) constant[i] = constants[i];
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < n; ++i) {
    FormulaElement<T, Tag> element(tensor, constant, i, sum);
    Rule{}.write(element);
  }
  for (int i = 0; i < Rule::kSums; ++i) sums[i] += sum[i];
}

/// Constants of a formula as a device uses them, in the dtype of the tensors.
template <class T>
std::array<T, Formula::kMostConstants> rounded_constants(const Formula& formula) {
  std::array<T, Formula::kMostConstants> constants{};
  std::transform(formula.constants().begin(), formula.constants().end(), constants.begin(),
                 [](double constant) { return static_cast<T>(constant); });
  return constants;
}

/// Elements of a block: of loops without sums, and of those with, whose blocks are summed one by one.
inline constexpr std::int64_t kUpdateBlock = 16384, kUpdateSumBlock = 4096;

/// Calls body(begin, end, sums) for blocks of n elements, on several threads. Sums of blocks are added in
/// their order, so that they do not depend on the number of threads.
template <class Body>
void for_update_blocks(std::int64_t n, std::span<double> sums, Body&& body) {
  if (sums.empty()) {
    return parallel_for(n, kUpdateBlock,
                        [&](std::int64_t begin, std::int64_t end) { body(begin, end, nullptr); });
  }
  const std::size_t count = sums.size(), blocks = (n + kUpdateSumBlock - 1) / kUpdateSumBlock;
  static thread_local std::vector<double> of_blocks;  // kept: a steady step must not allocate
  if (of_blocks.size() < blocks * count) of_blocks.resize(blocks * count);
  double* const partial = of_blocks.data();
  std::fill_n(partial, blocks * count, 0.0);
  parallel_for(n, kUpdateSumBlock, [&](std::int64_t begin, std::int64_t end) {
    body(begin, end, partial + (begin / kUpdateSumBlock) * count);
  });
  std::fill(sums.begin(), sums.end(), 0.0);
  for (std::size_t block = 0; block < blocks; ++block)
    for (std::size_t i = 0; i < count; ++i) sums[i] += partial[block * count + i];
}

namespace detail {
template <class Rule, class T>
void update_here_in(const Formula& formula, std::span<const TensorView> tensors, std::span<double> sums) {
  const auto constants = rounded_constants<T>(formula);
  for_update_blocks(tensors[0].elements(), sums, [&](std::int64_t begin, std::int64_t end, double* found) {
    std::array<T*, Rule::kTensors> at;
    for (std::size_t i = 0; i < at.size(); ++i) at[i] = tensors[i].template as<T>() + begin;
    update_elements<Rule, T>(at.data(), constants.data(), end - begin, found);
  });
}
}  // namespace detail

/// Evaluates a rule over tensors in host memory, f32 or f64, one per tensor of the rule and of one length.
template <class Rule>
void update_here(const Rule& rule, std::span<const TensorView> tensors, std::span<double> sums = {}) {
  Formula formula;
  rule.write(formula);
  if (tensors.size() != Rule::kTensors || sums.size() != Rule::kSums) {
    fail_run("an update of " + std::to_string(Rule::kTensors) + " tensors was given " +
             std::to_string(tensors.size()));
  }
  for (const TensorView& tensor : tensors) {
    if (tensor.dtype == tensors[0].dtype && tensor.elements() == tensors[0].elements()) continue;
    fail_run("an update takes tensors of one length and dtype, found " + std::to_string(tensor.elements()) +
             " of " + std::string(dtype_name(tensor.dtype)) + " beside " +
             std::to_string(tensors[0].elements()) + " of " + std::string(dtype_name(tensors[0].dtype)));
  }
  if (tensors[0].dtype == DType::kF32) return detail::update_here_in<Rule, float>(formula, tensors, sums);
  if (tensors[0].dtype == DType::kF64) return detail::update_here_in<Rule, double>(formula, tensors, sums);
  fail_run("an update takes tensors of f32 and f64, found " + std::string(dtype_name(tensors[0].dtype)));
}

/// Evaluates rules by a device's formulas, or by loops over host memory where it has none.
class RuleEvaluator {
 public:
  explicit RuleEvaluator(FormulaOps* formulas) : formulas_(formulas) {}
  template <class Rule>
  void operator()(const Rule& rule, std::span<const TensorView> tensors, std::span<double> sums = {}) const {
    if (formulas_ == nullptr) return update_here(rule, tensors, sums);
    Formula formula;
    rule.write(formula);
    formulas_->evaluate(formula, tensors, sums);
  }

 private:
  FormulaOps* formulas_;
};

/// Calls body(evaluator, slice) for a rule of several passes: with the slice as it is if the device has
/// formulas, else with the slice in host memory (update_on_host).
template <class Body>
void with_rule_evaluator(Device& device, const ParameterSlice& slice, Body&& body) {
  if (FormulaOps* const formulas = formulas_of(device)) return body(RuleEvaluator(formulas), slice);
  update_on_host(device, slice, [&](const ParameterSlice& here) { body(RuleEvaluator(nullptr), here); });
}

namespace detail {
template <class Rule, class Slice>
void update_slice_by(const RuleEvaluator& evaluate, const Rule& rule, const Slice& slice) {
  std::array<TensorView, Rule::kTensors> tensors{slice.weights, slice.gradients};
  if (slice.state.size() + 2 < tensors.size()) {
    fail_run("an update of " + std::to_string(tensors.size() - 2) + " states was given " +
             std::to_string(slice.state.size()));
  }
  std::copy_n(slice.state.begin(), tensors.size() - 2, tensors.begin() + 2);
  evaluate(rule, tensors);
}
}  // namespace detail

/// Updates a slice by a rule without sums.
template <class Rule>
void update_slice(Device& device, const ParameterSlice& slice, const Rule& rule) {
  with_rule_evaluator(device, slice, [&](const RuleEvaluator& evaluate, const ParameterSlice& here) {
    detail::update_slice_by(evaluate, rule, here);
  });
}

/// Updates the rows that a gradient names by the same rule. The device evaluates it for rows in its memory,
/// which is done on several threads at once where that is the host's; otherwise the loop does.
template <class Rule>
void update_rows(Device& device, RowTable& weights, std::span<RowTable* const> state,
                 const RowGradient& gradient, const Rule& rule) {
  FormulaOps* const formulas = formulas_of(device);
  const auto there = [&](const DeviceRowBlock& block) {
    detail::update_slice_by(RuleEvaluator(formulas), rule, block);
  };
  if (formulas != nullptr && for_each_device_block(device, weights, state, gradient, there)) return;
  const RuleEvaluator evaluate(device.space() == MemorySpace::kHost ? formulas : nullptr);
  for_each_row_block(weights, state, gradient,
                     [&](const RowBlock& block) { detail::update_slice_by(evaluate, rule, block); });
}

TENON_ABI_END
