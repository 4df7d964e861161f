// Reads the files that a configuration extends, in their order, stacks them, and merges each layer over those
// below.
#include "config/layers.hpp"

#include "config/data_path.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <system_error>

TENON_ABI_BEGIN
namespace config {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{16} << 20;
constexpr std::size_t kMaxChain = 64;

std::string canonical(const std::string& path) {
  std::error_code error;
  const auto result = std::filesystem::weakly_canonical(path, error);
  return error ? path : result.string();
}

// The texts of `extends`, each with its position; a single string counts as a list of one.
std::vector<const Value*> extends_of(const Value& layer) {
  const Value* extends = layer.find("extends");
  if (extends == nullptr) return {};
  std::vector<const Value*> entries;
  if (extends->is_array()) {
    for (const Value& entry : extends->array()) entries.push_back(&entry);
  } else {
    entries.push_back(extends);
  }
  for (const Value* entry : entries) {
    if (!entry->is_text()) {
      fail_config(fmt::format("{}: extends takes the path of a TOML file, or a list of them; found {}",
                              entry->origin.text(), entry->description()));
    }
  }
  return entries;
}

}  // namespace

bool read_text_file(const std::string& path, std::string& text, std::string& reason) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    reason = "it is a folder";
    return false;
  }
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) {
    reason = std::generic_category().message(errno);
    return false;
  }
  text.clear();
  char block[1 << 14];
  while (const std::size_t count = std::fread(block, 1, sizeof block, file.get())) {
    text.append(block, count);
    if (text.size() > kMaxFileBytes) {
      reason = fmt::format("it is larger than {} MiB", kMaxFileBytes >> 20);
      return false;
    }
  }
  if (std::ferror(file.get()) != 0) {
    reason = "reading failed";
    return false;
  }
  return true;
}

void LayerStack::fail_reference(const Reference& reference, const std::string& what) const {
  std::string message =
      reference.origin.file.empty() ? what : fmt::format("{}: {}", reference.origin.text(), what);
  for (auto link = chain_.rbegin(); link != chain_.rend(); ++link) {
    if (!link->origin.file.empty())
      message += fmt::format("\n  {} is extended at {}", link->path, link->origin.text());
  }
  fail_config(message);
}

void LayerStack::add_file(const std::string& path) {
  add_reference(find_reference(path, Origin{}));
}

LayerStack::Reference LayerStack::find_reference(const std::string& said, const Origin& origin) const {
  const std::vector<std::filesystem::path> places = places_of(said, origin);
  for (const std::filesystem::path& place : places) {
    std::error_code error;
    if (std::filesystem::exists(place, error)) return {place.string(), origin, said};
  }
  std::string what =
      fmt::format("cannot read '{}'{}: No such file or directory", printable(places.front().string()),
                  origin.file.empty() ? "" : fmt::format(" (extends {})", config::quoted(said)));
  for (auto place = places.begin() + 1; place != places.end(); ++place)
    what += fmt::format("{} '{}'", place == places.begin() + 1 ? "; nor is there" : " or",
                        printable(place->string()));
  fail_reference({places.front().string(), origin, said}, what + suggest_shipped(said));
}

void LayerStack::add_reference(const Reference& reference) {
  const std::string id = canonical(reference.path);
  const auto same = [&](const Reference& link) { return canonical(link.path) == id; };
  if (const auto start = std::find_if(chain_.begin(), chain_.end(), same); start != chain_.end()) {
    std::string cycle;
    for (auto link = start; link != chain_.end(); ++link) cycle += link->path + " -> ";
    fail_reference(reference, fmt::format("extends makes a cycle: {}{}", cycle, reference.path));
  }
  if (chain_.size() >= kMaxChain) {
    fail_reference(reference, fmt::format("extends is nested deeper than {} files", kMaxChain));
  }
  // A file that two others extend applies once, at its first place; a second time it would undo the first of
  // them.
  if (seen_.contains(id)) return;
  std::string text, reason;
  if (!read_text_file(reference.path, text, reason)) {
    const std::string said =
        reference.origin.file.empty() ? "" : fmt::format(" (extends \"{}\")", reference.said);
    fail_reference(reference, fmt::format("cannot read '{}'{}: {}", reference.path, said, reason));
  }
  chain_.push_back(reference);
  add_layer(read_toml(text, reference.path));
  chain_.pop_back();
  seen_.insert(id);
  files.push_back(reference.path);
}

void LayerStack::add_text(std::string_view text, const std::string& name) {
  add_layer(read_toml(text, name));
  files.push_back(name);
}

void LayerStack::add_layer(Value layer) {
  for (const Value* entry : extends_of(layer)) add_reference(find_reference(entry->text(), entry->origin));
  layer.erase("extends");
  merge(std::move(layer));
}

void LayerStack::add_sets(const std::vector<std::string>& sets) {
  Value layer;
  std::vector<Config::Dropped> within;
  for (const std::string& set : sets) {
    Value one = parse_set(set);
    // Not merge_tables: "+key" must reach the layers below, and a type set twice is no change of type.
    struct Overlay {
      void operator()(Value& below, Value&& above) const {
        for (Member& member : above.table()) {
          Value* present = below.find(member.key);
          if (present != nullptr && present->is_table() && member.value.is_table()) {
            (*this)(*present, std::move(member.value));
          } else if (present != nullptr && member.key[0] == '+' && present->is_array() &&
                     member.value.is_array()) {
            for (Value& element : member.value.array()) present->array().push_back(std::move(element));
          } else {
            below.set(member.key, std::move(member.value), std::move(member.origin));
          }
        }
      }
    };
    Overlay{}(layer, std::move(one));
  }
  merge(std::move(layer));
}

void LayerStack::merge(Value layer) {
  if (files.empty() && root.table().empty()) root.origin = layer.origin;
  merge_tables(root, std::move(layer), "", dropped);
}

Value parse_set(const std::string& text) {
  const Origin origin{"--set " + text, 0, 0};
  const std::string where = printable(origin.file);
  if (!is_utf8(text)) fail_config(fmt::format("{}: not valid UTF-8", where));
  // '=' may stand inside a quoted part of the key.
  std::size_t equals = 0;
  for (char quote = 0; equals < text.size() && (quote != 0 || text[equals] != '='); ++equals) {
    const char c = text[equals];
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    }
  }
  if (equals >= text.size()) {
    fail_config(fmt::format("{}: expected KEY=VALUE, for example --set optimizer.lr=1e-3", where));
  }
  const auto trimmed = [](std::string_view part) {
    const std::size_t first = part.find_first_not_of(" \t");
    return first == std::string_view::npos ? std::string_view()
                                           : part.substr(first, part.find_last_not_of(" \t") - first + 1);
  };
  const std::string_view key = trimmed(std::string_view(text).substr(0, equals));
  const std::string_view written = trimmed(std::string_view(text).substr(equals + 1));
  const std::vector<KeyPart> parts = parse_key_path(key, where);
  if (parts.size() > kMaxChain)
    fail_config(fmt::format("{}: a key has more than {} parts", where, kMaxChain));

  Value value;
  const bool bracketed =
      !written.empty() && std::string_view("[{\"'").find(written[0]) != std::string_view::npos;
  try {
    value = parse_value(written, origin);
    // "1#b" is no number with a comment, it is a word.
    if (!bracketed && written.find('#') != std::string_view::npos) value = Value(std::string(written));
  } catch (const Error&) {
    if (bracketed) throw;  // meant as a list, table or string: better refused than taken literally
    value = Value(std::string(written));
  }
  value.origin = origin;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
    if (!part->indices.empty()) {
      fail_config(
          fmt::format("{}: an element of a list cannot be set; set the whole list, or append with +{}=[...]",
                      where, part->key));
    }
    if (part->append && part != parts.rbegin()) {
      fail_config(fmt::format("{}: '+' belongs before the last part of the key", where));
    }
    if (parts.size() == 1 && part->key == "extends") {
      fail_config(fmt::format("{}: extends belongs in a file", where));
    }
    Value table;
    table.origin = origin;
    table.set((part->append ? "+" : "") + part->key, std::move(value), origin);
    value = std::move(table);
  }
  return value;
}

// Merges a layer over the one below it: tables merge, scalars replace, lists replace or are appended to, and
// a new `type` clears what was written for the old one.

namespace {

Value::Earlier earlier_of(const Value& value, bool appended) {
  // A whole table in the history would repeat what its own leaves say.
  return {value.origin, value.is_table() ? "a table" : value.inline_toml(), appended};
}

void replace(Value& base, Value&& layer) {
  std::vector<Value::Earlier> history = std::move(base.earlier);
  history.push_back(earlier_of(base, false));
  base = std::move(layer);
  base.earlier = std::move(history);
}

void append(Value& base, Value&& layer, const std::string& key) {
  if (!base.is_array()) {
    fail_config(fmt::format("{}: '+{}' appends to a list, but {} sets it to {}", layer.origin.text(), key,
                            base.origin.text(), base.description()));
  }
  base.earlier.push_back(earlier_of(base, true));
  base.origin = layer.origin;
  std::move(layer.array().begin(), layer.array().end(), std::back_inserter(base.array()));
}

// Inside the elements of a list there is nothing below to append to.
void refuse_append(const Value& value) {
  if (value.is_array()) {
    for (const Value& element : value.array()) refuse_append(element);
  } else if (value.is_table()) {
    for (const Member& member : value.table()) {
      if (member.key.size() > 1 && member.key[0] == '+') {
        fail_config(
            fmt::format("{}: '{}' appends to the list of an earlier layer, which a table inside a list does "
                        "not have; write '{}'",
                        member.origin.text(), member.key, member.key.substr(1)));
      }
      refuse_append(member.value);
    }
  }
}

void drop_for_type_change(Value& base, const Value& new_type, const std::string& path,
                          std::vector<Config::Dropped>& dropped) {
  const std::vector<std::string> kept = core_keys(path);
  Value::Table& members = base.table();
  const auto stays = [&](const Member& member) {
    return member.key == "type" || std::find(kept.begin(), kept.end(), member.key) != kept.end();
  };
  for (const Member& member : members) {
    if (!stays(member)) dropped.push_back({join_key(path, member.key), member.value, new_type.origin});
  }
  std::erase_if(members, [&](const Member& member) { return !stays(member); });
}

void merge_member(Value& base, Member&& member, const std::string& path,
                  std::vector<Config::Dropped>& dropped) {
  const bool appends = member.key.size() > 1 && member.key[0] == '+';
  const std::string key = appends ? member.key.substr(1) : member.key;
  if (appends && key[0] == '+') {
    fail_config(fmt::format("{}: '{}' begins with '+' twice; one '+' appends to the list of an earlier layer",
                            member.origin.text(), member.key));
  }
  if (appends && !member.value.is_array()) {
    fail_config(fmt::format("{}: '+{}' appends to a list; expected a list, found {}",
                            member.value.origin.text(), key, member.value.description()));
  }
  if (member.value.is_array()) refuse_append(member.value);
  Member* present = base.find_member(key);
  Value* below = present == nullptr ? nullptr : &present->value;
  if (below != nullptr && appends) {
    append(*below, std::move(member.value), key);
    present->origin = std::move(member.origin);
    return;
  }
  if (member.value.is_table()) {
    if (below != nullptr && below->is_table()) {
      merge_tables(*below, std::move(member.value), join_key(path, key), dropped);
      return;
    }
    // Merging into an empty table, rather than moving, also cleans "+key" from the tables inside.
    Value fresh;
    fresh.origin = member.value.origin;
    merge_tables(fresh, std::move(member.value), join_key(path, key), dropped);
    member.value = std::move(fresh);
  }
  if (below == nullptr) {
    base.set(key, std::move(member.value), std::move(member.origin));
  } else {
    replace(*below, std::move(member.value));
    present->origin = std::move(member.origin);
  }
}

}  // namespace

void merge_tables(Value& base, Value&& layer, const std::string& path,
                  std::vector<Config::Dropped>& dropped) {
  const Value* old_type = base.find("type");
  const Value* new_type = layer.find("type");
  if (old_type != nullptr && new_type != nullptr && !(*old_type == *new_type)) {
    drop_for_type_change(base, *new_type, path, dropped);
  }
  // Within one layer a plain key comes before its "+key", whatever the order of the lines.
  Value::Table& members = layer.table();
  std::stable_partition(members.begin(), members.end(),
                        [](const Member& member) { return member.key.empty() || member.key[0] != '+'; });
  for (Member& member : members) merge_member(base, std::move(member), path, dropped);
}

}  // namespace config
TENON_ABI_END
