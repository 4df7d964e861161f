// Rows of table.hpp.
#include "table.hpp"

#include <array>
#include <charconv>
#include <system_error>

namespace tenon::csv {
namespace {

template <typename T>
void append_chars(std::string& out, T value) {
  std::array<char, 40> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  out.append(digits.data(), end);
}

/// Returns the length of the first record with its line end; 0 when the text ends earlier.
std::size_t record_length(std::string_view text) {
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') quoted = !quoted;
    if (text[i] == '\n' && !quoted) return i + 1;
  }
  return 0;
}

}  // namespace

void append_field(std::string& out, std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) {
    out += text;
    return;
  }
  out += '"';
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  out += '"';
}

void append_number(std::string& out, double value) {
  append_chars(out, value);
}

void append_number(std::string& out, std::int64_t value) {
  append_chars(out, value);
}

std::string keep_rows(std::string_view text, std::string_view header, std::int64_t last_step, bool& whole) {
  whole = true;
  if (!text.starts_with(header)) return "";
  std::string kept(header);
  text.remove_prefix(header.size());
  while (!text.empty()) {
    const std::size_t length = record_length(text);
    std::int64_t step = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + length, step);
    if (length == 0 || error != std::errc() || *end != ',') {
      whole = false;
      break;
    }
    if (step <= last_step) kept.append(text, 0, length);
    text.remove_prefix(length);
  }
  return kept;
}

}  // namespace tenon::csv
