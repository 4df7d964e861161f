// The next token from logits: a pure function of logits, settings, sequence and position. It knows no model.
#pragma once

#include <tenon/generator.hpp>
#include <tenon/random.hpp>

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tenon::generate {

/// How a message names the settings: those of a contract, or options of a command.
struct SettingNames {
  std::string_view where = "generate", most = "most", temperature = "temperature", top_k = "top_k",
                   top_p = "top_p", thinking = "thinking.tokens", grace = "thinking.grace",
                   close = "thinking.close";
};

/// Throws Error(kConfig) for settings out of range.
void check_settings(const GenerationSpec& spec, const SettingNames& names = {});

/// A token and the logarithm of its probability under softmax(logits).
struct Drawn {
  std::int32_t token = 0;
  double log_prob = 0;
};

/// Probabilities are softmax(logits / temperature) over the tokens that top_k and top_p leave; one uniform
/// number picks along their running sum, in the order of ids. Equal logits are ranked by id. Keeps memory
/// from one draw to the next; not for several threads.
class Sampler {
 public:
  /// Throws as check_settings.
  explicit Sampler(const GenerationSpec& spec);
  /// Token at `position` of sequence `sequence`. Throws Error(kRun) if a logit is not finite.
  Drawn next(std::span<const double> logits, std::uint64_t sequence, std::uint64_t position);
  /// `token` as if it had been drawn there. Throws as next().
  static Drawn given(std::span<const double> logits, std::int32_t token, std::uint64_t sequence,
                     std::uint64_t position);

 private:
  /// Fills ids_ with the tokens that may be drawn, ascending.
  void restrict(std::span<const double> logits);

  double temperature_, top_p_;
  std::int64_t top_k_;
  RandomKey key_;
  std::vector<double> weights_;  ///< exp((logit - largest) / temperature) by id
  std::vector<std::int32_t> ids_;
};

}  // namespace tenon::generate
