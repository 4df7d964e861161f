// Greedy: from the first smaller form that fails alike on, until none does.
#include "fuzz/shrink.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <utility>

namespace tenon::fuzz {
namespace {

using Path = std::vector<std::size_t>;  ///< of members and entries, from the root

Value* at(Value& root, const Path& path) {
  Value* value = &root;
  for (const std::size_t step : path)
    value = value->is_table() ? &value->table()[step].value : &value->array()[step];
  return value;
}

/// Every value below `value`, those nearer to the root first.
void collect(const Value& value, const Path& here, std::vector<Path>& paths) {
  const std::size_t count = value.is_table()   ? value.table().size()
                            : value.is_array() ? value.array().size()
                                               : 0;
  for (std::size_t i = 0; i < count; ++i) {
    Path next = here;
    next.push_back(i);
    paths.push_back(next);
    collect(value.is_table() ? value.table()[i].value : value.array()[i], next, paths);
  }
}

bool halve(Value& value) {
  if (value.type() == Value::Type::kInteger && (value.integer() > 1 || value.integer() < -1)) {
    value = Value(value.integer() / 2);
    return true;
  }
  return false;
}

}  // namespace

std::vector<Value> smaller(const Value& root) {
  std::vector<Path> paths;
  collect(root, {}, paths);
  std::stable_sort(paths.begin(), paths.end(),
                   [](const Path& a, const Path& b) { return a.size() < b.size(); });
  std::vector<Value> forms;
  for (const Path& path : paths) {
    Value form = root;
    Value* const parent = at(form, {path.begin(), path.end() - 1});
    if (parent->is_table())
      parent->table().erase(parent->table().begin() + static_cast<std::ptrdiff_t>(path.back()));
    else
      parent->array().erase(parent->array().begin() + static_cast<std::ptrdiff_t>(path.back()));
    forms.push_back(std::move(form));
  }
  for (const Path& path : paths) {
    Value form = root;
    if (halve(*at(form, path))) forms.push_back(std::move(form));
  }
  return forms;
}

Value shrink(Value root, const ShrinkRequest& request) {
  for (bool changed = true; changed;) {
    changed = false;
    // In each pass: a smaller model may fit once what named nodes of the larger one is gone.
    for (const Value& model : request.models) {
      Value form = root;
      for (const Member& table : model.table()) form.set(table.key, table.value, table.origin);
      if (lines_of(form) >= lines_of(root) || !request.goes_on()) continue;
      if (request.judge(form) != request.failure) continue;
      root = std::move(form);
      changed = true;
    }
    // After a success the forms of the smaller run follow from the same place on: what did not help before
    // rarely helps now.
    std::size_t from = 0;
    for (std::vector<Value> forms = smaller(root); from < forms.size(); ++from) {
      if (!request.goes_on()) return root;
      if (request.judge(forms[from]) != request.failure) continue;
      root = std::move(forms[from]);
      forms = smaller(root);
      changed = true;
      --from;  // the form that takes its place has not been tried
    }
  }
  return root;
}

std::size_t lines_of(const Value& root) {
  std::istringstream text(to_toml(root, false));
  std::size_t lines = 0;
  for (std::string line; std::getline(text, line);) lines += line.empty() ? 0 : 1;
  return lines;
}

}  // namespace tenon::fuzz
