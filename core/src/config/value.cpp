// Value and Origin: data with its origin. No reading and no writing of files here.
#include <tenon/config.hpp>

#include "config/key_path.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

TENON_ABI_BEGIN
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

TENON_ABI_END
