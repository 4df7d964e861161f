// Text from a language model, as tokens: sequences of different length go on together, each from kept state.
// A sequence depends on its prompt, its number, the settings and the weights, and on nothing beside it.
#pragma once

#include <tenon/abi.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

TENON_ABI_BEGIN

/// Bound of what a model writes before it answers, between an opening tag at the end of the prompt and a
/// closing one: after `tokens` tokens the closing tag is inserted at the next newline, at most `grace` tokens
/// later. The prompt does not count, but its last token may be the newline of a budget of 0. A sequence that
/// closes by itself is left alone; of a tag that it has begun when one is due, the rest is inserted.
struct ThinkingBudget {
  std::int64_t tokens = -1;  ///< less than 0 = no bound
  std::int64_t grace = 500;
  std::vector<std::int32_t> close = {};     ///< ids of the closing tag, inserted in this order
  std::vector<std::int32_t> newlines = {};  ///< tokens that end a line
};

struct GenerationSpec {
  std::int64_t most = 0;   ///< tokens to add to a prompt at most
  double temperature = 1;  ///< divides the logits; 0 = the likeliest token, of equals the lowest id
  std::int64_t top_k = 0;  ///< draw among this many likeliest tokens; 0 = all
  double top_p = 1;        ///< and among the fewest likeliest whose probabilities reach this sum
  std::vector<std::int32_t> stop_ids = {};  ///< a sequence ends after the first of these, which belongs to it
  std::uint64_t seed = 1;                   ///< draws are keyed by (seed, purpose, sequence, position)
  std::string purpose = "generate";
  /// What happens at the end of the context: the sequence ends, or the older half of what the model sees is
  /// forgotten and the rest is read again.
  bool slides = false;
  ThinkingBudget thinking = {};
};

struct Prompt {
  std::span<const std::int32_t> ids;  ///< at least one; of more than the context, the last ones are read
  std::uint64_t sequence = 0;         ///< number, for the draws
};

enum class GenerationEnd : std::uint8_t { kMost, kStop, kSink, kContext };

struct Generated {
  std::vector<std::int32_t> ids;
  /// ln of the model's probability of each of them: of softmax(logits), whatever the temperature.
  std::vector<double> log_probs;
  GenerationEnd end = GenerationEnd::kMost;
  /// ids[inserted_at .. inserted_at + inserted) were not drawn: a thinking budget inserted them.
  std::int64_t inserted_at = 0, inserted = 0;
};

/// Hears each token of prompt `index` as it is drawn; false ends the sequence after it.
using TokenSink = std::function<bool(std::size_t index, std::int32_t token, double log_prob)>;

/// Service of the host within OnPolicyDataset::prepare and for observers between slots
/// (host.query(Generator::kId)): the weights are those that the run would evaluate. Null elsewhere, and where
/// the model is no language model.
class Generator {
 public:
  static constexpr const char* kId = "tenon.generator/1";
  virtual ~Generator();
  virtual std::int64_t context() const = 0;     ///< positions that the model sees
  virtual std::int64_t vocabulary() const = 0;  ///< tokens that it tells apart
  /// One result per prompt, in order. Throws Error(kConfig) for settings out of range and for ids outside of
  /// the vocabulary, Error(kRun) for logits that are not finite.
  virtual std::vector<Generated> generate(std::span<const Prompt> prompts, const GenerationSpec& spec,
                                          const TokenSink& sink = {}) = 0;
};

TENON_ABI_END
