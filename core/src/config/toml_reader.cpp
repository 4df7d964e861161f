// TOML text -> Value, through toml++ (header-only here: 3 s of compile time, no run-time dependency). Guards
// what toml++ 3.3 leaves open: it recurses without limit over the parts of a dotted key, and a table header
// such as "[=]" breaks one of its own assumptions, which is undefined behaviour with NDEBUG. Its assumptions
// are checked here in every build, and a broken one ends as an ordinary error.
#undef NDEBUG
#include <stdexcept>

namespace {
struct BrokenAssumption : std::logic_error {
  using std::logic_error::logic_error;
};
}  // namespace

#define TOML_ASSERT(condition)                            \
  do {                                                    \
    if (!(condition)) throw BrokenAssumption(#condition); \
  } while (false)
#define TOML_HEADER_ONLY 1
#define TOML_ENABLE_FORMATTERS 0
#define TOML_MAX_NESTED_VALUES 64
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wterminate"  // in its noexcept functions, where the library asserts anyway
#include <toml++/toml.h>
#pragma GCC diagnostic pop

#include "config/key_path.hpp"
#include "config/toml_reader.hpp"

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr int kMaxDepth = 64;
constexpr int kMaxKeyParts = 64;

Origin origin_of(const toml::source_region& region, const std::string& name) {
  return {name, static_cast<int>(region.begin.line), static_cast<int>(region.begin.column)};
}

// Skips a string that opens at text[at]; returns the index behind it. Broken strings end at the line or at
// the text's end: toml++ stops there with its own message, so what follows no longer matters.
std::size_t skip_string(std::string_view text, std::size_t at) {
  const char quote = text[at];
  const std::string triple(3, quote);
  const bool long_form = text.substr(at, 3) == triple;
  at += long_form ? 3 : 1;
  while (at < text.size()) {
    if (quote == '"' && text[at] == '\\') {
      at += 2;
    } else if (long_form ? text.substr(at, 3) == triple : text[at] == quote) {
      return at + (long_form ? 3 : 1);
    } else if (!long_form && text[at] == '\n') {
      return at;
    } else {
      ++at;
    }
  }
  return text.size();
}

// A dotted key with very many parts would exhaust the stack inside toml++ and in its destructors, so the dots
// between two other separators are counted before it sees the text.
void check_key_parts(std::string_view text, const std::string& name) {
  int dots = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"' || c == '\'') {
      at = skip_string(text, at);
      continue;
    }
    if (c == '#') at = std::min(text.find('\n', at), text.size() - 1);
    if (c == '.' && ++dots > kMaxKeyParts) {
      const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n');
      fail_config(fmt::format("{}:{}:1: a key has more than {} parts", printable(name), line, kMaxKeyParts));
    }
    if (c == '#' || std::string_view("=,{}[]\n").find(c) != std::string_view::npos) dots = 0;
    ++at;
  }
}

// Where the only known broken assumption comes from: a header that opens with something other than a key.
Origin broken_header(std::string_view text, const std::string& name) {
  int line = 1;
  for (std::size_t start = 0; start < text.size(); ++line) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::size_t bracket = std::min(text.find_first_not_of(" \t", start), end);
    const std::size_t key = std::min(text.find_first_not_of(" \t[", bracket), end);
    if (bracket < end && text[bracket] == '[' && key < end && text[key] != '"' && text[key] != '\'' &&
        !is_bare_key(text.substr(key, 1))) {
      return {name, line, static_cast<int>(key - start) + 1};
    }
    start = end + 1;
  }
  return {name, 0, 0};
}

class Reader {
 public:
  explicit Reader(const std::string& name) : name_(name) {}

  Value read(const toml::node& node, int depth) const {
    const Origin origin = origin_of(node.source(), name_);
    if (depth > kMaxDepth)
      fail_config(fmt::format("{}: nested deeper than {} levels", origin.text(), kMaxDepth));
    Value value = read_data(node, origin, depth);
    value.origin = origin;
    return value;
  }

 private:
  Value read_data(const toml::node& node, const Origin& origin, int depth) const {
    switch (node.type()) {
      case toml::node_type::boolean:
        return Value(node.as_boolean()->get());
      case toml::node_type::integer:
        return Value(static_cast<std::int64_t>(node.as_integer()->get()));
      case toml::node_type::floating_point:
        return Value(node.as_floating_point()->get());
      case toml::node_type::string:
        return Value(std::string(node.as_string()->get()));
      case toml::node_type::array: {
        Value::Array elements;
        for (const toml::node& element : *node.as_array()) elements.push_back(read(element, depth + 1));
        return Value(std::move(elements));
      }
      case toml::node_type::table:
        return read_table(*node.as_table(), depth);
      default:
        fail_config(
            fmt::format("{}: dates and times are not used here; write a string in quotes", origin.text()));
    }
  }

  // toml++ sorts keys; the order of the file reads better in reports, so it is restored from the positions.
  Value read_table(const toml::table& table, int depth) const {
    Value::Table members;
    for (const auto& [key, node] : table) {
      members.push_back({std::string(key.str()), origin_of(key.source(), name_), read(node, depth + 1)});
    }
    std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
      return std::pair(a.origin.line, a.origin.column) < std::pair(b.origin.line, b.origin.column);
    });
    return Value(std::move(members));
  }

  const std::string& name_;
};

}  // namespace

Value read_toml(std::string_view text, const std::string& name) {
  check_key_parts(text, name);
  try {
    const toml::table table = toml::parse(text, std::string_view(name));
    return Reader(name).read(table, 0);
  } catch (const toml::parse_error& error) {
    const Origin origin = origin_of(error.source(), name);
    fail_config(fmt::format("{}: {}", origin.text(), printable(error.description())));
  } catch (const BrokenAssumption&) {
    fail_config(fmt::format("{}: Error while parsing table header: expected a key",
                            broken_header(text, name).text()));
  }
}

}  // namespace config
TENON_ABI_END
