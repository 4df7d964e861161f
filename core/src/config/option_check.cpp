// Type, range and choices of a single value.
#include "config/option_check.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr bool is_list(std::uint32_t type) {
  return (type >= TENON_OPTION_INT_LIST && type <= TENON_OPTION_TEXT_LIST) || type == TENON_OPTION_PATH_LIST;
}

// Returns the type of a list's elements; other types are returned as they are.
constexpr std::uint32_t element_type(std::uint32_t type) {
  switch (type) {
    case TENON_OPTION_INT_LIST:
      return TENON_OPTION_INT;
    case TENON_OPTION_REAL_LIST:
      return TENON_OPTION_REAL;
    case TENON_OPTION_TEXT_LIST:
      return TENON_OPTION_TEXT;
    case TENON_OPTION_PATH_LIST:
      return TENON_OPTION_PATH;
    default:
      return type;
  }
}

const char* plain_expectation(std::uint32_t type) {
  switch (type) {
    case TENON_OPTION_BOOL:
      return "true or false";
    case TENON_OPTION_INT:
      return "a whole number";
    case TENON_OPTION_REAL:
      return "a number";
    case TENON_OPTION_TEXT:
      return "a string";
    case TENON_OPTION_PATH:
      return "a path (a string)";
    case TENON_OPTION_INT_LIST:
      return "a list of whole numbers";
    case TENON_OPTION_REAL_LIST:
      return "a list of numbers";
    case TENON_OPTION_TEXT_LIST:
      return "a list of strings";
    case TENON_OPTION_PATH_LIST:
      return "a list of paths (strings)";
    case TENON_OPTION_SECTIONS:
      return "tables under names of your own";
    case TENON_OPTION_TABLES:
      return "an array of tables";
    default:
      return "a table with its own 'type'";
  }
}

std::string range_text(const tenon_option_v1& spec) {
  const bool low = !std::isnan(spec.min), high = !std::isnan(spec.max);
  std::string text = low && high ? fmt::format(" from {} to {}", spec.min, spec.max)
                     : low       ? fmt::format(" of at least {}", spec.min)
                     : high      ? fmt::format(" of at most {}", spec.max)
                                 : "";
  if (!text.empty() && spec.unit != nullptr && *spec.unit != '\0') text += fmt::format(" {}", spec.unit);
  return text;
}

/// "a list of numbers", "a list of 2 numbers", "an array of tables, each with its own 'type'".
std::string typed_expectation(const tenon_option_v1& spec) {
  if (spec.type == TENON_OPTION_COMPONENT && (spec.flags & TENON_OPTION_LIST) != 0)
    return "an array of tables, each with its own 'type'";
  std::string text = plain_expectation(spec.type);
  if (spec.length != 0) text.insert(std::string_view("a list of ").size(), fmt::format("{} ", spec.length));
  return text;
}

std::vector<std::string> choices_of(const tenon_option_v1& spec) {
  std::vector<std::string> out;
  for (const char* const* choice = spec.choices; choice != nullptr && *choice != nullptr; ++choice)
    out.emplace_back(*choice);
  return out;
}

std::string joined_choices(const tenon_option_v1& spec) {
  const std::vector<std::string> choices = choices_of(spec);
  return choices.empty() ? "" : fmt::format("'{}'", fmt::join(choices, "', '"));
}

bool has_type(const Value& value, std::uint32_t scalar) {
  switch (scalar) {
    case TENON_OPTION_BOOL:
      return value.type() == Value::Type::kBoolean;
    case TENON_OPTION_INT:
      return value.type() == Value::Type::kInteger;
    case TENON_OPTION_REAL:
      return value.type() == Value::Type::kReal || value.type() == Value::Type::kInteger;
    default:
      return value.is_text();
  }
}

class Checker {
 public:
  Checker(const tenon_option_v1& spec, const std::string& owner, std::vector<std::string>& problems)
      : spec_(spec), owner_(owner), problems_(problems) {}

  bool scalar(const Value& value, const std::string& name) {
    const std::uint32_t type = element_type(spec_.type);
    const std::string what = fmt::format("{}option '{}' of {}", place(value.origin), name, owner_);
    if (!has_type(value, type)) {
      std::string help;
      if (type == TENON_OPTION_INT && value.type() == Value::Type::kReal) {
        const double real = value.real();
        if (real == std::floor(real) && std::abs(real) < 1e15)
          help = fmt::format("; write {}", static_cast<std::int64_t>(real));
      } else if (type == TENON_OPTION_BOOL && value.is_text() &&
                 (value.text() == "true" || value.text() == "false")) {
        help = fmt::format("; write {} without quotes", value.text());
      }
      problems_.push_back(fmt::format("{}: expected {}, found {}{}", what, plain_expectation(type),
                                      value.description(), help));
      return false;
    }
    if (type == TENON_OPTION_INT || type == TENON_OPTION_REAL) return in_range(value, what, type);
    if (type == TENON_OPTION_TEXT) return is_choice(value, what);
    return true;
  }

  std::optional<CheckedValue> list(const Value& value) {
    if (!value.is_array()) {
      problems_.push_back(fmt::format("{}option '{}' of {}: expected {}, found {}", place(value.origin),
                                      spec_.name, owner_, typed_expectation(spec_), value.description()));
      return std::nullopt;
    }
    if (spec_.length != 0 && value.array().size() != spec_.length) {
      problems_.push_back(fmt::format("{}option '{}' of {} is {}; expected {}", place(value.origin),
                                      spec_.name, owner_, value.inline_toml(), typed_expectation(spec_)));
      return std::nullopt;
    }
    bool good = true;
    for (std::size_t i = 0; i < value.array().size(); ++i) {
      good = scalar(value.array()[i], fmt::format("{}[{}]", spec_.name, i)) && good;
    }
    if (!good) return std::nullopt;
    CheckedValue out{{}, value};
    const auto collect = [&]<typename T>(std::vector<T> items, auto read) {
      for (const Value& element : value.array()) items.push_back(read(element));
      out.datum = std::move(items);
    };
    switch (spec_.type) {
      case TENON_OPTION_INT_LIST:
        collect(std::vector<std::int64_t>{}, [](const Value& v) { return v.integer(); });
        break;
      case TENON_OPTION_REAL_LIST:
        collect(std::vector<double>{}, [](const Value& v) { return v.real(); });
        for (Value& element : out.shown.array()) element = as_real(element);
        break;
      default:
        collect(std::vector<std::string>{}, [](const Value& v) { return v.text(); });
    }
    return out;
  }

  static Value as_real(const Value& value) {
    Value real(value.real());
    real.origin = value.origin;
    real.earlier = value.earlier;
    return real;
  }

 private:
  bool in_range(const Value& value, const std::string& what, std::uint32_t type) {
    const double number = value.real();
    // NaN passes no comparison, so it is refused even where the range is open.
    const bool good = !std::isnan(number) && !(number < spec_.min) && !(number > spec_.max);
    if (!good) {
      problems_.push_back(fmt::format("{} is {}; expected {}{}", what, value.inline_toml(),
                                      plain_expectation(type), range_text(spec_)));
    }
    return good;
  }

  bool is_choice(const Value& value, const std::string& what) {
    const std::vector<std::string> choices = choices_of(spec_);
    if (choices.empty() || std::find(choices.begin(), choices.end(), value.text()) != choices.end())
      return true;
    problems_.push_back(fmt::format("{} is {}; expected one of {}{}", what, config::quoted(value.text()),
                                    joined_choices(spec_), suggestion(value.text(), choices)));
    return false;
  }

  const tenon_option_v1& spec_;
  const std::string& owner_;
  std::vector<std::string>& problems_;
};

}  // namespace

std::string place(const Origin& origin) {
  return origin.file.empty() ? "" : origin.text() + ": ";
}

std::string expectation(const tenon_option_v1& spec) {
  const std::string choices = joined_choices(spec);
  if (!choices.empty() && !is_list(spec.type)) return "one of " + choices;
  return typed_expectation(spec) + range_text(spec);
}

std::optional<CheckedValue> check_value(const tenon_option_v1& spec, const Value& value,
                                        const std::string& owner, std::vector<std::string>& problems) {
  Checker checker(spec, owner, problems);
  if (is_list(spec.type)) return checker.list(value);
  if (!checker.scalar(value, spec.name)) return std::nullopt;
  switch (spec.type) {
    case TENON_OPTION_BOOL:
      return CheckedValue{value.boolean(), value};
    case TENON_OPTION_INT:
      return CheckedValue{value.integer(), value};
    case TENON_OPTION_REAL:
      return CheckedValue{value.real(), Checker::as_real(value)};
    default:
      return CheckedValue{value.text(), value};
  }
}

}  // namespace config
TENON_ABI_END
