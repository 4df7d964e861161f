// The next token from logits: a pure function of logits, settings and position. Probabilities are
// softmax(logits / temperature) over the kept tokens; one uniform number per position picks along their
// running sum, from the likeliest down. Serves `tenon generate`, and is apart from it for a test that needs
// no model.
#pragma once

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace tenon::cli {

struct SamplerSettings {
  double temperature = 1;  ///< 0 = always the largest logit
  std::int64_t top_k = 0;  ///< choose among this many largest logits; 0 = all
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

inline Sampler::Sampler(const SamplerSettings& settings)
    : settings_(settings), key_(random_key(settings.seed, "generate")) {
  if (!(settings.temperature >= 0) || !std::isfinite(settings.temperature)) {
    fail_config(fmt::format("tenon generate: --temperature is {}, expected 0 or more", settings.temperature));
  }
  if (settings.top_k < 0) {
    fail_config(
        fmt::format("tenon generate: --top-k is {}, expected 0 (all tokens) or more", settings.top_k));
  }
}

inline std::int32_t Sampler::next(std::span<const double> logits, std::uint64_t position) const {
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      fail_run(
          fmt::format("tenon generate: the logit of token {} at position {} is {}; the weights of this run "
                      "are not usable",
                      i, position, logits[i]));
    }
  }
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](std::int32_t a, std::int32_t b) { return logits[a] > logits[b]; });
  if (settings_.temperature == 0) return ids[0];
  if (settings_.top_k > 0 && settings_.top_k < static_cast<std::int64_t>(ids.size()))
    ids.resize(settings_.top_k);

  const double largest = logits[ids[0]];
  std::vector<double> sums;
  double sum = 0;
  for (const std::int32_t id : ids) {
    sum += std::exp((logits[id] - largest) / settings_.temperature);
    sums.push_back(sum);
  }
  const double drawn = random_uniform(key_, position, 0) * sum;
  const auto chosen = std::upper_bound(sums.begin(), sums.end(), drawn) - sums.begin();
  return ids[std::min(static_cast<std::size_t>(chosen), ids.size() - 1)];
}

}  // namespace tenon::cli
