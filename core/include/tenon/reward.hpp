// Contract `reward/1`: how good answers are, as numbers: a rule, a program that checks, or a model. Whoever
// makes the answers says what they answer. No run names one yet.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// A prompt and an answer as text, as ids, or as both; what is empty is not known. Views for the call.
struct RewardSample {
  std::string_view prompt, answer;
  std::span<const std::int32_t> prompt_ids = {}, answer_ids = {};
};

class Reward {
 public:
  using Interface = Reward;
  static constexpr const char* kKind = "reward/1";
  virtual ~Reward();
  /// out[i] for samples[i], finite; one size. Each depends on its own sample alone, so a batch may be cut
  /// anywhere. Throws Error(kRun) where a sample lacks the form that this reward reads.
  virtual void score(std::span<const RewardSample> samples, std::span<double> out) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
