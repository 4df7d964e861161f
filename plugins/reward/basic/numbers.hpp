// Numbers in texts, read strictly and compared exactly: as fractions, because 0.1 + 0.2 is 0.3 in a sum that
// a child writes down. Also the values of expressions. Nothing here throws: a text that is no number has no
// value.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tenon::reward_basic {

/// A fraction in lowest terms with a positive denominator, so equal values are equal members.
struct Fraction {
  std::int64_t numerator = 0, denominator = 1;

  friend bool operator==(const Fraction&, const Fraction&) = default;
  friend bool operator<(const Fraction& a, const Fraction& b) noexcept;
  /// Whether digits after a point can write it: no prime but 2 and 5 divides the denominator.
  bool is_decimal() const noexcept;
};

/// Nothing when a member leaves 64 bits.
std::optional<Fraction> add(const Fraction& a, const Fraction& b) noexcept;
std::optional<Fraction> multiply(const Fraction& a, const Fraction& b) noexcept;

/// The value of a text that is a number and nothing else: an optional sign, digits, and optionally a point
/// with digits after it. Nothing for any other text, and for values beyond 64 bits.
std::optional<Fraction> read_number(std::string_view text) noexcept;

/// The numbers of a text in their order, as views of it. A sign belongs to a number unless a digit, a letter
/// or a closing parenthesis stands right before it: there it is a difference.
std::vector<std::string_view> numbers_in(std::string_view text);

/// The value of numbers, + - * /, signs and parentheses, with the usual precedence, and blanks between them.
/// Nothing for any other text, for a division by zero, for more than 64 parentheses inside each other, and
/// for values beyond 64 bits on the way.
std::optional<Fraction> evaluate(std::string_view expression) noexcept;

}  // namespace tenon::reward_basic
