// Draws of consecutive elements, many at a time: the same bits as random_normal() and random_uniform() of
// <tenon/random.hpp> give for each. One table for each instruction set, compiled with its flags.
#pragma once

#include <cstdint>

namespace tenon::comm {

struct RandomBlocks {
  const char* set;  ///< "portable", "avx2" or "avx512"
  /// Elements first, first + 1, ... of the stream of `key` (two words) in `step`, as random_normal().
  void (*normals)(const std::uint32_t* key, std::uint64_t step, std::uint64_t first, std::int64_t count,
                  double* out);
  /// The same as random_uniform().
  void (*uniforms)(const std::uint32_t* key, std::uint64_t step, std::uint64_t first, std::int64_t count,
                   double* out);
  /// Normals of given pairs of 64 random bits; the draws above reach the rare pairs too seldom for a test.
  void (*normals_of)(const std::uint64_t* radii, const std::uint64_t* angles, std::int64_t count,
                     double* out);
};

/// The table of the best set that this processor runs.
const RandomBlocks& random_blocks();
/// Tables that this processor runs, the best last; null after the last.
const RandomBlocks* const* all_random_blocks();

}  // namespace tenon::comm
