#include "exact.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace tenon::reward_basic {
namespace {

/// What a sample asks for.
struct Expected {
  bool is_list = false;
  std::vector<Fraction> values;  ///< one, unless it is a list
};

/// A number of a sample. JSON has no decimals: a real number counts as the shortest one that reads back as
/// it.
Fraction number_of(const Value& value, std::string_view name) {
  std::optional<Fraction> number;
  if (value.type() == Value::Type::kInteger) number = Fraction{value.integer(), 1};
  if (value.type() == Value::Type::kReal) number = read_number(fmt::format("{}", value.real()));
  if (value.is_text()) number = read_number(trimmed(value.text()));
  if (!number)
    refuse_field(value, name,
                 "a number, such as 42, -0.5 or \"42\", of at most 18 digits and without an exponent");
  return *number;
}

/// The numbers of a list of a sample; one at least.
std::vector<Fraction> numbers_of(const Value& value, std::string_view name) {
  if (!value.is_array() || value.array().empty()) refuse_field(value, name, "a list of one or more numbers");
  std::vector<Fraction> numbers;
  for (const Value& entry : value.array()) numbers.push_back(number_of(entry, name));
  return numbers;
}

Fraction value_of_expression(const Value& value) {
  constexpr std::string_view kName = "expression";
  std::optional<Fraction> result;
  if (value.is_text()) result = evaluate(value.text());
  if (!result)
    refuse_field(
        value, kName,
        "numbers, + - * / and parentheses, such as \"3 * (4 + 5)\", with a value of at most 18 digits");
  if (!result->is_decimal())
    refuse_field(value, kName,
                 fmt::format("a value that digits after a point can write, not {}/{}", result->numerator,
                             result->denominator));
  return *result;
}

Fraction sum_of(const Value& value) {
  std::optional<Fraction> sum = Fraction{};
  for (const Fraction& term : numbers_of(value, "terms")) sum = sum ? add(*sum, term) : sum;
  if (!sum) refuse_field(value, "terms", "numbers whose sum has at most 18 digits");
  return *sum;
}

Expected expected_of(const RewardSample& given) {
  constexpr std::string_view kReward = "reward exact";
  const Value* const check = given.sample == nullptr ? nullptr : given.sample->find("check");
  if (check != nullptr && !check->is_text()) refuse_field(*check, "check", "a text");
  const std::string kind = check == nullptr ? "number" : check->text();
  if (kind == "number") return {false, {number_of(field(given, kReward, "answer"), "answer")}};
  if (kind == "expression") return {false, {value_of_expression(field(given, kReward, "expression"))}};
  if (kind == "sum") return {false, {sum_of(field(given, kReward, "terms"))}};
  if (kind != "sorted") refuse_field(*check, "check", "one of 'number', 'expression', 'sum', 'sorted'");
  Expected list{true, numbers_of(field(given, kReward, "list"), "list")};
  std::sort(list.values.begin(), list.values.end());
  return list;
}

/// Whether nothing but blanks and commas is between two numbers of one text.
bool are_neighbours(std::string_view before, std::string_view after) {
  const char* const end = before.data() + before.size();
  const std::string_view between(end, static_cast<std::size_t>(after.data() - end));
  return between.find_first_not_of(" \t,") == std::string_view::npos;
}

/// The last numbers of a text that are a list.
std::vector<std::string_view> last_list(std::string_view text) {
  std::vector<std::string_view> numbers = numbers_in(text);
  std::size_t begin = numbers.empty() ? 0 : numbers.size() - 1;
  while (begin > 0 && are_neighbours(numbers[begin - 1], numbers[begin])) --begin;
  numbers.erase(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(begin));
  return numbers;
}

/// The entries of a text that is a list and nothing else: "1, 2, 3", "1 2 3" or either in brackets. An entry
/// may be no number.
std::vector<std::string_view> whole_list(std::string_view text) {
  if (text.starts_with('[') && text.ends_with(']') && text.size() > 1) text = text.substr(1, text.size() - 2);
  std::vector<std::string_view> entries;
  constexpr std::string_view kBetween = " \t,";
  for (std::size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const std::size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    entries.push_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBetween, end);
  }
  return entries;
}

}  // namespace

Exact::Exact(const Options& options)
    : RewardBase(options),
      read_(options.choice("read", kReads)),
      marker_(options.has("marker") ? options.text("marker") : ""),
      needs_marker_(options.boolean("needs_marker")),
      right_(options.real("right")),
      wrong_(options.real("wrong")) {}

void Exact::score(const RewardSample& given, RewardParts& parts) const {
  const Expected expected = expected_of(given);
  const std::optional<std::string_view> text = read_part(given.answer);
  const bool right = text && (expected.is_list ? is_list(*text, expected.values)
                                               : is_number(*text, expected.values.front()));
  parts.add(name(), right ? right_ : wrong_);
}

std::optional<std::string_view> Exact::read_part(std::string_view answer) const {
  if (marker_.empty()) return trimmed(answer);
  const std::size_t at = answer.rfind(marker_);
  if (at != std::string_view::npos) return trimmed(answer.substr(at + marker_.size()));
  return needs_marker_ ? std::nullopt : std::optional(trimmed(answer));
}

bool Exact::is_number(std::string_view text, const Fraction& expected) const {
  if (read_ == Read::kWhole) return read_number(text) == expected;
  const std::vector<std::string_view> numbers = numbers_in(text);
  return !numbers.empty() && read_number(numbers.back()) == expected;
}

bool Exact::is_list(std::string_view text, const std::vector<Fraction>& expected) const {
  const std::vector<std::string_view> entries = read_ == Read::kWhole ? whole_list(text) : last_list(text);
  std::vector<Fraction> numbers;
  for (const std::string_view entry : entries) {
    const std::optional<Fraction> number = read_number(entry);
    if (!number) return false;
    numbers.push_back(*number);
  }
  return numbers == expected;
}

}  // namespace tenon::reward_basic
