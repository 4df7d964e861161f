// Parsing by events rather than into a tree of the library: duplicate keys are seen, and depth is bounded.
#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <limits>
#include <utility>

TENON_ABI_BEGIN

namespace {

constexpr std::size_t kMostJsonLevels = 64;

/// Passes the events of the library on.
class ValueEvents {
 public:
  explicit ValueEvents(const std::string& label) : tree_(label) {}

  bool null() { return true; }
  bool boolean(bool value) { return add(Value(value)); }
  bool number_integer(std::int64_t value) { return add(Value(value)); }
  bool number_unsigned(std::uint64_t value) {
    const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return add(fits ? Value(static_cast<std::int64_t>(value)) : Value(static_cast<double>(value)));
  }
  bool number_float(double value, const std::string&) { return add(Value(value)); }
  bool string(std::string& value) { return add(Value(std::move(value))); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool start_object(std::size_t) {
    tree_.open(Value());
    return true;
  }
  bool start_array(std::size_t) {
    tree_.open(Value(Value::Array()));
    return true;
  }
  bool key(std::string& name) {
    tree_.key(std::move(name));
    return true;
  }
  bool end_object() { return end(); }
  bool end_array() { return end(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& error) {
    fail_config(fmt::format("{}: not valid JSON at byte {}: {}", tree_.label(), position, error.what()));
  }
  Value take() { return tree_.take(); }

 private:
  bool add(Value value) {
    tree_.add(std::move(value));
    return true;
  }
  bool end() {
    tree_.close();
    return true;
  }

  JsonTree tree_;
};

}  // namespace

void JsonTree::key(std::string name) {
  Level& level = levels_.back();
  if (!level.keys.insert(name).second) fail_config(fmt::format("{}: duplicate key '{}'", label_, name));
  level.key = std::move(name);
}

void JsonTree::add(Value value) {
  value.origin = {label_, 0, 0};
  if (levels_.empty()) {
    root_ = std::move(value);
  } else if (Level& level = levels_.back(); level.value.is_array()) {
    level.value.array().push_back(std::move(value));
  } else {
    level.value.table().push_back({level.key, value.origin, std::move(value)});
  }
}

void JsonTree::open(Value value) {
  if (levels_.size() == kMostJsonLevels)
    fail_config(fmt::format("{}: more than {} levels of lists and tables", label_, kMostJsonLevels));
  levels_.push_back({std::move(value), {}, {}});
}

void JsonTree::close() {
  Value value = std::move(levels_.back().value);
  levels_.pop_back();
  add(std::move(value));
}

bool JsonTree::is_at(std::initializer_list<std::string_view> keys) const {
  return std::ranges::equal(levels_, keys, [](const Level& level, std::string_view key) {
    return level.value.is_table() && level.key == key;
  });
}

Value parse_json(std::string_view text, const std::string& label) {
  ValueEvents events(label);
  nlohmann::json::sax_parse(text.begin(), text.end(), &events);
  return events.take();
}

TENON_ABI_END
