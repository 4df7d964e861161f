// Contract `reward/1`: how good an answer is, as numbers with names: a rule, a program that checks, or a
// model. Data sets that draw answers from the model ask it, and `tenon generate --reward`.
#pragma once

#include <tenon/config.hpp>

#include <string_view>

TENON_ABI_BEGIN

/// A prompt, an answer to it, and what the data says of the prompt. Views for the call.
struct RewardSample {
  std::string_view prompt, answer;
  const Value* sample = nullptr;  ///< the line of the prompt's file, a table; null where there is none
};

/// Receives the parts of one score.
class RewardParts {
 public:
  virtual ~RewardParts();
  /// A name once per sample.
  virtual void add(std::string_view name, double value) = 0;
};

class Reward {
 public:
  using Interface = Reward;
  static constexpr const char* kKind = "reward/1";
  virtual ~Reward();
  /// The reward of an answer is the sum of the parts that it is given here; they are finite, and their names
  /// are the same for all samples. Pure, any thread. Throws Error(kRun) where the sample lacks what this
  /// reward reads.
  virtual void score(const RewardSample& sample, RewardParts& parts) const = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
