// A single TOML value from text that is no file: defaults of option specs, `--set`.
#include "config/key_path.hpp"
#include "config/toml_reader.hpp"

#include <fmt/format.h>

#include <optional>

TENON_ABI_BEGIN

Value parse_value(std::string_view text, const Origin& origin) {
  static constexpr std::string_view kPrefix = "value = ";
  std::string document(kPrefix);
  document += text;
  Value table;
  std::optional<std::string> problem;
  try {
    table = config::read_toml(document, "value");
  } catch (const Error& error) {
    problem = error.what();
  }
  // More than one key: the text held a line break and another assignment.
  if (problem || table.table().size() != 1 || table.find("value") == nullptr) {
    fail_config(fmt::format("{}: '{}' is not a TOML value{}", origin.text(), config::printable(text),
                            problem ? " (" + problem->substr(problem->find(": ") + 2) + ")" : ""));
  }
  struct Restamp {
    const Origin& origin;
    void operator()(Value& value) const {
      value.origin = origin;
      if (value.is_array()) {
        for (Value& element : value.array()) (*this)(element);
      } else if (value.is_table()) {
        for (Member& member : value.table()) {
          member.origin = origin;
          (*this)(member.value);
        }
      }
    }
  };
  Value value = std::move(*table.find("value"));
  Restamp{origin}(value);
  return value;
}

TENON_ABI_END
