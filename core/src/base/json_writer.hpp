// Writes JSON text front to back: keys in the order given, doubles in their shortest form that reads back
// equal. It serves every JSON file of a run folder and all --json output. It keeps no tree, and the caller
// balances begin and end.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace tenon {

/// Appends `text` as a JSON string with quotes. Bytes that are not UTF-8 become U+FFFD.
void append_json_text(std::string& out, std::string_view text);
/// Shortest form that reads back equal; NaN and infinities, which JSON cannot write, become null.
void append_json_number(std::string& out, double value);
void append_json_number(std::string& out, std::int64_t value);
void append_json_number(std::string& out, std::uint64_t value);

/// Indented by two spaces per level.
class JsonWriter {
 public:
  static constexpr double kNull =
      std::numeric_limits<double>::quiet_NaN();  ///< a number that is written as null

  void begin_object();
  void begin_object(std::string_view key);
  void end_object();
  void begin_array(std::string_view key);
  void end_array();
  /// An array with an object per element of `list`; `members(element)` writes what is in it.
  template <typename List, typename Members>
  void objects(std::string_view key, const List& list, Members&& members) {
    begin_array(key);
    for (const auto& element : list) {
      begin_object();
      members(element);
      end_object();
    }
    end_array();
  }
  void member(std::string_view key, std::string_view value);
  void member(std::string_view key, const char* value) { member(key, std::string_view(value)); }
  void member(std::string_view key, double value);
  void member(std::string_view key, std::int64_t value);
  void member(std::string_view key, std::uint64_t value);
  void member(std::string_view key, int value) { member(key, static_cast<std::int64_t>(value)); }
  void member(std::string_view key, bool value);
  /// The finished text with a final newline.
  std::string take();

 private:
  void item();
  void name(std::string_view key);
  void open(char bracket);
  void close(char bracket);

  std::string text_;
  std::vector<bool> filled_;  // per open level: whether it has an item
};

}  // namespace tenon
