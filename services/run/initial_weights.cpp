#include "run/initial_weights.hpp"

#include "base/digests.hpp"
#include "config/words.hpp"
#include "graph/row_table.hpp"
#include "loop/named_component.hpp"
#include "record/run_folder.hpp"
#include "run/evaluated_weights.hpp"
#include "run/state_io.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/recovery.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tenon::train {
namespace {

constexpr std::size_t kMostListed = 40;

/// By timeline, then by slot. A damaged one is refused as it is read, and no older one takes its place.
std::int64_t newest_generation(const CheckpointStore& store) {
  std::pair<std::int64_t, std::int64_t> newest{-1, -1};
  for (const std::int64_t step : store.generations())
    newest = std::max(newest, {store.open(step).timeline(), step});
  return newest.second;
}

CheckpointReader open_generation(const CheckpointStore& store, const config::InitSettings& init) {
  const std::vector<std::int64_t> there = store.generations();
  if (there.empty())
    fail_config(
        fmt::format("[init] from: {} has no checkpoint; train with [recovery] type = \"full\", which saves "
                    "at least at the end",
                    store.folder()));
  if (init.step && std::ranges::find(there, *init.step) == there.end())
    fail_config(fmt::format("[init] step = {}: {} has the checkpoints {}", *init.step, store.folder(),
                            fmt::join(there, ", ")));
  return store.open(init.step ? *init.step : newest_generation(store));
}

/// The recovery policy of the other run, which decodes rows that it has encoded.
class OtherPolicy {
 public:
  OtherPolicy(const std::string& attempt, CheckpointReader& reader, Registry& registry, Host& host) {
    const Config config = Config::load(attempt + "/config.resolved.toml", {});
    const Value* table = config.find("recovery");
    const Value* type = table == nullptr ? nullptr : table->find("type");
    if (type == nullptr) return;
    options_ = resolve_options(
                   component_request(*table, registry.describe(Recovery::kKind, type->text()), &registry))
                   .options;
    registry.create_inner(*options_, host);
    policy_ = registry.create<Recovery>(type->text(), *options_, host);
    auto* const codec = static_cast<RowCodec*>(policy_->query(RowCodec::kId));
    if (codec != nullptr) add_row_decoders(reader, [this, codec] { return policy_.guarded(*codec); });
  }

 private:
  std::unique_ptr<ResolvedOptions> options_;
  NamedComponent<Recovery> policy_;
};

std::string described(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.text());
}

/// All differences of the two models in one error.
void require_same(const config::InitSettings& init, const std::string& attempt,
                  const std::vector<std::string>& missing, const std::vector<std::string>& extra,
                  const std::vector<std::string>& differing) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) lines.push_back(fmt::format("  {}: {}", what, name));
  };
  if (!init.draw_missing) add("not there", missing);
  if (!init.drop_extra) add("not in this model", extra);
  add("differs", differing);
  if (lines.empty()) return;
  const std::size_t all = lines.size();
  if (all > kMostListed) {
    lines.resize(kMostListed);
    lines.push_back(fmt::format("  and {} more", all - kMostListed));
  }
  const bool names = differing.size() < all;
  fail_config(
      fmt::format("{}[init] from = {}: {} parameter{} do not fit this model:\n{}{}",
                  init.origin.file.empty() ? "" : init.origin.text() + ": ", config::quoted(attempt), all,
                  all == 1 ? "" : "s", fmt::join(lines, "\n"),
                  names ? "\nwrite rename, missing = \"draw\" or extra = \"drop\" where that is meant" : ""));
}

}  // namespace

std::string renamed(const std::vector<std::string>& rules, std::string_view there) {
  for (const std::string& rule : rules) {
    const std::size_t equals = rule.find('=');
    const std::string_view from = std::string_view(rule).substr(0, equals);
    const std::string_view to = std::string_view(rule).substr(equals + 1);
    const std::size_t star = from.find('*');
    if (star == std::string_view::npos) {
      if (from == there) return std::string(to);
      continue;
    }
    const std::string_view head = from.substr(0, star), tail = from.substr(star + 1);
    if (there.size() < head.size() + tail.size() || !there.starts_with(head) || !there.ends_with(tail))
      continue;
    std::string name(to);
    name.replace(to.find('*'), 1, there.substr(head.size(), there.size() - head.size() - tail.size()));
    return name;
  }
  return std::string(there);
}

LoadedWeights load_initial_weights(const config::InitSettings& init, ParameterSet& live, Device& device,
                                   Registry& registry, Host& host, FileSystem& files) {
  LoadedWeights out;
  out.from = open_newest_attempt(files, init.from).path;
  const CheckpointStore store(files, out.from + "/checkpoints", {});
  CheckpointReader reader = open_generation(store, init);
  out.step = reader.step();
  out.checkpoint_sha256 =
      plugin::file_sha256(fmt::format("{}/step-{}/MANIFEST.json", store.folder(), out.step));
  const OtherPolicy policy(out.from, reader, registry, host);
  std::string doubt;
  const StoredWeights weights = stored_weights(reader, doubt).front();
  if (!doubt.empty()) host.log(LogLevel::kWarning, "[init]: " + doubt);

  std::map<std::string, std::string> there;  // name here -> tensor
  for (const std::string& name : weights.parameters()) {
    const std::string here = renamed(init.rename, name);
    if (!there.emplace(here, weights.tensor(name)).second)
      fail_config(fmt::format("[init] rename gives two parameters the name '{}'", here));
  }
  std::vector<std::string> missing, differing;
  std::vector<std::pair<const ParameterInfo*, std::string>> found;
  for (const ParameterInfo& info : live.parameters()) {
    const auto entry = there.find(info.spec.name);
    if (entry == there.end()) {
      missing.push_back(info.spec.name);
      continue;
    }
    const TensorSpec& stored = *reader.find(entry->second);
    if (stored.dtype != info.spec.dtype || stored.shape != info.spec.shape)
      differing.push_back(fmt::format("{} is {} there and {} here", info.spec.name,
                                      described(stored.dtype, stored.shape),
                                      described(info.spec.dtype, info.spec.shape)));
    found.emplace_back(&info, entry->second);
    there.erase(entry);
  }
  std::vector<std::string> extra;
  for (const auto& [here, tensor] : there) extra.push_back(here);
  require_same(init, out.from, missing, extra, differing);

  std::vector<std::byte> staging;
  for (const auto& entry : found) {
    const ParameterInfo* const info = entry.first;
    const std::string& tensor = entry.second;
    if (RowTable* table = live.table(info->index)) {
      graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
        reader.read_slice(tensor, Shape{ids.front(), 0}, rows);
        table->write(ids, rows);
      });
      continue;
    }
    const TensorView target = live.tensor(info->index);
    if (!target.empty()) read_slice(reader, tensor, info->offset, target, device, staging);
  }
  live.touch(-1);
  out.loaded = static_cast<std::int64_t>(found.size());
  out.drawn = static_cast<std::int64_t>(missing.size());
  out.dropped = static_cast<std::int64_t>(extra.size());
  return out;
}

}  // namespace tenon::train
