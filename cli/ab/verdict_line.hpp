// The verdict of a study for programs: one line of JSON, and an exit status.
#pragma once

#include "ab/ab.hpp"

#include <string>

namespace tenon::ab {

/// One line: verdict, effect, interval, e-values, pairs, seconds and bytes of the first arm beside the
/// baseline at the top, and those of every such arm in `arms`; then the reports and what was refused. Of a
/// ladder these are the numbers of its greatest size, with seconds and bytes of all points, and `ladder` has
/// the fit.
std::string verdict_line(const StudyOutcome& outcome);

/// 10 better, 11 worse, 12 equivalent, 13 undecided or inconclusive, 14 identical; without a verdict, that of
/// the outcome. Several arms: the first of better, undecided, equivalent, identical, worse that any arm has.
int verdict_status(const StudyOutcome& outcome);

}  // namespace tenon::ab
