// Operator family of a device for rules over elements, such as updates of weights: a formula over the
// elements of flat tensors, which a rule writes down once and the device evaluates in one pass, with sums in
// f64 beside it. A device without the family leaves such rules to loops on the host (update_on_host).
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

TENON_ABI_BEGIN

/// Operations of a formula: those that IEEE 754 rounds correctly, and choices between values. So a formula
/// has the same bits on every device, and those of a loop on the host without contraction.
enum class FormulaOp : std::uint8_t {
  kLoad = 0,  ///< the element of tensor a
  kStore,     ///< a becomes the element of tensor `to`; later loads see it
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kRoot,    ///< square root of a
  kLess,    ///< 1 where a < b, else 0
  kSelect,  ///< b where a is not 0 (a NaN is not), else c
  kSum,     ///< sum `to` grows by a * b, both widened to f64 before
};

/// Operands a, b and c are numbers of values, except where kLoad and kStore say otherwise.
struct FormulaStep {
  FormulaOp op = FormulaOp::kLoad;
  std::uint8_t to = 0, a = 0, b = 0, c = 0;
};

/// A formula in the making, written with the operators of C++ in the order in which it is to be evaluated:
///   Formula f;
///   const auto w = f.load(0), g = f.load(1);
///   f.store(0, w - lr * g);
/// Holds its steps itself and may be made anew for every update. Numbers are f64 until the device rounds them
/// to the dtype of the tensors. More than fits throws Error(kRun).
class Formula {
 public:
  static constexpr std::size_t kMostSteps = 64, kMostConstants = 16, kMostValues = 32, kMostSums = 4;
  static constexpr int kMostTensors = 8;

  /// A value of one formula; valid as long as the formula exists and is not moved.
  class Value {
   public:
    friend Value operator+(Value a, Value b) { return made(FormulaOp::kAdd, a, b, a); }
    friend Value operator+(Value a, double b) { return a + a.of_->constant(b); }
    friend Value operator+(double a, Value b) { return b.of_->constant(a) + b; }
    friend Value operator-(Value a, Value b) { return made(FormulaOp::kSubtract, a, b, a); }
    friend Value operator-(Value a, double b) { return a - a.of_->constant(b); }
    friend Value operator-(double a, Value b) { return b.of_->constant(a) - b; }
    friend Value operator*(Value a, Value b) { return made(FormulaOp::kMultiply, a, b, a); }
    friend Value operator*(Value a, double b) { return a * a.of_->constant(b); }
    friend Value operator*(double a, Value b) { return b.of_->constant(a) * b; }
    friend Value operator/(Value a, Value b) { return made(FormulaOp::kDivide, a, b, a); }
    friend Value operator/(Value a, double b) { return a / a.of_->constant(b); }
    friend Value operator/(double a, Value b) { return b.of_->constant(a) / b; }
    friend Value sqrt(Value a) { return made(FormulaOp::kRoot, a, a, a); }
    friend Value less(Value a, Value b) { return made(FormulaOp::kLess, a, b, a); }
    friend Value select(Value which, Value a, Value b) { return made(FormulaOp::kSelect, which, a, b); }

   private:
    friend class Formula;
    static Value made(FormulaOp op, Value a, Value b, Value c) { return a.of_->made(op, a, b, c); }
    Value(Formula* of, std::uint8_t number) : of_(of), number_(number) {}
    Formula* of_;
    std::uint8_t number_;
  };

  Value load(int tensor) {
    const std::uint8_t to = next_value();
    push({FormulaOp::kLoad, to, counted(tensor), 0, 0});
    return {this, to};
  }
  void store(int tensor, Value value) { push({FormulaOp::kStore, counted(tensor), value.number_, 0, 0}); }
  Value constant(double number) {
    if (constant_count_ == kMostConstants) too_much("constants", kMostConstants);
    constants_[constant_count_] = number;
    return {this, static_cast<std::uint8_t>(constant_count_++)};
  }
  /// Adds a * b, over all elements, to sum number `which`, from 0.
  void sum(std::size_t which, Value a, Value b) {
    if (which >= kMostSums) too_much("sums", kMostSums);
    if (which >= sum_count_) sum_count_ = which + 1;
    push({FormulaOp::kSum, static_cast<std::uint8_t>(which), a.number_, b.number_, 0});
  }

  std::span<const FormulaStep> steps() const { return std::span(steps_).first(step_count_); }
  /// Values 0 ... are these; those that steps make are numbered from kMostConstants.
  std::span<const double> constants() const { return std::span(constants_).first(constant_count_); }
  std::size_t values() const { return value_count_; }  ///< that steps make
  std::size_t sums() const { return sum_count_; }
  int tensors() const { return tensor_count_; }

 private:
  [[noreturn]] static void too_much(const char* what, std::size_t most) {
    fail_run("a formula has more than " + std::to_string(most) + " " + what);
  }
  void push(const FormulaStep& step) {
    if (step_count_ == kMostSteps) too_much("steps", kMostSteps);
    steps_[step_count_++] = step;
  }
  std::uint8_t next_value() {
    if (value_count_ == kMostValues) too_much("values", kMostValues);
    return static_cast<std::uint8_t>(kMostConstants + value_count_++);
  }
  std::uint8_t counted(int tensor) {
    if (tensor < 0 || tensor >= kMostTensors) too_much("tensors", kMostTensors);
    if (tensor >= tensor_count_) tensor_count_ = tensor + 1;
    return static_cast<std::uint8_t>(tensor);
  }
  Value made(FormulaOp op, Value a, Value b, Value c) {
    const std::uint8_t to = next_value();
    push({op, to, a.number_, b.number_, c.number_});
    return {this, to};
  }

  std::array<FormulaStep, kMostSteps> steps_{};
  std::array<double, kMostConstants> constants_{};
  std::size_t step_count_ = 0, constant_count_ = 0, value_count_ = 0, sum_count_ = 0;
  int tensor_count_ = 0;
};

/// Asked for by query(): a device need not have it.
class FormulaOps {
 public:
  static constexpr const char* kId = "tenon.device.formula/1";
  virtual ~FormulaOps();
  /// Evaluates the formula for every element. tensors: one per tensor of the formula, of one length and dtype
  /// (f32 or f64), no two of which overlap. sums: one per sum of the formula, begun with 0; the order of
  /// their terms depends on the length alone. With sums the call waits for the device. A device of host
  /// memory allows several threads to call it at once, each with its own tensors.
  virtual void evaluate(const Formula& formula, std::span<const TensorView> tensors,
                        std::span<double> sums) = 0;
};

/// The family, or null on a device without it.
inline FormulaOps* formulas_of(Device& device) {
  return static_cast<FormulaOps*>(device.query(FormulaOps::kId));
}

inline constexpr std::size_t kMostHostStates = 4;

/// For rules that are loops over host memory: calls body(const ParameterSlice&) with the slice in host
/// memory, and writes weights and state back. The gradients are not written back.
template <typename Body>
void update_on_host(Device& device, const ParameterSlice& slice, Body&& body) {
  if (slice.weights.space == MemorySpace::kHost) return std::forward<Body>(body)(slice);
  static thread_local std::array<HostStage, 2 + kMostHostStates> stages;
  if (slice.state.size() > kMostHostStates) fail_run("an update on the host has too many states");
  std::array<TensorView, kMostHostStates> state;
  for (std::size_t i = 0; i < slice.state.size(); ++i) state[i] = stages[2 + i].read(device, slice.state[i]);
  ParameterSlice here = slice;
  here.weights = stages[0].read(device, slice.weights);
  here.gradients = stages[1].read(device, slice.gradients);
  here.state = std::span<const TensorView>(state).first(slice.state.size());
  std::forward<Body>(body)(std::as_const(here));
  stages[0].write(device, slice.weights);
  for (std::size_t i = 0; i < slice.state.size(); ++i) stages[2 + i].write(device, slice.state[i]);
}

TENON_ABI_END
