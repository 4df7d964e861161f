// Defaults of options, then the descriptor from its sizes to its options; descriptions and their line form.
#include "plugin/descriptor.hpp"

#include "config/words.hpp"

#include <tenon/plugin.hpp>

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
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
  std::uint32_t count = 0;
  while (true) {
    skip_blanks(text);
    if (!text.empty() && text[0] == ']') break;
    std::string problem = take_scalar(spec, element, text);
    if (!problem.empty()) return "has an element that " + problem;
    ++count;
    skip_blanks(text);
    if (text.empty() || (text[0] != ',' && text[0] != ']')) return "is not a list";
    if (text[0] == ',') text.remove_prefix(1);
  }
  text.remove_prefix(1);
  if (spec.length != 0 && count != spec.length)
    return fmt::format("has {} element(s), and the length is {}", count, spec.length);
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
    case TENON_OPTION_PATH_LIST:
      problem = take_list(spec, TENON_OPTION_TEXT, text);
      break;
    case TENON_OPTION_COMPONENT:
      return "a component option takes no default";
    case TENON_OPTION_SECTIONS:
    case TENON_OPTION_TABLES:
      return "an option of tables takes no default";
    default:
      problem = take_scalar(spec, spec.type, text);
      break;
  }
  skip_blanks(text);
  if (problem.empty() && !text.empty()) problem = "is followed by more text";
  return problem.empty() ? "" : fmt::format("the default {} {}", spec.default_toml, problem);
}

namespace {

using detail::is_component_id;

bool is_valid_utf8(std::string_view text) {
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const std::size_t length = lead < 0x80                   ? 1
                               : lead >= 0xC2 && lead < 0xE0 ? 2
                               : lead >= 0xE0 && lead < 0xF0 ? 3
                               : lead >= 0xF0 && lead < 0xF5 ? 4
                                                             : 0;
    if (length == 0 || length > text.size() - i) return false;
    for (std::size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return false;
    }
    i += length;
  }
  return true;
}

std::string text_problem(std::string_view field, const char* text) {
  if (text == nullptr || *text == '\0') return fmt::format("{} is missing", field);
  if (!is_valid_utf8(text)) return fmt::format("{} is not UTF-8", field);
  return "";
}

bool is_kind(std::string_view kind) {
  const std::size_t slash = kind.find('/');
  if (slash == std::string_view::npos || !is_component_id(kind.substr(0, slash))) return false;
  const std::string_view version = kind.substr(slash + 1);
  return !version.empty() && version.size() < 6 && version[0] != '0' &&
         version.find_first_not_of("0123456789") == std::string_view::npos;
}

// vendor.name: two words of lower case, digits, '_' and '-'.
bool is_plugin_id(std::string_view id) {
  const std::size_t dot = id.find('.');
  if (dot == std::string_view::npos || dot == 0 || dot + 1 == id.size()) return false;
  return id.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-.") == std::string_view::npos &&
         id.find('.', dot + 1) == std::string_view::npos;
}

// Three numbers, and whatever follows them after '-' or '+'.
bool is_version(std::string_view version) {
  version = version.substr(0, version.find_first_of("-+"));
  int numbers = 0;
  while (true) {
    const std::size_t dot = version.find('.');
    const std::string_view number = version.substr(0, dot);
    if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos) return false;
    ++numbers;
    if (dot == std::string_view::npos) return numbers == 3;
    version.remove_prefix(dot + 1);
  }
}

bool is_list(std::uint32_t type) {
  return (type >= TENON_OPTION_INT_LIST && type <= TENON_OPTION_TEXT_LIST) || type == TENON_OPTION_PATH_LIST;
}

std::string option_problem(const tenon_option_v1& option, std::set<std::string_view>& names) {
  if (option.struct_size < sizeof(tenon_option_v1)) {
    return fmt::format("an option has struct_size {}, expected at least {}", option.struct_size,
                       sizeof(tenon_option_v1));
  }
  if (option.name == nullptr || !is_component_id(option.name)) {
    return fmt::format("option name '{}' is not a lower-case letter followed by lower case, digits and '_'",
                       option.name == nullptr ? "" : option.name);
  }
  const auto at = [&](std::string_view text) { return fmt::format("option '{}': {}", option.name, text); };
  if (std::string_view(option.name) == "type") return at("the name is reserved by the core");
  if (!names.insert(option.name).second) return at("the name is declared twice");
  for (const char* const* old = option.old_names; old != nullptr && *old != nullptr; ++old) {
    if (!names.insert(*old).second) return at(fmt::format("the old name '{}' is declared twice", *old));
  }
  if (option.type > TENON_OPTION_TABLES) return at(fmt::format("the type {} is unknown", option.type));
  if (option.unit == nullptr) return at("unit is missing; \"\" means none");
  if (option.doc == nullptr) return at("doc is missing");
  if (auto problem = text_problem("since", option.since); !problem.empty()) return at(problem);
  const bool numeric = option.type == TENON_OPTION_INT || option.type == TENON_OPTION_REAL ||
                       option.type == TENON_OPTION_INT_LIST || option.type == TENON_OPTION_REAL_LIST;
  if (!numeric && !(std::isnan(option.min) && std::isnan(option.max))) return at("only numbers have a range");
  if (option.min > option.max) return at(fmt::format("the range {} to {} is empty", option.min, option.max));
  const bool textual = option.type == TENON_OPTION_TEXT || option.type == TENON_OPTION_TEXT_LIST;
  if (option.choices != nullptr && (!textual || *option.choices == nullptr)) {
    return at("choices are a non-empty list, and only texts have them");
  }
  if ((option.type == TENON_OPTION_COMPONENT) != (option.component_kind != nullptr)) {
    return at("component_kind goes with the type component, and only with it");
  }
  if ((option.flags & TENON_OPTION_LIST) != 0 && option.type != TENON_OPTION_COMPONENT)
    return at("the flag of lists goes with the type component, and only with it");
  if (option.component_kind != nullptr && !is_kind(option.component_kind)) {
    return at(fmt::format("component_kind '{}' is not of the form 'sync/1'", option.component_kind));
  }
  const bool of_tables = option.type == TENON_OPTION_SECTIONS || option.type == TENON_OPTION_TABLES;
  if (of_tables != (option.section_options != nullptr)) {
    return at("section_options go with the types sections and tables, and only with them");
  }
  if (option.length != 0 && !is_list(option.type)) return at("only lists have a length");
  std::set<std::string_view> of_section;
  for (auto inner = option.section_options; inner != nullptr && *inner != nullptr; ++inner) {
    const std::uint32_t held = (*inner)->type;
    if (held == TENON_OPTION_COMPONENT || held == TENON_OPTION_SECTIONS || held == TENON_OPTION_TABLES)
      return at("a section holds neither components nor tables");
    if (auto problem = option_problem(**inner, of_section); !problem.empty()) return at(problem);
  }
  if (option.default_toml == nullptr) return "";
  if ((option.flags & TENON_OPTION_REQUIRED) != 0) return at("a required option takes no default");
  const std::string problem = default_problem(option);
  return problem.empty() ? "" : at(problem);
}

// Inputs come first, and what may be left out or repeated comes last.
std::string ports_problem(const tenon_component_v1& component) {
  const tenon_port_v1* before = nullptr;
  for (auto each = component.ports; each != nullptr && *each != nullptr; ++each) {
    const tenon_port_v1& port = **each;
    if (port.struct_size < sizeof(tenon_port_v1)) {
      return fmt::format("a port has struct_size {}, expected at least {}", port.struct_size,
                         sizeof(tenon_port_v1));
    }
    if (port.name == nullptr || !is_component_id(port.name)) {
      return fmt::format("port name '{}' is not a lower-case letter followed by lower case, digits and '_'",
                         port.name == nullptr ? "" : port.name);
    }
    const auto at = [&](std::string_view text) { return fmt::format("port '{}': {}", port.name, text); };
    if (component.kind != std::string_view("layer/1")) return at("only layers have inputs and outputs");
    for (const auto& [field, text] :
         {std::pair{"dtypes", port.dtypes}, {"shape", port.shape}, {"doc", port.doc}})
      if (text == nullptr) return at(fmt::format("{} is missing; \"\" means none", field));
    if (port.flags > (TENON_PORT_OUTPUT | TENON_PORT_OPTIONAL | TENON_PORT_REPEATED))
      return at(fmt::format("the flags {} are unknown", port.flags));
    const bool same_side = before != nullptr && ((before->flags ^ port.flags) & TENON_PORT_OUTPUT) == 0;
    if (before != nullptr && !same_side && (port.flags & TENON_PORT_OUTPUT) == 0)
      return at("an input follows an output");
    if (same_side && (before->flags & TENON_PORT_REPEATED) != 0) return at("it follows a repeated one");
    if (same_side && (before->flags & TENON_PORT_OPTIONAL) != 0 && (port.flags & TENON_PORT_OPTIONAL) == 0)
      return at("it follows an optional one and is not optional");
    before = &port;
  }
  return "";
}

std::string component_problem(const tenon_component_v1& component, std::set<std::string>& taken) {
  if (component.struct_size < sizeof(tenon_component_v1)) {
    return fmt::format("a component has struct_size {}, expected at least {}", component.struct_size,
                       sizeof(tenon_component_v1));
  }
  if (component.kind == nullptr || !is_kind(component.kind)) {
    return fmt::format("component kind '{}' is not of the form 'optimizer/1'",
                       component.kind == nullptr ? "" : component.kind);
  }
  if (component.id == nullptr || !is_component_id(component.id)) {
    return fmt::format("component id '{}' is not a lower-case letter followed by lower case, digits and '_'",
                       component.id == nullptr ? "" : component.id);
  }
  const std::string name = component_name(component.kind, component.id);
  const auto at = [&](std::string_view text) { return fmt::format("component {}: {}", name, text); };
  if (!taken.insert(name).second) return at("the id is declared twice");
  for (const char* const* alias = component.aliases; alias != nullptr && *alias != nullptr; ++alias) {
    if (!is_component_id(*alias)) return at(fmt::format("alias '{}' is not a component id", *alias));
    if (!taken.insert(component_name(component.kind, *alias)).second) {
      return at(fmt::format("the alias '{}' is declared twice", *alias));
    }
  }
  if (component.maturity > TENON_DEPRECATED)
    return at(fmt::format("the maturity {} is unknown", component.maturity));
  if (auto problem = text_problem("summary", component.summary); !problem.empty()) return at(problem);
  if (component.create == nullptr) return at("create is missing");
  if (component.destroy == nullptr) return at("destroy is missing");
  if (component.query == nullptr) return at("query is missing");
  std::set<std::string_view> names;
  for (auto option = component.options; option != nullptr && *option != nullptr; ++option) {
    if (auto problem = option_problem(**option, names); !problem.empty()) return at(problem);
  }
  const std::string problem = ports_problem(component);
  return problem.empty() ? "" : at(problem);
}

}  // namespace

std::string_view vendor_of(std::string_view plugin_id) {
  return plugin_id.substr(0, plugin_id.find('.'));
}

std::string component_name(std::string_view kind, std::string_view id) {
  return fmt::format("{}.{}", config::kind_name(kind), id);
}

std::optional<Need> parse_need(std::string_view text) {
  Need need;
  const std::size_t sign = text.find(">=");
  std::string_view id = text.substr(0, sign);
  while (!id.empty() && id.back() == ' ') id.remove_suffix(1);
  need.id = id;
  if (!is_plugin_id(id)) return std::nullopt;
  if (sign == std::string_view::npos) return need;
  std::string_view least = text.substr(sign + 2);
  while (!least.empty() && least.front() == ' ') least.remove_prefix(1);
  need.least = least;
  if (least.empty() || least.find_first_not_of("0123456789.") != std::string_view::npos ||
      least.back() == '.')
    return std::nullopt;
  return need;
}

bool is_version_at_least(std::string_view have, std::string_view least) {
  const auto next = [](std::string_view& text) {
    long number = 0;
    std::size_t digits = 0;
    for (; digits < text.size() && text[digits] >= '0' && text[digits] <= '9'; ++digits)
      number = std::min(number * 10 + (text[digits] - '0'), 1'000'000'000L);
    text.remove_prefix(std::min(text.size(), digits + 1));
    return number;
  };
  have = have.substr(0, have.find_first_of("-+"));
  while (!least.empty()) {
    const long a = next(have), b = next(least);
    if (a != b) return a > b;
  }
  return true;
}

std::string descriptor_problem(const tenon_plugin_v1_t& plugin) {
  if (plugin.magic != TENON_PLUGIN_ABI_MAGIC) {
    return fmt::format("magic is {:#018x}, expected {:#018x}", plugin.magic,
                       std::uint64_t{TENON_PLUGIN_ABI_MAGIC});
  }
  if (plugin.struct_size < sizeof(tenon_plugin_v1_t)) {
    return fmt::format("struct_size is {}, expected at least {}", plugin.struct_size,
                       sizeof(tenon_plugin_v1_t));
  }
  if (plugin.abi_epoch != TENON_ABI_EPOCH) {
    return fmt::format("abi_epoch is {}, expected {}", plugin.abi_epoch, TENON_ABI_EPOCH);
  }
  const std::pair<std::string_view, const char*> mandatory[] = {
      {"abi_tag", plugin.abi_tag}, {"id", plugin.id},         {"version", plugin.version},
      {"summary", plugin.summary}, {"vendor", plugin.vendor}, {"licence", plugin.licence}};
  for (const auto& [field, text] : mandatory) {
    if (auto problem = text_problem(field, text); !problem.empty()) return problem;
  }
  if (plugin.url == nullptr) return "url is missing; \"\" means none";
  if (!is_plugin_id(plugin.id)) {
    return fmt::format("id '{}' is not of the form 'vendor.name' in lower case, digits, '_' and '-'",
                       plugin.id);
  }
  if (!is_version(plugin.version))
    return fmt::format("version '{}' is not of the form '1.2.3'", plugin.version);
  for (auto need = plugin.needs; need != nullptr && *need != nullptr; ++need) {
    if (!parse_need(*need))
      return fmt::format("it needs '{}', which is not of the form 'vendor.name' or 'vendor.name >= 1.2'",
                         *need);
  }
  if (plugin.components == nullptr || *plugin.components == nullptr) return "it offers no component";
  std::set<std::string> taken;
  for (auto component = plugin.components; *component != nullptr; ++component) {
    if (auto problem = component_problem(**component, taken); !problem.empty()) return problem;
  }
  return "";
}

namespace {

std::vector<std::string> texts(const char* const* list) {
  std::vector<std::string> result;
  for (; list != nullptr && *list != nullptr; ++list) result.emplace_back(*list);
  return result;
}

OptionDescription describe(const tenon_option_v1& option) {
  OptionDescription result;
  result.name = option.name;
  result.type = option.type;
  result.flags = option.flags;
  if (option.default_toml != nullptr) result.default_toml = option.default_toml;
  result.min = option.min;
  result.max = option.max;
  result.choices = texts(option.choices);
  result.unit = option.unit;
  result.doc = option.doc;
  result.since = option.since;
  if (option.component_kind != nullptr) result.component_kind = option.component_kind;
  result.old_names = texts(option.old_names);
  for (auto inner = option.section_options; inner != nullptr && *inner != nullptr; ++inner)
    result.section.push_back(describe(**inner));
  result.length = option.length;
  return result;
}

// The line form: a key, then words.
class LineWriter {
 public:
  template <typename... Words>
  void line(std::string_view key, const Words&... words) {
    text_ += key;
    (add(words), ...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  void add(std::string_view word) {
    text_ += '\t';
    for (char c : word) {
      if (c == '\t')
        text_ += "\\t";
      else if (c == '\n')
        text_ += "\\n";
      else if (c == '\\')
        text_ += "\\\\";
      else
        text_ += c;
    }
  }
  void add(std::uint64_t number) { text_ += fmt::format("\t{}", number); }
  // Bits, so that NaN and every other value come back as they were.
  void add(double number) {
    std::uint64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    add(bits);
  }
  void add(const std::vector<std::string>& words) {
    add(static_cast<std::uint64_t>(words.size()));
    for (const std::string& word : words) add(word);
  }
  std::string text_;
};

// Reads the words of one line; after a misreading everything is empty and ok() is false.
class LineReader {
 public:
  explicit LineReader(std::string_view line) : rest_(line) {}

  bool ok() const { return ok_; }
  bool done() const { return ok_ && ended_; }

  std::string text() {
    if (ended_) ok_ = false;
    if (!ok_) return "";
    const std::size_t tab = rest_.find('\t');
    const std::string_view word = rest_.substr(0, tab);
    ended_ = tab == std::string_view::npos;
    rest_.remove_prefix(ended_ ? rest_.size() : tab + 1);
    std::string result;
    for (std::size_t i = 0; i < word.size(); ++i) {
      if (word[i] != '\\') {
        result += word[i];
        continue;
      }
      const char c = ++i < word.size() ? word[i] : '\0';
      ok_ = ok_ && (c == 't' || c == 'n' || c == '\\');
      result += c == 't' ? '\t' : c == 'n' ? '\n' : c;
    }
    return result;
  }
  std::uint64_t number(std::uint64_t most = UINT64_MAX) {
    const std::string word = text();
    std::uint64_t value = 0;
    const auto [end, status] = std::from_chars(word.data(), word.data() + word.size(), value);
    ok_ = ok_ && status == std::errc() && end == word.data() + word.size() && value <= most;
    return ok_ ? value : 0;
  }
  std::uint32_t small(std::uint64_t most = UINT32_MAX) { return static_cast<std::uint32_t>(number(most)); }
  double real() {
    const std::uint64_t bits = number();
    double value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }
  std::vector<std::string> list() {
    std::vector<std::string> result;
    for (std::uint64_t left = number(); left > 0 && ok_; --left) result.push_back(text());
    return result;
  }

 private:
  std::string_view rest_;
  bool ended_ = false;
  bool ok_ = true;
};

OptionDescription read_option(LineReader& words) {
  OptionDescription option;
  option.name = words.text();
  option.type = words.small(TENON_OPTION_TABLES);
  option.flags = words.small();
  const std::vector<std::string> default_toml = words.list();
  if (!default_toml.empty()) option.default_toml = default_toml[0];
  option.min = words.real();
  option.max = words.real();
  option.choices = words.list();
  option.unit = words.text();
  option.doc = words.text();
  option.since = words.text();
  option.component_kind = words.text();
  option.old_names = words.list();
  option.length = words.small();
  return option;
}

}  // namespace

PluginDescription describe(const tenon_plugin_v1_t& plugin) {
  PluginDescription result{plugin.id,      plugin.version, plugin.summary,      plugin.vendor,
                           plugin.licence, plugin.url,     texts(plugin.needs), {}};
  for (auto component = plugin.components; *component != nullptr; ++component) {
    const tenon_component_v1& c = **component;
    ComponentDescription& description = result.components.emplace_back();
    description = {
        c.kind, c.id, c.summary, c.maturity, c.capabilities, texts(c.aliases), texts(c.requirements), {}, {}};
    for (auto option = c.options; option != nullptr && *option != nullptr; ++option) {
      description.options.push_back(describe(**option));
    }
    for (auto port = c.ports; port != nullptr && *port != nullptr; ++port)
      description.ports.push_back(
          {(*port)->name, (*port)->dtypes, (*port)->shape, (*port)->doc, (*port)->flags});
  }
  return result;
}

namespace {

void write_option(LineWriter& out, std::string_view key, const OptionDescription& o) {
  std::vector<std::string> default_toml;
  if (o.default_toml) default_toml.push_back(*o.default_toml);
  out.line(key, o.name, std::uint64_t{o.type}, std::uint64_t{o.flags}, default_toml, o.min, o.max, o.choices,
           o.unit, o.doc, o.since, o.component_kind, o.old_names, std::uint64_t{o.length});
  for (const OptionDescription& inner : o.section) write_option(out, "section_option", inner);
}

}  // namespace

std::string to_lines(const PluginDescription& d) {
  LineWriter out;
  out.line("plugin", d.id, d.version, d.summary, d.vendor, d.licence, d.url, d.needs);
  for (const ComponentDescription& c : d.components) {
    out.line("component", c.kind, c.id, c.summary, std::uint64_t{c.maturity}, c.capabilities, c.aliases,
             c.requirements);
    for (const OptionDescription& o : c.options) write_option(out, "option", o);
    for (const PortDescription& p : c.ports)
      out.line("port", p.name, p.dtypes, p.shape, p.doc, std::uint64_t{p.flags});
  }
  out.line("end");
  return out.take();
}

std::optional<PluginDescription> from_lines(std::string_view text) {
  PluginDescription result;
  while (true) {
    const std::size_t end_of_line = text.find('\n');
    if (end_of_line == std::string_view::npos) return std::nullopt;
    LineReader words(text.substr(0, end_of_line));
    text.remove_prefix(end_of_line + 1);
    const std::string key = words.text();
    if (key == "end") {
      if (!words.done() || !text.empty() || result.components.empty()) return std::nullopt;
      return result;
    }
    if (key == "plugin" && result.id.empty()) {
      for (std::string* field :
           {&result.id, &result.version, &result.summary, &result.vendor, &result.licence, &result.url}) {
        *field = words.text();
      }
      result.needs = words.list();
    } else if (key == "component" && !result.id.empty()) {
      ComponentDescription& c = result.components.emplace_back();
      for (std::string* field : {&c.kind, &c.id, &c.summary}) *field = words.text();
      c.maturity = words.small(TENON_DEPRECATED);
      c.capabilities = words.number();
      c.aliases = words.list();
      c.requirements = words.list();
    } else if (key == "option" && !result.components.empty()) {
      result.components.back().options.push_back(read_option(words));
    } else if (key == "section_option" && !result.components.empty() &&
               !result.components.back().options.empty()) {
      result.components.back().options.back().section.push_back(read_option(words));
    } else if (key == "port" && !result.components.empty()) {
      PortDescription& p = result.components.back().ports.emplace_back();
      for (std::string* field : {&p.name, &p.dtypes, &p.shape, &p.doc}) *field = words.text();
      p.flags = words.small();
    } else {
      return std::nullopt;
    }
    if (!words.done()) return std::nullopt;
  }
}

}  // namespace tenon::plugin
