// The bytes of an answer as its tokens arrive: it ends before the first stop text, which it does not hold,
// and so much of it may be printed as no stop text can begin in.
#pragma once

#include <tenon/abi.hpp>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

class AnswerText {
 public:
  /// stops: none of them empty.
  explicit AnswerText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  /// Says whether the answer goes on: no stop text is complete. Not after it has ended.
  bool add(std::string_view bytes);
  /// Up to the first stop text.
  const std::string& text() const { return text_; }
  /// What may be printed now and was not returned before; `all`: the rest, as no token follows.
  std::string_view take(bool all);

 private:
  /// Bytes at the end with which a stop text may begin.
  std::size_t open() const;

  std::vector<std::string> stops_;
  std::string text_;
  std::size_t taken_ = 0;
  bool stopped_ = false;
};

TENON_ABI_END
