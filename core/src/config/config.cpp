// Values, configurations and their text, as <tenon/config.hpp> declares them.
#include <tenon/config.hpp>

#include "config/layers.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

TENON_ABI_BEGIN

// Value and Origin: data with its origin.

namespace {

constexpr const char* kExpected[] = {"true or false", "a whole number", "a number",
                                     "a string",      "a list",         "a table"};

[[noreturn]] void wrong_type(const Value& value, Value::Type expected) {
  fail_config(fmt::format("{}: expected {}, found {}", value.origin.text(),
                          kExpected[static_cast<int>(expected)], value.description()));
}

std::string real_text(double value) {
  std::string text = fmt::format("{}", value);
  // "1" would read back as an integer.
  if (text.find_first_of(".ein") == std::string::npos) text += ".0";
  return text;
}

}  // namespace

std::string Origin::text() const {
  return line > 0 ? fmt::format("{}:{}:{}", config::printable(file), line, column) : config::printable(file);
}

Value::Value() : data_(Table{}) {}
Value::Value(bool value) : data_(value) {}
Value::Value(std::int64_t value) : data_(value) {}
Value::Value(double value) : data_(value) {}
Value::Value(std::string value) : data_(std::move(value)) {}
Value::Value(Array value) : data_(std::move(value)) {}
Value::Value(Table value) : data_(std::move(value)) {}

Value::Type Value::type() const {
  return static_cast<Type>(data_.index());
}

bool Value::boolean() const {
  if (const bool* value = std::get_if<bool>(&data_)) return *value;
  wrong_type(*this, Type::kBoolean);
}

std::int64_t Value::integer() const {
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return *value;
  wrong_type(*this, Type::kInteger);
}

double Value::real() const {
  if (const auto* value = std::get_if<double>(&data_)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&data_)) return static_cast<double>(*value);
  wrong_type(*this, Type::kReal);
}

const std::string& Value::text() const {
  if (const auto* value = std::get_if<std::string>(&data_)) return *value;
  wrong_type(*this, Type::kText);
}

const Value::Array& Value::array() const {
  if (const auto* value = std::get_if<Array>(&data_)) return *value;
  wrong_type(*this, Type::kArray);
}

Value::Array& Value::array() {
  return const_cast<Array&>(std::as_const(*this).array());
}

const Value::Table& Value::table() const {
  if (const auto* value = std::get_if<Table>(&data_)) return *value;
  wrong_type(*this, Type::kTable);
}

Value::Table& Value::table() {
  return const_cast<Table&>(std::as_const(*this).table());
}

const Member* Value::find_member(std::string_view key) const {
  const Table* members = std::get_if<Table>(&data_);
  if (members == nullptr) return nullptr;
  const auto found =
      std::find_if(members->begin(), members->end(), [&](const Member& member) { return member.key == key; });
  return found == members->end() ? nullptr : &*found;
}

Member* Value::find_member(std::string_view key) {
  return const_cast<Member*>(std::as_const(*this).find_member(key));
}

const Value* Value::find(std::string_view key) const {
  const Member* member = find_member(key);
  return member == nullptr ? nullptr : &member->value;
}

Value* Value::find(std::string_view key) {
  return const_cast<Value*>(std::as_const(*this).find(key));
}

Value& Value::set(std::string_view key, Value value, Origin key_origin) {
  Table& members = table();
  if (Value* present = find(key)) {
    *present = std::move(value);
    return *present;
  }
  members.push_back({std::string(key), std::move(key_origin), std::move(value)});
  return members.back().value;
}

void Value::erase(std::string_view key) {
  std::erase_if(table(), [&](const Member& member) { return member.key == key; });
}

std::string Value::description() const {
  switch (type()) {
    case Type::kBoolean:
      return boolean() ? "true" : "false";
    case Type::kInteger:
      return fmt::format("the whole number {}", integer());
    case Type::kReal:
      return fmt::format("the real number {}", real_text(real()));
    case Type::kText:
      return fmt::format("the string {}", config::quoted(text()));
    case Type::kArray:
      return "a list";
    case Type::kTable:
      return "a table";
  }
  return "nothing";
}

std::string Value::inline_toml() const {
  switch (type()) {
    case Type::kBoolean:
      return boolean() ? "true" : "false";
    case Type::kInteger:
      return fmt::format("{}", integer());
    case Type::kReal:
      return real_text(real());
    case Type::kText:
      return config::quoted(text());
    case Type::kArray: {
      std::string out = "[";
      for (const Value& element : array()) out += (out.size() > 1 ? ", " : "") + element.inline_toml();
      return out + "]";
    }
    case Type::kTable: {
      std::string out = "{";
      for (const Member& member : table()) {
        out += fmt::format("{}{} = {}", out.size() > 1 ? ", " : "", join_key("", member.key),
                           member.value.inline_toml());
      }
      return out + "}";
    }
  }
  return "";
}

bool operator==(const Value& a, const Value& b) {
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Value::Type::kReal: {
      const double x = std::get<double>(a.data_), y = std::get<double>(b.data_);
      return std::isnan(x) || std::isnan(y) ? std::isnan(x) && std::isnan(y) : x == y;
    }
    case Value::Type::kTable: {
      const Value::Table &x = a.table(), &y = b.table();
      return x.size() == y.size() && std::all_of(x.begin(), x.end(), [&](const Member& member) {
               const Value* other = b.find(member.key);
               return other != nullptr && member.value == *other;
             });
    }
    case Value::Type::kArray:
      return a.array() == b.array();
    case Value::Type::kBoolean:
      return std::get<bool>(a.data_) == std::get<bool>(b.data_);
    case Value::Type::kInteger:
      return std::get<std::int64_t>(a.data_) == std::get<std::int64_t>(b.data_);
    case Value::Type::kText:
      return a.text() == b.text();
  }
  return false;
}

// A single TOML value from text that is no file: defaults of option specs, `--set`.

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

// Value -> canonical TOML, flat keys, differences. The writer promises that reading its text gives an equal
// value.

namespace {

bool is_table_list(const Value& value) {
  return value.is_array() && !value.array().empty() &&
         std::all_of(value.array().begin(), value.array().end(),
                     [](const Value& element) { return element.is_table(); });
}

// A comment ends at a line break, so nothing that could hold one goes in unchecked (--set takes any text).
std::string origin_comment(const Value& value) {
  std::string text = value.origin.text();
  if (!value.earlier.empty() && value.earlier.back().appended) {
    text += ", appended to " + value.earlier.back().origin.text();
  }
  return "  # " + config::printable(text);
}

class Writer {
 public:
  explicit Writer(bool with_origins) : with_origins_(with_origins) {}

  // Plain values come first: after a [header] they would belong to the sub-table.
  void write_table(const Value& value, const std::string& path) {
    for (const Member& member : value.table()) {
      if (member.value.is_table() || is_table_list(member.value)) continue;
      out_ += fmt::format("{} = {}", join_key("", member.key), member.value.inline_toml());
      end_line(member.value);
    }
    for (const Member& member : value.table()) {
      const std::string key = join_key(path, member.key);
      if (member.value.is_table()) {
        header("[" + key + "]");
        out_ += '\n';
        write_table(member.value, key);
      } else if (is_table_list(member.value)) {
        for (const Value& element : member.value.array()) {
          header("[[" + key + "]]");
          end_line(element);
          write_table(element, key);
        }
      }
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void header(const std::string& text) {
    if (!out_.empty()) out_ += '\n';
    out_ += text;
  }

  void end_line(const Value& value) {
    if (with_origins_) out_ += origin_comment(value);
    out_ += '\n';
  }

  bool with_origins_;
  std::string out_;
};

void flatten_into(const Value& value, const std::string& key, std::map<std::string, std::string>& out) {
  if (value.is_table() && !value.table().empty()) {
    for (const Member& member : value.table()) flatten_into(member.value, join_key(key, member.key), out);
  } else if (is_table_list(value)) {
    for (std::size_t i = 0; i < value.array().size(); ++i) {
      flatten_into(value.array()[i], fmt::format("{}[{}]", key, i), out);
    }
  } else if (!key.empty()) {
    out[key] = value.inline_toml();
  }
}

}  // namespace

std::string to_toml(const Value& root, bool with_origins) {
  Writer writer(with_origins);
  writer.write_table(root, "");
  return writer.take();
}

std::map<std::string, std::string> flatten(const Value& root) {
  std::map<std::string, std::string> out;
  flatten_into(root, "", out);
  return out;
}

std::vector<Difference> differences(const Value& left, const Value& right) {
  const auto a = flatten(left), b = flatten(right);
  std::vector<Difference> out;
  for (auto x = a.begin(), y = b.begin(); x != a.end() || y != b.end();) {
    if (y == b.end() || (x != a.end() && x->first < y->first)) {
      out.push_back({x->first, x->second, ""});
      ++x;
    } else if (x == a.end() || y->first < x->first) {
      out.push_back({y->first, "", y->second});
      ++y;
    } else {
      if (x->second != y->second) out.push_back({x->first, x->second, y->second});
      ++x;
      ++y;
    }
  }
  return out;
}

// Config: loading through the layer stack, lookup by dotted key, and the explanation of where a value comes
// from.

namespace {

// Deepest value along the path, and how much of the path it covers.
struct Walk {
  const Value* found = nullptr;  // null when the path leads nowhere
  const Value* deepest = nullptr;
  std::string deepest_key;
  std::string missing_key;  // the part that the deepest table lacks
};

Walk walk(const Value& root, std::string_view dotted) {
  Walk result{nullptr, &root, "", ""};
  const Value* value = &root;
  for (const config::KeyPart& part : config::parse_key_path(dotted, "key")) {
    value = value->find(part.append ? "+" + part.key : part.key);
    if (value == nullptr) {
      result.missing_key = part.key;
      return result;
    }
    result.deepest_key = join_key(result.deepest_key, part.key);
    for (const std::size_t index : part.indices) {
      if (!value->is_array() || index >= value->array().size()) return result;
      value = &value->array()[index];
      result.deepest_key += fmt::format("[{}]", index);
    }
    result.deepest = value;
  }
  result.found = value;
  return result;
}

void explain_leaf(const std::string& key, const Value& value, std::string& out) {
  const auto& earlier = value.earlier;
  const bool appended = !earlier.empty() && earlier.back().appended;
  out += fmt::format("{} = {}\n  {} {}\n", key, value.inline_toml(),
                     appended ? "last appended to at" : "set at", value.origin.text());
  for (auto layer = earlier.rbegin(); layer != earlier.rend(); ++layer) {
    out += fmt::format("  {} {} at {}\n", layer->appended ? "added to" : "over", layer->text,
                       layer->origin.text());
  }
}

void explain_tree(const std::string& key, const Value& value, std::string& out) {
  if (value.is_table() && !value.table().empty()) {
    for (const Member& member : value.table()) explain_tree(join_key(key, member.key), member.value, out);
  } else {
    explain_leaf(key, value, out);
  }
}

}  // namespace

Config::Config(Value root, std::vector<std::string> files, std::vector<Dropped> dropped)
    : root_(std::move(root)), files_(std::move(files)), dropped_(std::move(dropped)) {}

Config Config::load(const std::string& path, const std::vector<std::string>& sets) {
  return load(path, sets, {});
}

Config Config::load(const std::string& path, const std::vector<std::string>& sets,
                    const std::vector<std::string>& over) {
  config::LayerStack stack;
  stack.add_file(path);
  for (const std::string& file : over) stack.add_file(file);
  stack.add_sets(sets);
  return Config(std::move(stack.root), std::move(stack.files), std::move(stack.dropped));
}

Config Config::parse(std::string_view text, const std::string& name, const std::vector<std::string>& sets) {
  config::LayerStack stack;
  stack.add_text(text, name);
  stack.add_sets(sets);
  return Config(std::move(stack.root), std::move(stack.files), std::move(stack.dropped));
}

Config Config::with_root(Value root) const {
  Config config = *this;
  config.root_ = std::move(root);
  return config;
}

const Value* Config::find(std::string_view dotted) const {
  return walk(root_, dotted).found;
}

std::string Config::explain(std::string_view dotted) const {
  const Walk result = walk(root_, dotted);
  std::string out;
  if (result.found != nullptr) {
    explain_tree(result.deepest_key, *result.found, out);
    return out;
  }
  out = fmt::format("{} is not set", config::printable(dotted));
  bool was_dropped = false;
  std::string details;
  for (const Dropped& dropped : dropped_) {
    const bool inside = dotted.substr(0, dropped.key.size()) == dropped.key &&
                        (dotted.size() == dropped.key.size() || dotted[dropped.key.size()] == '.' ||
                         dotted[dropped.key.size()] == '[');
    if (!inside) continue;
    was_dropped = true;
    details += fmt::format("  {} at {} was dropped when the type of the table changed at {}\n",
                           dropped.value.inline_toml(), dropped.value.origin.text(), dropped.cause.text());
  }
  if (!was_dropped && !result.missing_key.empty() && result.deepest->is_table()) {
    std::vector<std::string> keys;
    for (const Member& member : result.deepest->table()) keys.push_back(member.key);
    out += config::suggestion(result.missing_key, keys);
  }
  return out + "\n" + details;
}

std::vector<std::string> Config::dropped_lines(bool shared_only) const {
  std::vector<std::string> lines;
  for (const Dropped& dropped : dropped_) {
    const Value* now = find(dropped.key);
    if (shared_only && (now == nullptr || *now == dropped.value)) continue;
    std::string line =
        fmt::format("{} = {} ({}) was dropped when the type of its table changed ({})", dropped.key,
                    dropped.value.inline_toml(), dropped.value.origin.text(), dropped.cause.text());
    if (now != nullptr)
      line += fmt::format("; the new type has it, too: {} ({})", now->inline_toml(), now->origin.text());
    lines.push_back(std::move(line));
  }
  return lines;
}

namespace config {

std::string with_place(const Config& config, const std::string& message) {
  const auto begins_with = [&](const std::string& file) { return message.starts_with(file + ":"); };
  if (message.starts_with("--set ") || std::any_of(config.files().begin(), config.files().end(), begins_with))
    return message;
  constexpr std::string_view kKeyBytes = "abcdefghijklmnopqrstuvwxyz0123456789_.";
  std::string table;  // of "[table] key"
  for (std::size_t at = 0; at < message.size();) {
    const std::size_t begin = message.find_first_of(kKeyBytes, at);
    if (begin == std::string::npos) break;
    const std::size_t end = std::min(message.find_first_not_of(kKeyBytes, begin), message.size());
    std::string key = message.substr(begin, end - begin);
    while (!key.empty() && key.back() == '.') key.pop_back();  // of a sentence
    const bool in_brackets =
        begin > 0 && message[begin - 1] == '[' && end < message.size() && message[end] == ']';
    if (in_brackets && end + 1 < message.size() && message[end + 1] == ' ') {
      table = key + ".";
      at = end + 2;
      continue;
    }
    key = std::exchange(table, "") + key;
    at = end;
    if (key.find('.') == std::string::npos || key.front() == '.' || key.find("..") != std::string::npos)
      continue;
    const Value* value = config.find(key);
    if (value == nullptr || value->is_table() || value->origin.file.empty()) continue;
    return value->origin.text() + ": " + message;
  }
  return message;
}

}  // namespace config
TENON_ABI_END
