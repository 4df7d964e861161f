// What dropout (family NeuralOps) draws by, and the check of its share. Without fmt, which nvcc does not
// take.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/random.hpp>

#include <limits>
#include <string>

namespace tenon::device_arguments {

/// Kernels count elements within one key: the step goes into a key of its own, drawn where no element's index
/// lies. The same on every device.
inline std::uint64_t step_key(RandomKey key, std::uint64_t step) {
  const auto words = random_words(key, step, std::numeric_limits<std::uint64_t>::max());
  return words[0] | (std::uint64_t{words[1]} << 32);
}

inline void check_dropout(double p) {
  if (!(p >= 0 && p < 1)) refuse_config("dropout: p is " + std::to_string(p) + ", expected 0 <= p < 1");
}

}  // namespace tenon::device_arguments
