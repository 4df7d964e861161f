#include "checkpoint_folder.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

namespace tenon::cli {
namespace {

constexpr const char* kSettingsName = "config.json";
constexpr const char* kSingleName = "model.safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr std::int64_t kMostSettings = std::int64_t{4} << 20;
constexpr std::int64_t kMostIndex = std::int64_t{64} << 20;

/// Whether a reader of the folder may open it: one name, and no way out.
bool is_weights_file(std::string_view name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

/// Python writes infinity as a word that JSON does not have; version 5 of transformers as a table, which this
/// makes of it.
std::string with_infinity_as_table(std::string_view text) {
  constexpr std::string_view kWord = "Infinity", kTable = "{\"__float__\": \"Infinity\"}";
  std::string result;
  bool quoted = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (!quoted && text.substr(at, kWord.size()) == kWord && (at == 0 || text[at - 1] != '-')) {
      result += kTable;
      at += kWord.size() - 1;
      continue;
    }
    if (text[at] == '"') quoted = !quoted;
    result += text[at];
    if (quoted && text[at] == '\\' && at + 1 < text.size()) result += text[++at];
  }
  return result;
}

}  // namespace

std::map<std::string, std::string> parse_weights_index(std::string_view text, const std::string& label) {
  const Value root = parse_json(text, label);
  const Value* map = root.is_table() ? root.find("weight_map") : nullptr;
  if (map == nullptr || !map->is_table() || map->table().empty())
    fail_config(fmt::format("{}: expected a table 'weight_map' with the file of each tensor", label));
  std::map<std::string, std::string> files;
  for (const Member& member : map->table()) {
    if (!member.value.is_text() || !is_weights_file(member.value.text()))
      fail_config(
          fmt::format("{}: the file of tensor '{}' is {}; expected the name of a .safetensors file "
                      "beside the index",
                      label, member.key, member.value.inline_toml()));
    files.emplace(member.key, member.value.text());
  }
  return files;
}

Value parse_settings(std::string_view text, const std::string& label) {
  return parse_json(with_infinity_as_table(text), label);
}

CheckpointFolder::CheckpointFolder(FileSystem& files, std::string folder) : folder_(std::move(folder)) {
  read_settings(files);
  open_weights(files);
}

void CheckpointFolder::read_settings(FileSystem& files) {
  const std::string path = folder_ + "/" + kSettingsName;
  if (!files.exists(path))
    fail_config(
        fmt::format("{} has no {}; expected a folder of Hugging Face: {} beside {}, or beside {} with "
                    "its shards",
                    folder_, kSettingsName, kSettingsName, kSingleName, kIndexName));
  settings_ = parse_settings(read_text(files, path, kMostSettings), path);
  const Value* names = settings_.is_table() ? settings_.find("architectures") : nullptr;
  if (names == nullptr || !names->is_array() || names->array().size() != 1 || !names->array()[0].is_text())
    fail_config(fmt::format("{}: expected 'architectures' with one name, such as [\"LlamaForCausalLM\"]{}",
                            path, names == nullptr ? "" : ", found " + names->inline_toml()));
  architecture_ = names->array()[0].text();
}

std::vector<std::string> CheckpointFolder::find_weights(FileSystem& files,
                                                        std::map<std::string, std::string>& index) const {
  const std::string index_path = folder_ + "/" + kIndexName;
  const bool single = files.exists(folder_ + "/" + kSingleName), sharded = files.exists(index_path);
  if (single && sharded)
    fail_config(fmt::format("{} has {} and {}; expected one of them: move the other away", folder_,
                            kSingleName, kIndexName));
  if (single) return {kSingleName};
  if (!sharded)
    fail_config(
        fmt::format("{} has no weights: expected {}, or {} with its shards; other formats are not read",
                    folder_, kSingleName, kIndexName));
  index = parse_weights_index(read_text(files, index_path, kMostIndex), index_path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : index) names.insert(file);
  std::vector<std::string> missing;
  for (const std::string& name : names)
    if (!files.exists(folder_ + "/" + name)) missing.push_back(name);
  if (!missing.empty())
    fail_config(fmt::format("{}: files that it names are missing beside it: {}; copy the whole folder",
                            index_path, fmt::join(missing, ", ")));
  return {names.begin(), names.end()};
}

void CheckpointFolder::open_weights(FileSystem& files) {
  std::map<std::string, std::string> index;
  const std::vector<std::string> names = find_weights(files, index);
  for (const std::string& name : names)
    readers_.emplace_back(files.open(folder_ + "/" + name), folder_ + "/" + name);
  std::vector<std::string> unplaced;
  for (std::size_t file = 0; file < readers_.size(); ++file) {
    for (const SafetensorsEntry& entry : readers_[file].entries()) {
      const auto [at, fresh] = tensors_.emplace(entry.name, Tensor{file, &entry});
      if (!fresh)
        fail_config(fmt::format("{}: tensor '{}' is in {} as well; expected it once", readers_[file].label(),
                                entry.name, readers_[at->second.file].label()));
      const auto placed = index.find(entry.name);
      if (!index.empty() && (placed == index.end() || placed->second != names[file]))
        unplaced.push_back(fmt::format("{} ({})", entry.name, names[file]));
    }
  }
  const std::string path = folder_ + "/" + kIndexName;
  std::vector<std::string> lacking;
  for (const auto& [tensor, file] : index) {
    const auto found = std::ranges::find(names, file);
    if (readers_[static_cast<std::size_t>(found - names.begin())].find(tensor) == nullptr)
      lacking.push_back(fmt::format("{} ({})", tensor, file));
  }
  if (!lacking.empty())
    fail_config(
        fmt::format("{}: files lack tensors that it places there: {}", path, fmt::join(lacking, ", ")));
  if (!unplaced.empty())
    fail_config(fmt::format("{}: files hold tensors that it does not place there: {}", path,
                            fmt::join(unplaced, ", ")));
}

void CheckpointFolder::read(const std::string& tensor, std::int64_t row, std::span<std::byte> out) const {
  const Tensor& found = tensors_.at(tensor);
  const std::int64_t rows = found.entry->shape.empty() ? 1 : found.entry->shape[0];
  readers_[found.file].read(*found.entry, rows == 0 ? 0 : found.entry->bytes() / rows * row, out);
}

}  // namespace tenon::cli
