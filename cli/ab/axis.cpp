// The names of axis.hpp.
#include "ab/axis.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::ab {

const char* axis_name(Axis axis) {
  switch (axis) {
    case Axis::kSteps:
      return "steps";
    case Axis::kSamples:
      return "samples";
    case Axis::kTokens:
      return "tokens";
    case Axis::kSeconds:
      return "seconds";
    case Axis::kBytes:
      return "bytes";
  }
  return "steps";
}

Axis axis_from_name(const std::string& name) {
  for (Axis axis : kAxes) {
    if (name == axis_name(axis)) return axis;
  }
  fail_config(
      fmt::format("unknown budget '{}'; expected one of steps, samples, tokens, seconds, bytes", name));
}

}  // namespace tenon::ab
