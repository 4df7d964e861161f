// The tag is found among the tokens by the length of its longest begin with which they end, so no tokens are
// kept.
#include "generate/thinking_limit.hpp"

#include <algorithm>

namespace tenon::generate {

ThinkingLimit::ThinkingLimit(const ThinkingBudget& budget, std::int32_t last_of_prompt)
    : budget_(&budget), closed_(budget.tokens < 0) {
  close_if_due(last_of_prompt);
}

std::optional<std::int32_t> ThinkingLimit::inserted() const {
  if (closed_ || !closing_) return std::nullopt;
  return budget_->close[matched_];
}

void ThinkingLimit::add(std::int32_t token) {
  if (closed_) return;
  ++written_;
  const std::vector<std::int32_t>& close = budget_->close;
  // The tokens end with close[0 .. matched_) and then `token`: the longest begin of the tag that ends there.
  std::size_t longest = close[matched_] == token ? matched_ + 1 : matched_;
  const auto ends_with = [&](std::size_t length) {
    return close[length - 1] == token &&
           std::equal(close.begin(), close.begin() + static_cast<std::ptrdiff_t>(length) - 1,
                      close.begin() + static_cast<std::ptrdiff_t>(matched_ + 1 - length));
  };
  while (longest > 0 && !ends_with(longest)) --longest;
  matched_ = longest;
  closed_ = matched_ == close.size();
  close_if_due(token);
}

void ThinkingLimit::close_if_due(std::int32_t last) {
  if (closed_ || closing_ || written_ < budget_->tokens) return;
  closing_ = written_ - budget_->tokens >= budget_->grace ||
             std::ranges::find(budget_->newlines, last) != budget_->newlines.end();
}

}  // namespace tenon::generate
