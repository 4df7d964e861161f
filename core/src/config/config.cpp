// Config: loading through the layer stack, lookup by dotted key, and the explanation of where a value comes
// from.
#include <tenon/config.hpp>

#include "config/key_path.hpp"
#include "config/layers.hpp"
#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

TENON_ABI_BEGIN
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
