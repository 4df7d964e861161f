// Merges a layer over the one below it: tables merge, scalars replace, lists replace or are appended to, and
// a new `type` clears what was written for the old one.
#include "config/key_path.hpp"
#include "config/layers.hpp"
#include "config/run_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

TENON_ABI_BEGIN
namespace config {
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
