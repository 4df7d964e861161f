// Thinking budget of one sequence: says when the next token is one of the closing tag instead of a draw. It
// sees tokens only, and knows neither logits nor texts.
#pragma once

#include <tenon/generator.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>

namespace tenon::generate {

/// Inserts the closing tag before the first token whose predecessor ends a line, once the budget is spent,
/// and at the latest `grace` tokens after that. Only tokens of add() count. Begins of the tag that the model
/// wrote itself are not inserted again. After the tag, inserted or not, the model is free.
class ThinkingLimit {
 public:
  /// `budget` outlives this. last_of_prompt: a budget of 0 closes at once where it ends a line.
  ThinkingLimit(const ThinkingBudget& budget, std::int32_t last_of_prompt);
  /// The id that comes next; none where the model draws.
  std::optional<std::int32_t> inserted() const;
  /// A token of the sequence, drawn or inserted.
  void add(std::int32_t token);

 private:
  void close_if_due(std::int32_t last);

  const ThinkingBudget* budget_;
  std::int64_t written_ = 0;
  std::size_t matched_ = 0;  ///< length of the longest begin of the tag with which the tokens end
  bool closing_ = false, closed_;
};

}  // namespace tenon::generate
