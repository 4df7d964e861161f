// Dotted keys, the little of TOML's lexical rules that messages and the writer need, and suggestions.
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

TENON_ABI_BEGIN
namespace config {
namespace {

bool is_bare(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

// Length of the UTF-8 sequence at `text`, 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const std::size_t length = lead < 0x80   ? 1
                             : lead < 0xC2 ? 0
                             : lead < 0xE0 ? 2
                             : lead < 0xF0 ? 3
                             : lead < 0xF5 ? 4
                                           : 0;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, beyond U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
      (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) {
    return 0;
  }
  return length;
}

class KeyParser {
 public:
  KeyParser(std::string_view text, std::string_view where) : text_(text), where_(where) {}

  std::vector<KeyPart> parse() {
    std::vector<KeyPart> parts;
    while (true) {
      parts.push_back(part());
      if (at_ == text_.size()) return parts;
      if (text_[at_] != '.') fail(fmt::format("unexpected '{}'", printable(text_.substr(at_, 1))));
      ++at_;
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    fail_config(fmt::format("{}: '{}' is not a dotted key such as optimizer.lr: {} at character {}",
                            printable(where_), printable(text_), what, at_ + 1));
  }

  KeyPart part() {
    KeyPart part;
    if (at_ < text_.size() && text_[at_] == '+') {
      part.append = true;
      ++at_;
    }
    const std::size_t start = at_;
    if (at_ < text_.size() && (text_[at_] == '"' || text_[at_] == '\'')) {
      const std::size_t end = text_.find(text_[at_], at_ + 1);
      if (end == std::string_view::npos) fail("a quote is not closed");
      part.key = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      // A quoted "+key" is how a TOML file spells appending.
      if (part.key.size() > 1 && part.key[0] == '+') {
        part.append = true;
        part.key.erase(0, 1);
      }
    } else {
      while (at_ < text_.size() && is_bare(text_[at_])) ++at_;
      if (at_ == start) fail("a part is empty");
      part.key = text_.substr(start, at_ - start);
    }
    while (at_ < text_.size() && text_[at_] == '[') part.indices.push_back(index());
    return part;
  }

  std::size_t index() {
    const std::size_t end = text_.find(']', at_);
    std::size_t value = 0;
    if (end == std::string_view::npos) fail("'[' is not closed");
    const auto [stop, code] = std::from_chars(text_.data() + at_ + 1, text_.data() + end, value);
    if (code != std::errc() || stop != text_.data() + end) fail("an index is not a number");
    at_ = end + 1;
    return value;
  }

  std::string_view text_, where_;
  std::size_t at_ = 0;
};

}  // namespace

std::vector<KeyPart> parse_key_path(std::string_view text, std::string_view where) {
  return KeyParser(text, where).parse();
}

bool is_bare_key(std::string_view key) {
  return !key.empty() && std::all_of(key.begin(), key.end(), is_bare);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
          out += fmt::format("\\u{:04X}", static_cast<unsigned char>(c));
        } else {
          out += c;
        }
    }
  }
  return out + "\"";
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0 || (length == 1 && (static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7F))) {
      out += '?';
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

}  // namespace config

std::string join_key(std::string_view parent, std::string_view key) {
  const std::string part = config::is_bare_key(key) ? std::string(key) : config::quoted(key);
  return parent.empty() ? part : fmt::format("{}.{}", parent, part);
}

TENON_ABI_END

// Edit distance over three rows; words are keys, so quadratic time is nothing. Long input is cut off first.

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr std::size_t kLongestWord = 64;

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

std::size_t common_beginning(std::string_view a, std::string_view b) {
  const std::size_t length = std::min(a.size(), b.size());
  std::size_t same = 0;
  while (same < length && folded(a[same]) == folded(b[same])) ++same;
  return same;
}

}  // namespace

std::string_view kind_name(std::string_view kind) {
  return kind.substr(0, kind.find('/'));
}

int edit_distance(std::string_view a, std::string_view b) {
  std::array<std::vector<int>, 3> rows;  // i - 2, i - 1, i
  for (auto& row : rows) row.resize(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) rows[2][j] = static_cast<int>(j);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::rotate(rows.begin(), rows.begin() + 1, rows.end());
    rows[2][0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int replaced = rows[1][j - 1] + (folded(a[i - 1]) == folded(b[j - 1]) ? 0 : 1);
      rows[2][j] = std::min({replaced, rows[1][j] + 1, rows[2][j - 1] + 1});
      if (i > 1 && j > 1 && folded(a[i - 1]) == folded(b[j - 2]) && folded(a[i - 2]) == folded(b[j - 1])) {
        rows[2][j] = std::min(rows[2][j], rows[0][j - 2] + 1);
      }
    }
  }
  return rows[2][b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  if (word.empty() || word.size() > kLongestWord) return "";
  const int limit = std::max(1, static_cast<int>(word.size()) / 3);
  const std::string* best = nullptr;
  int best_distance = limit + 1;
  std::size_t best_beginning = 0;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestWord) continue;
    const int distance = edit_distance(word, candidate);
    // A word of which nothing is left is not a spelling of it.
    if (distance > limit || distance >= static_cast<int>(std::max(word.size(), candidate.size()))) continue;
    const std::size_t beginning = common_beginning(word, candidate);
    if (distance < best_distance || (distance == best_distance && beginning > best_beginning)) {
      best = &candidate;
      best_distance = distance;
      best_beginning = beginning;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string suggestion(std::string_view word, std::span<const std::string> candidates) {
  const std::string best = nearest(word, candidates);
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

}  // namespace config
TENON_ABI_END
