// JSON of other programs as a value: settings of models, lines of conversations.
#pragma once

#include <tenon/config.hpp>

#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// JSON text as a value. Members and items that are null are left out. `label` begins messages and is the
/// origin of every value. Throws Error(kConfig) for text that is no JSON, for duplicate keys, and for more
/// than 64 levels.
Value parse_json(std::string_view text, const std::string& label);

/// Builds a value from the events of a reader, with the limits of parse_json: for readers that keep a large
/// part of the text elsewhere.
class JsonTree {
 public:
  explicit JsonTree(std::string label) : label_(std::move(label)) {}
  const std::string& label() const { return label_; }

  /// The key of the next member of the open table.
  void key(std::string name);
  /// A value that is complete, of the open table or list.
  void add(Value value);
  /// `value`: an empty table, or an empty list.
  void open(Value value);
  void close();
  /// Whether the next value is the one that these keys lead to, from the outermost table on.
  bool is_at(std::initializer_list<std::string_view> keys) const;
  Value take() { return std::move(root_); }

 private:
  struct Level {
    Value value;
    std::string key;
    std::set<std::string> keys;
  };
  std::string label_;
  std::vector<Level> levels_;
  Value root_;
};

TENON_ABI_END
