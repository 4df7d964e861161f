// Ranks tokens only as far as the settings need: the largest top_k, and of these the first whose
// probabilities reach top_p.
#include "generate/sampler.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::generate {
namespace {

/// The likeliest token, of equals the first. Throws Error(kRun) if a logit is not finite.
std::size_t likeliest_of(std::span<const double> logits, std::uint64_t sequence, std::uint64_t position) {
  std::size_t likeliest = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) {
      fail_run(
          fmt::format("generate: the logit of token {} at position {} of sequence {} is {}; the weights are "
                      "not usable",
                      i, position, sequence, logits[i]));
    }
    if (logits[i] > logits[likeliest]) likeliest = i;
  }
  return likeliest;
}

Drawn with_log_prob(std::span<const double> logits, std::int32_t token, double largest) {
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - largest);
  return {token, logits[token] - largest - std::log(sum)};
}

}  // namespace

void check_settings(const GenerationSpec& spec, const SettingNames& names) {
  if (spec.most < 0)
    fail_config(fmt::format("{}: {} is {}, expected 0 or more", names.where, names.most, spec.most));
  if (!(spec.temperature >= 0) || !std::isfinite(spec.temperature)) {
    fail_config(
        fmt::format("{}: {} is {}, expected 0 or more", names.where, names.temperature, spec.temperature));
  }
  if (spec.top_k < 0) {
    fail_config(
        fmt::format("{}: {} is {}, expected 0 (all tokens) or more", names.where, names.top_k, spec.top_k));
  }
  if (!(spec.top_p > 0) || spec.top_p > 1) {
    fail_config(fmt::format("{}: {} is {}, expected more than 0 and at most 1 (all tokens)", names.where,
                            names.top_p, spec.top_p));
  }
  const ThinkingBudget& thinking = spec.thinking;
  if (thinking.tokens < 0) return;
  if (thinking.grace < 0)
    fail_config(fmt::format("{}: {} is {}, expected 0 or more", names.where, names.grace, thinking.grace));
  if (thinking.close.empty()) {
    fail_config(fmt::format("{}: {} is {}, and {} has no token; give the closing tag", names.where,
                            names.thinking, thinking.tokens, names.close));
  }
}

Sampler::Sampler(const GenerationSpec& spec)
    : temperature_(spec.temperature),
      top_p_(spec.top_p),
      top_k_(spec.top_k),
      key_(random_key(spec.seed, spec.purpose)) {
  check_settings(spec);
}

Drawn Sampler::given(std::span<const double> logits, std::int32_t token, std::uint64_t sequence,
                     std::uint64_t position) {
  return with_log_prob(logits, token, logits[likeliest_of(logits, sequence, position)]);
}

Drawn Sampler::next(std::span<const double> logits, std::uint64_t sequence, std::uint64_t position) {
  const std::size_t likeliest = likeliest_of(logits, sequence, position);
  const double largest = logits[likeliest];
  const auto drawn = [&](std::int32_t token) { return with_log_prob(logits, token, largest); };
  if (temperature_ == 0) return drawn(static_cast<std::int32_t>(likeliest));

  weights_.resize(logits.size());
  std::transform(logits.begin(), logits.end(), weights_.begin(),
                 [&](double logit) { return std::exp((logit - largest) / temperature_); });
  restrict(logits);
  double sum = 0;
  for (const std::int32_t id : ids_) sum += weights_[id];
  const double wanted = random_uniform(key_, sequence, position) * sum;
  double passed = 0;
  for (const std::int32_t id : ids_) {
    passed += weights_[id];
    if (wanted < passed) return drawn(id);
  }
  // Rounding left the sum below what was drawn.
  return drawn(ids_.back());
}

void Sampler::restrict(std::span<const double> logits) {
  ids_.resize(logits.size());
  std::iota(ids_.begin(), ids_.end(), 0);
  const auto likelier = [&](std::int32_t a, std::int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  };
  if (top_k_ > 0 && top_k_ < static_cast<std::int64_t>(ids_.size())) {
    std::nth_element(ids_.begin(), ids_.begin() + top_k_, ids_.end(), likelier);
    ids_.resize(top_k_);
    std::sort(ids_.begin(), ids_.end());
  }
  if (top_p_ == 1) return;
  double sum = 0;
  for (const std::int32_t id : ids_) sum += weights_[id];
  // Only as many are ranked as remain.
  const auto less_likely = [&](std::int32_t a, std::int32_t b) { return likelier(b, a); };
  auto unranked = ids_.end();
  std::make_heap(ids_.begin(), unranked, less_likely);
  for (double reached = 0; unranked != ids_.begin() && reached < top_p_ * sum;) {
    std::pop_heap(ids_.begin(), unranked, less_likely);
    reached += weights_[*--unranked];
  }
  ids_.erase(ids_.begin(), unranked);
  std::sort(ids_.begin(), ids_.end());
}

}  // namespace tenon::generate
