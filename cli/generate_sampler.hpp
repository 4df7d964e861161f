// The next token from logits: a pure function of logits, settings and position. Serves `tenon generate`.
#pragma once

#include <tenon/random.hpp>

#include <cstdint>
#include <span>
#include <vector>

namespace tenon::cli {

struct SamplerSettings {
  double temperature = 1;  ///< 0 = always the largest logit
  std::int64_t top_k = 0;  ///< choose among so many largest logits; 0 = all
  std::uint64_t seed = 1;
};

class Sampler {
 public:
  /// Throws Error(kConfig) for a negative temperature or top_k.
  explicit Sampler(const SamplerSettings& settings);
  /// Token for place `position` of the text. Of equal logits the lower id comes first. Throws Error(kRun) if
  /// a logit is not finite.
  std::int32_t next(std::span<const double> logits, std::uint64_t position) const;

 private:
  SamplerSettings settings_;
  RandomKey key_;
};

}  // namespace tenon::cli
