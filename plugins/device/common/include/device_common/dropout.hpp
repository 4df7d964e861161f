// Random key of dropout (family NeuralOps), and the check of its probability. Does not use fmt, which nvcc
// does not accept.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/random.hpp>

#include <limits>
#include <string>

namespace tenon::device_arguments {

/// Kernels count elements within one key, so the step is mixed into a key of its own, drawn at a position
/// that no element has. The same on every device.
inline std::uint64_t step_key(RandomKey key, std::uint64_t step) {
  const auto words = random_words(key, step, std::numeric_limits<std::uint64_t>::max());
  return words[0] | (std::uint64_t{words[1]} << 32);
}

inline void check_dropout(double p) {
  if (!(p >= 0 && p < 1)) refuse_config("dropout: p is " + std::to_string(p) + ", expected 0 <= p < 1");
}

}  // namespace tenon::device_arguments
