// Formulas over elements of one thread, compiled once per instruction set: loops of the rules of
// <tenon/sdk/update_rules.hpp>, from the text of the rules, and an interpreter of steps for all other
// formulas. All sets give the same bits, and so do loops and interpreter: every operation is rounded once,
// and sums are added in order.
#pragma once

#include <tenon/ops/formula.hpp>

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

/// Evaluates n elements: update_elements of <tenon/sdk/update_rule.hpp>.
template <class T>
using FormulaLoop = void (*)(T* const* tensors, const T* constants, std::int64_t n, double* sums);

/// The same by `count` steps, which use the first `constant_count` constants.
template <class T>
using FormulaInterpreter = void (*)(const FormulaStep* steps, std::size_t count, T* const* tensors,
                                    const T* constants, std::size_t constant_count, std::int64_t n,
                                    double* sums);

template <class T>
struct FormulaLoopsOf {
  const FormulaLoop<T>* rules;  ///< one for each of UpdateRules, in their order
  FormulaInterpreter<T> interpret;
};
struct FormulaLoops {
  FormulaLoopsOf<float> f32;
  FormulaLoopsOf<double> f64;
};

FormulaLoops formula_loops_portable();
FormulaLoops formula_loops_avx2();
FormulaLoops formula_loops_avx512();

}  // namespace tenon::cpu
