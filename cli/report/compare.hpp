// Two runs side by side: differences of inputs and results, and the distance of their weights. Inputs are
// ordered by likely cause: the user's choices first, then data, plugins, program, machine.
#pragma once

#include "report/numerics.hpp"
#include "report/runs.hpp"

#include <tenon/tensor.hpp>

#include <optional>
#include <string>
#include <vector>

namespace tenon::report {

struct InputDifference {
  std::string area;  ///< "config", "data", "plugins", "program", "kernels", "threads", "seeds", "machine"
  std::string key, a, b;  ///< "" where a run does not have it
  std::string origin_a, origin_b;
};

struct MetricComparison {
  std::string name;
  MetricFacts a, b;  ///< lines = 0: the run does not have it
  std::int64_t common_steps = 0;
  std::int64_t first_difference = -1;  ///< step; -1: equal wherever both have a line
};

struct TensorComparison {
  std::string name, dtype, shape;
  std::string problem;  ///< "only in A", "another shape: ...", "" when compared
  bool equal_bits = true;
  double largest_difference = 0;  ///< of two finite values
  double largest_relative = 0;    ///< |a - b| / max(|a|, |b|)
  std::int64_t differing = 0, elements = 0;
};

struct Comparison {
  std::vector<InputDifference> inputs;
  std::vector<MetricComparison> metrics;
  bool same_weights = false, same_state = false, have_hashes = false;
};

Comparison compare_runs(const Run& a, const Run& b);

/// The newest whole checkpoints of two attempts. Throws Error(kRun) if a run has none.
struct NumericComparison {
  std::int64_t step_a = 0, step_b = 0;
  std::vector<TensorComparison> tensors;  ///< in the order of names
};
NumericComparison compare_checkpoints(const std::string& attempt_a, const std::string& attempt_b);
/// One tensor of two runs; types and shapes are equal, memory is the host's.
TensorComparison compare_tensors(const std::string& name, const TensorView& a, const TensorView& b);

/// The addition of `tenon compare --numerics`.
struct NumericsAnswer {
  std::optional<NumericComparison> checkpoints;
  std::string no_checkpoints;  ///< why there are none to compare
  OperandComparison operands;
};

std::string comparison_text(const Run& a, const Run& b, const Comparison& comparison,
                            const NumericsAnswer* numerics);
std::string comparison_json(const Run& a, const Run& b, const Comparison& comparison,
                            const NumericsAnswer* numerics);

}  // namespace tenon::report
