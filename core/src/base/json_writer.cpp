// JSON text of json_writer.hpp.
#include "base/json_writer.hpp"

#include <charconv>
#include <cmath>
#include <utility>

namespace tenon {
namespace {

template <typename Number>
void append_chars(std::string& out, Number value) {
  char digits[32];
  const std::to_chars_result end = std::to_chars(digits, digits + sizeof digits, value);
  out.append(digits, end.ptr);
}

/// Bytes of the well-formed UTF-8 sequence at the start of `text`, 0 when there is none (RFC 3629, table 3-7
/// of the Unicode standard: no overlong forms, no surrogates, nothing above U+10FFFF).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  std::size_t length = 0;
  unsigned char low = 0x80, high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  if (byte(1) < low || byte(1) > high) return 0;
  for (std::size_t i = 2; i < length; ++i) {
    if (byte(i) < 0x80 || byte(i) > 0xBF) return 0;
  }
  return length;
}

void append_control(std::string& out, unsigned char code) {
  constexpr char kHex[] = "0123456789abcdef";
  out += "\\u00";
  out += kHex[code >> 4];
  out += kHex[code & 15];
}

}  // namespace

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  while (!text.empty()) {
    const char c = text.front();
    const std::size_t length = utf8_length(text);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      append_control(out, static_cast<unsigned char>(c));
    } else if (length == 0) {
      out += "\xEF\xBF\xBD";
    } else {
      out.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out += '"';
}

void append_json_number(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  if (value == 0 && std::signbit(value)) {
    out += "-0.0";  // "-0" is an integer to most readers and loses its sign
    return;
  }
  append_chars(out, value);
}

void append_json_number(std::string& out, std::int64_t value) {
  append_chars(out, value);
}
void append_json_number(std::string& out, std::uint64_t value) {
  append_chars(out, value);
}

void JsonWriter::item() {
  if (filled_.empty()) return;
  if (filled_.back()) text_ += ',';
  filled_.back() = true;
  text_ += '\n';
  text_.append(2 * filled_.size(), ' ');
}

void JsonWriter::name(std::string_view key) {
  item();
  append_json_text(text_, key);
  text_ += ": ";
}

void JsonWriter::open(char bracket) {
  text_ += bracket;
  filled_.push_back(false);
}

void JsonWriter::close(char bracket) {
  const bool filled = filled_.back();
  filled_.pop_back();
  if (filled) {
    text_ += '\n';
    text_.append(2 * filled_.size(), ' ');
  }
  text_ += bracket;
}

void JsonWriter::begin_object() {
  item();
  open('{');
}

void JsonWriter::begin_object(std::string_view key) {
  name(key);
  open('{');
}

void JsonWriter::end_object() {
  close('}');
}

void JsonWriter::begin_array(std::string_view key) {
  name(key);
  open('[');
}

void JsonWriter::end_array() {
  close(']');
}

void JsonWriter::member(std::string_view key, std::string_view value) {
  name(key);
  append_json_text(text_, value);
}

void JsonWriter::member(std::string_view key, double value) {
  name(key);
  append_json_number(text_, value);
}

void JsonWriter::member(std::string_view key, std::int64_t value) {
  name(key);
  append_json_number(text_, value);
}

void JsonWriter::member(std::string_view key, std::uint64_t value) {
  name(key);
  append_json_number(text_, value);
}

void JsonWriter::member(std::string_view key, bool value) {
  name(key);
  text_ += value ? "true" : "false";
}

std::string JsonWriter::take() {
  text_ += '\n';
  return std::exchange(text_, {});
}

}  // namespace tenon
