// Quantities that grow during training, a budget in one of them, and what runs of one budget share. Alone,
// because an experiment and the tables that it holds both have budgets.
#pragma once

#include <string>
#include <vector>

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

/// A budget in seconds or bytes ends at the first step boundary beyond it, so equal budgets differ by a
/// little.
inline constexpr double kLooseTolerance = 0.05;

/// An amount that runs of one budget have to share, to the last digit or within a share of it.
struct SharedAmount {
  Axis axis;
  double tolerance;

  bool equal(double a, double b) const;
};

/// What two runs of a budget have to have consumed alike, to be compared: samples and tokens, and steps where
/// they are the budget; of a budget of seconds or bytes, which ends at the first step beyond it, that alone.
std::vector<SharedAmount> shared_amounts(Axis budget);

}  // namespace tenon::ab
