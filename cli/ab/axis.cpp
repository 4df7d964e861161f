// The names and the rule of axis.hpp.
#include "ab/axis.hpp"

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::ab {
namespace {

constexpr auto kAxisNames = option::choice<Axis>({{"steps", Axis::kSteps},
                                                  {"samples", Axis::kSamples},
                                                  {"tokens", Axis::kTokens},
                                                  {"seconds", Axis::kSeconds},
                                                  {"bytes", Axis::kBytes}});

}  // namespace

const char* axis_name(Axis axis) {
  return kAxisNames.name(axis);
}

Axis axis_from_name(const std::string& name) {
  for (Axis axis : kAxes) {
    if (name == axis_name(axis)) return axis;
  }
  fail_config(
      fmt::format("unknown budget '{}'; expected one of steps, samples, tokens, seconds, bytes", name));
}

bool SharedAmount::equal(double a, double b) const {
  return std::abs(a - b) <= tolerance * std::max(std::abs(a), std::abs(b));
}

std::vector<SharedAmount> shared_amounts(Axis budget) {
  if (budget == Axis::kSeconds || budget == Axis::kBytes) return {{budget, kLooseTolerance}};
  // Equal slots do not mean equal data: a mixing slot may consume none.
  std::vector<SharedAmount> out{{Axis::kSamples, 0}, {Axis::kTokens, 0}};
  if (budget == Axis::kSteps) out.insert(out.begin(), {Axis::kSteps, 0});
  return out;
}

}  // namespace tenon::ab
