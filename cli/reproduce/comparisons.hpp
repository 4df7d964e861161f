// Results of a study beside the last values of its metric: trained weights on other data, first losses of two
// arms, verdicts. Read from finished runs; tables and JSON only print them.
#pragma once

#include "ab/analysis.hpp"
#include "reproduce/results.hpp"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// Metrics that the newest checkpoint of the attempt in `run` has under `sets`, by name: the output of `tenon
/// evaluate`. Throws Error.
using Evaluator = std::function<std::map<std::string, double>(const std::string& run,
                                                              const std::vector<std::string>& sets)>;

/// Fills StudyResult::columns from the entries of [[evaluate]] at this size, run by run. An entry that cannot
/// be measured is a warning, and the study is not complete.
void read_columns(StudyResult& result, const Evaluator& evaluate);

/// Fills StudyResult::agreements. If a line of metrics is missing after one of the updates in either run,
/// there is no value, and a warning says so.
void read_agreements(StudyResult& result);

/// Fills StudyResult::verdicts with the rule and the words of `tenon ab`, per baseline, so that p-values are
/// adjusted for the number of its arms. Nothing without a margin.
void read_verdicts(StudyResult& result, const ab::Experiment& experiment);

}  // namespace tenon::reproduce
