// The figure of a study about the benefit of communication: the metric against bytes sent.
#pragma once

#include "reproduce/results.hpp"

#include <string>

namespace tenon::reproduce {

/// Every run a dot, every arm its mean with a name beside it, bytes on a logarithmic axis. Arms that sent
/// nothing are left out. `height` is that of the drawing.
std::string bytes_figure(const StudyResult& result, double width, double& height);

/// 1, 2 and 5 times powers of ten inside the range.
std::vector<double> log_ticks(double low, double high);

}  // namespace tenon::reproduce
