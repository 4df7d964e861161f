// Quantities that grow during training, and a budget in one of them: alone, because an experiment and the
// tables that it holds both have budgets.
#pragma once

#include <string>

namespace tenon::ab {

/// The unit of a budget, of a time to target, and of a plot's x axis.
enum class Axis { kSteps, kSamples, kTokens, kSeconds, kBytes };
inline constexpr Axis kAxes[] = {Axis::kSteps, Axis::kSamples, Axis::kTokens, Axis::kSeconds, Axis::kBytes};

/// "steps", "samples", "tokens", "seconds", "bytes".
const char* axis_name(Axis axis);
/// Throws Error(kConfig) naming the five choices.
Axis axis_from_name(const std::string& name);

struct Budget {
  Axis kind = Axis::kSteps;
  double amount = 0;
};

}  // namespace tenon::ab
