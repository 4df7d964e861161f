// The functions of formula_loops.hpp for one instruction set, TENON_FORMULA_SET. All code has internal
// linkage, and none of the standard library is called: an inline function that this file shared with others
// could run on a processor without the instructions.
#include "formula_loops.hpp"

#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <math.h>

namespace tenon::cpu {
namespace {

struct OwnCode {};

template <class T, class... Rules>
struct LoopTable {
  FormulaLoop<T> loops[sizeof...(Rules)];
};
template <class T, class... Rules>
constexpr LoopTable<T, Rules...> loops_of(RuleList<Rules...>) {
  return {{update_elements<Rules, T, OwnCode>...}};
}
constexpr auto kF32 = loops_of<float>(UpdateRules{});
constexpr auto kF64 = loops_of<double>(UpdateRules{});

constexpr std::int64_t kStrip = 128;  // all values of a strip fit in the first cache

float root(float a) {
  return ::sqrtf(a);
}
double root(double a) {
  return ::sqrt(a);
}

// A strip of elements at a time. Whole strips are computed in the last one, too: what is beyond the elements
// is neither stored nor summed.
template <class T>
void interpret(const FormulaStep* steps, std::size_t count, T* const* tensors, const T* constants,
               std::size_t constant_count, std::int64_t n, double* sums) {
  alignas(64) T values[Formula::kMostConstants + Formula::kMostValues][kStrip];
  for (std::size_t k = 0; k < constant_count; ++k)
    for (std::int64_t i = 0; i < kStrip; ++i) values[k][i] = constants[k];
  for (std::int64_t begin = 0; begin < n; begin += kStrip) {
    const std::int64_t here = n - begin < kStrip ? n - begin : kStrip;
    for (std::size_t s = 0; s < count; ++s) {
      const FormulaStep step = steps[s];
      const auto each = [&](auto value) {
        T* const __restrict to = values[step.to];
        const T *const a = values[step.a], *const b = values[step.b], *const c = values[step.c];
        for (std::int64_t i = 0; i < kStrip; ++i) to[i] = value(a[i], b[i], c[i]);
      };
      switch (step.op) {
        case FormulaOp::kLoad:
          __builtin_memcpy(values[step.to], tensors[step.a] + begin,
                           static_cast<std::size_t>(here) * sizeof(T));
          for (std::int64_t i = here; i < kStrip; ++i) values[step.to][i] = 1;
          break;
        case FormulaOp::kStore:
          __builtin_memcpy(tensors[step.to] + begin, values[step.a],
                           static_cast<std::size_t>(here) * sizeof(T));
          break;
        case FormulaOp::kAdd:
          each([](T a, T b, T) { return a + b; });
          break;
        case FormulaOp::kSubtract:
          each([](T a, T b, T) { return a - b; });
          break;
        case FormulaOp::kMultiply:
          each([](T a, T b, T) { return a * b; });
          break;
        case FormulaOp::kDivide:
          each([](T a, T b, T) { return a / b; });
          break;
        case FormulaOp::kRoot:
          each([](T a, T, T) { return root(a); });
          break;
        case FormulaOp::kLess:
          each([](T a, T b, T) { return a < b ? T{1} : T{0}; });
          break;
        case FormulaOp::kSelect:
          each([](T a, T b, T c) { return a != 0 ? b : c; });
          break;
        case FormulaOp::kSum:
          for (std::int64_t i = 0; i < here; ++i)
            sums[step.to] += static_cast<double>(values[step.a][i]) * static_cast<double>(values[step.b][i]);
          break;
      }
    }
  }
}

}  // namespace

#define TENON_JOIN_NAMES(a, b) a##b
#define TENON_GETTER(set) TENON_JOIN_NAMES(formula_loops_, set)
FormulaLoops TENON_GETTER(TENON_FORMULA_SET)() {
  return {{kF32.loops, interpret<float>}, {kF64.loops, interpret<double>}};
}

}  // namespace tenon::cpu
