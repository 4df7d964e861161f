#include "plugin/option_default.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string_view>

namespace tenon::plugin {
namespace {

void skip_blanks(std::string_view& text) {
  while (!text.empty() && (text[0] == ' ' || text[0] == '\t')) text.remove_prefix(1);
}

// A bare word: up to a blank, comma or bracket.
std::string_view take_word(std::string_view& text) {
  const std::string_view word = text.substr(0, text.find_first_of(" \t,]"));
  text.remove_prefix(word.size());
  return word;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Drops the underscores that TOML allows between two digits; nullopt when one stands elsewhere.
std::optional<std::string> without_underscores(std::string_view word) {
  std::string plain;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] != '_') {
      plain += word[i];
    } else if (i == 0 || i + 1 == word.size() || word[i - 1] == '_' || word[i + 1] == '_') {
      return std::nullopt;
    }
  }
  return plain;
}

template <typename Number>
std::optional<Number> whole_number(std::string_view digits, int base) {
  Number value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
  if (status != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return value;
}

std::optional<std::int64_t> as_integer(std::string_view word) {
  const auto plain = without_underscores(word);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  if (digits.size() > 2 && digits[0] == '0' && digits[2] != '-') {
    const int base = digits[1] == 'x' ? 16 : digits[1] == 'o' ? 8 : digits[1] == 'b' ? 2 : 0;
    if (base != 0) return whole_number<std::int64_t>(digits.substr(2), base);
  }
  if (digits[0] == '+') digits.remove_prefix(1);
  const std::string_view magnitude = digits.substr(!digits.empty() && digits[0] == '-' ? 1 : 0);
  if (magnitude.empty() || !is_digit(magnitude[0]) || (magnitude.size() > 1 && magnitude[0] == '0'))
    return std::nullopt;
  if (plain->front() == '+' && digits[0] == '-') return std::nullopt;
  return whole_number<std::int64_t>(digits, 10);
}

std::optional<double> as_real(std::string_view word) {
  if (const auto whole = as_integer(word)) return static_cast<double>(*whole);
  const auto plain = without_underscores(word);
  if (!plain || plain->empty()) return std::nullopt;
  std::string_view digits = *plain;
  const bool negative = digits[0] == '-';
  if (negative || digits[0] == '+') digits.remove_prefix(1);
  if (digits == "inf") return negative ? -HUGE_VAL : HUGE_VAL;
  if (digits == "nan") return std::nan("");
  // from_chars takes more than TOML does: 1. and .5 and 01.5.
  if (digits.empty() || !is_digit(digits[0])) return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::nullopt;
  const std::size_t point = digits.find('.');
  if (point != std::string_view::npos && (point + 1 == digits.size() || !is_digit(digits[point + 1])))
    return std::nullopt;
  double value = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (status != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return negative ? -value : value;
}

// Takes a quoted string; escapes are checked, and kept as written except for the quote and the backslash.
std::optional<std::string> take_string(std::string_view& text) {
  if (text.empty() || (text[0] != '"' && text[0] != '\'')) return std::nullopt;
  const char quote = text[0];
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    const char c = text[i];
    if (c == quote) {
      text.remove_prefix(i + 1);
      return value;
    }
    if (static_cast<unsigned char>(c) < ' ' && c != '\t') return std::nullopt;
    if (c == '\\' && quote == '"') {
      if (++i == text.size() || std::string_view("btnfr\"\\uU").find(text[i]) == std::string_view::npos)
        return std::nullopt;
      if (text[i] != '"' && text[i] != '\\') value += '\\';
      value += text[i];
      continue;
    }
    value += c;
  }
  return std::nullopt;
}

std::string in_range(const tenon_option_v1& spec, double value) {
  if (!std::isnan(spec.min) && !(value >= spec.min)) return fmt::format("is below the minimum {}", spec.min);
  if (!std::isnan(spec.max) && !(value <= spec.max)) return fmt::format("is above the maximum {}", spec.max);
  return "";
}

std::string among_choices(const tenon_option_v1& spec, const std::string& value) {
  if (spec.choices == nullptr) return "";
  for (const char* const* choice = spec.choices; *choice != nullptr; ++choice) {
    if (value == *choice) return "";
  }
  return "is not among the choices";
}

std::string take_scalar(const tenon_option_v1& spec, std::uint32_t type, std::string_view& text) {
  switch (type) {
    case TENON_OPTION_BOOL: {
      const std::string_view word = take_word(text);
      return word == "true" || word == "false" ? "" : "is not true or false";
    }
    case TENON_OPTION_INT: {
      const auto value = as_integer(take_word(text));
      return value ? in_range(spec, static_cast<double>(*value)) : "is not a whole number";
    }
    case TENON_OPTION_REAL: {
      const auto value = as_real(take_word(text));
      return value ? in_range(spec, *value) : "is not a number";
    }
    default: {
      const auto value = take_string(text);
      return value ? among_choices(spec, *value) : "is not a quoted string";
    }
  }
}

std::string take_list(const tenon_option_v1& spec, std::uint32_t element, std::string_view& text) {
  if (text.empty() || text[0] != '[') return "is not a list";
  text.remove_prefix(1);
  while (true) {
    skip_blanks(text);
    if (!text.empty() && text[0] == ']') break;
    std::string problem = take_scalar(spec, element, text);
    if (!problem.empty()) return "has an element that " + problem;
    skip_blanks(text);
    if (text.empty() || (text[0] != ',' && text[0] != ']')) return "is not a list";
    if (text[0] == ',') text.remove_prefix(1);
  }
  text.remove_prefix(1);
  return "";
}

}  // namespace

std::string default_problem(const tenon_option_v1& spec) {
  std::string_view text = spec.default_toml;
  skip_blanks(text);
  std::string problem;
  switch (spec.type) {
    case TENON_OPTION_INT_LIST:
      problem = take_list(spec, TENON_OPTION_INT, text);
      break;
    case TENON_OPTION_REAL_LIST:
      problem = take_list(spec, TENON_OPTION_REAL, text);
      break;
    case TENON_OPTION_TEXT_LIST:
      problem = take_list(spec, TENON_OPTION_TEXT, text);
      break;
    case TENON_OPTION_COMPONENT:
      return "a component option takes no default";
    case TENON_OPTION_SECTIONS:
      return "a sections option takes no default";
    default:
      problem = take_scalar(spec, spec.type, text);
      break;
  }
  skip_blanks(text);
  if (problem.empty() && !text.empty()) problem = "is followed by more text";
  return problem.empty() ? "" : fmt::format("the default {} {}", spec.default_toml, problem);
}

}  // namespace tenon::plugin
