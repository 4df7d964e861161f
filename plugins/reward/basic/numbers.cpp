#include "numbers.hpp"

#include <cstddef>
#include <limits>

namespace tenon::reward_basic {
namespace {

__extension__ using Wide = __int128;

bool is_digit(char c) noexcept {
  return c >= '0' && c <= '9';
}
bool is_sign(char c) noexcept {
  return c == '+' || c == '-';
}
/// A sign after such a character is that of a difference. Bytes from 128 on are parts of letters.
bool ends_an_operand(char c) noexcept {
  const char lower = static_cast<char>(c | 0x20);
  return is_digit(c) || c == ')' || (lower >= 'a' && lower <= 'z') ||
         (static_cast<unsigned char>(c) & 0x80u) != 0;
}

Wide common_divisor(Wide a, Wide b) noexcept {
  if (a < 0) a = -a;
  while (b != 0) {
    const Wide rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

std::optional<Fraction> reduced(Wide numerator, Wide denominator) noexcept {
  if (denominator == 0) return std::nullopt;
  if (denominator < 0) numerator = -numerator, denominator = -denominator;
  const Wide divisor = common_divisor(numerator, denominator);
  numerator /= divisor, denominator /= divisor;
  const Fraction result{static_cast<std::int64_t>(numerator), static_cast<std::int64_t>(denominator)};
  if (result.numerator != numerator || result.denominator != denominator) return std::nullopt;
  if (result.numerator == std::numeric_limits<std::int64_t>::min()) return std::nullopt;  // has no negative
  return result;
}

/// Where the digits, and the point and digits after them, that begin at `at` end; `at` where there are none.
std::size_t end_of_digits(std::string_view text, std::size_t at) noexcept {
  const auto skip = [&](std::size_t from) {
    while (from < text.size() && is_digit(text[from])) ++from;
    return from;
  };
  const std::size_t whole = skip(at);
  if (whole == at || whole + 1 >= text.size() || text[whole] != '.' || !is_digit(text[whole + 1]))
    return whole;
  return skip(whole + 1);
}

/// Recursive descent over an expression; a member without a value ends all of it.
class Evaluator {
 public:
  explicit Evaluator(std::string_view text) noexcept : rest_(text) {}

  std::optional<Fraction> whole() noexcept {
    const std::optional<Fraction> value = sum();
    return next() == '\0' && rest_.empty() ? value : std::nullopt;
  }

 private:
  static constexpr int kDeepest = 64;

  /// The next character that is no blank; 0 at the end.
  char next() noexcept {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\t')) rest_.remove_prefix(1);
    return rest_.empty() ? '\0' : rest_.front();
  }

  std::optional<Fraction> sum() noexcept {
    std::optional<Fraction> value = product();
    while (value && is_sign(next())) {
      const std::int64_t sign = next() == '-' ? -1 : 1;
      rest_.remove_prefix(1);
      const std::optional<Fraction> term = product();
      const std::optional<Fraction> signed_term = term ? multiply({sign, 1}, *term) : std::nullopt;
      value = signed_term ? add(*value, *signed_term) : std::nullopt;
    }
    return value;
  }

  std::optional<Fraction> product() noexcept {
    std::optional<Fraction> value = factor();
    while (value && (next() == '*' || next() == '/')) {
      const bool divides = next() == '/';
      rest_.remove_prefix(1);
      const std::optional<Fraction> other = factor();
      if (!other) return std::nullopt;
      value = divides ? quotient(*value, *other) : multiply(*value, *other);
    }
    return value;
  }

  static std::optional<Fraction> quotient(const Fraction& a, const Fraction& b) noexcept {
    return reduced(Wide{a.numerator} * b.denominator, Wide{a.denominator} * b.numerator);
  }

  std::optional<Fraction> factor() noexcept {
    if (++depth_ > kDeepest) return std::nullopt;
    std::optional<Fraction> value;
    const char c = next();
    if (is_sign(c)) {
      rest_.remove_prefix(1);
      const std::optional<Fraction> operand = factor();
      if (operand) value = multiply({c == '-' ? -1 : 1, 1}, *operand);
    } else if (c == '(') {
      rest_.remove_prefix(1);
      value = sum();
      if (next() != ')') return std::nullopt;
      rest_.remove_prefix(1);
    } else {
      const std::size_t end = end_of_digits(rest_, 0);
      value = read_number(rest_.substr(0, end));
      rest_.remove_prefix(end);
    }
    --depth_;
    return value;
  }

  std::string_view rest_;
  int depth_ = 0;
};

}  // namespace

bool operator<(const Fraction& a, const Fraction& b) noexcept {
  return Wide{a.numerator} * b.denominator < Wide{b.numerator} * a.denominator;
}

bool Fraction::is_decimal() const noexcept {
  std::int64_t left = denominator;
  for (const std::int64_t prime : {2, 5})
    while (left % prime == 0) left /= prime;
  return left == 1;
}

std::optional<Fraction> add(const Fraction& a, const Fraction& b) noexcept {
  // Each product is below 2^126, and so is half of what the type holds.
  return reduced(Wide{a.numerator} * b.denominator + Wide{b.numerator} * a.denominator,
                 Wide{a.denominator} * b.denominator);
}

std::optional<Fraction> multiply(const Fraction& a, const Fraction& b) noexcept {
  return reduced(Wide{a.numerator} * b.numerator, Wide{a.denominator} * b.denominator);
}

std::optional<Fraction> read_number(std::string_view text) noexcept {
  const bool negative = text.starts_with('-');
  if (!text.empty() && is_sign(text.front())) text.remove_prefix(1);
  if (text.empty() || end_of_digits(text, 0) != text.size()) return std::nullopt;
  constexpr Wide kMost = Wide{1} << 100;
  Wide numerator = 0, denominator = 1;
  bool after_point = false;
  for (const char c : text) {
    if (c == '.') {
      after_point = true;
      continue;
    }
    numerator = numerator * 10 + (c - '0');
    if (after_point) denominator *= 10;
    if (numerator > kMost || denominator > kMost) return std::nullopt;
  }
  return reduced(negative ? -numerator : numerator, denominator);
}

std::vector<std::string_view> numbers_in(std::string_view text) {
  std::vector<std::string_view> found;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!is_digit(text[at])) continue;
    const bool is_signed = at > 0 && is_sign(text[at - 1]) && (at == 1 || !ends_an_operand(text[at - 2]));
    const std::size_t begin = is_signed ? at - 1 : at, end = end_of_digits(text, at);
    found.push_back(text.substr(begin, end - begin));
    at = end - 1;
  }
  return found;
}

std::optional<Fraction> evaluate(std::string_view expression) noexcept {
  return Evaluator(expression).whole();
}

}  // namespace tenon::reward_basic
