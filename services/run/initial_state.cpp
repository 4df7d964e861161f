// Parameters are matched by name, after [init] rename; all differences are found before the first is read.
#include "run/initial_state.hpp"

#include "config/words.hpp"
#include "graph/row_table.hpp"
#include "models/stored_models.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

namespace tenon::train {
namespace {

using What = config::InitSettings::What;

constexpr std::size_t kMostListed = 40;
constexpr const char* kUser = "[init] from";

std::string described(DType dtype, const Shape& shape) {
  return fmt::format("{} {}", dtype_name(dtype), shape.text());
}

const StoredTensor* find(std::span<const StoredTensor> tensors, std::string_view name) {
  const auto found = std::ranges::lower_bound(tensors, name, {}, &StoredTensor::name);
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

/// Reads rows of a stored tensor into this rank's rows of a table.
void read_table(StoredModel& model, std::string_view tensor, RowTable& table) {
  graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    model.read(tensor, Shape{ids.front(), 0}, rows);
    table.fill(ids, rows);
  });
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

std::string misfits(const std::vector<std::string>& missing, const std::vector<std::string>& extra,
                    const std::vector<std::string>& differing) {
  std::vector<std::string> lines;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    for (const std::string& name : names) lines.push_back(fmt::format("  {}: {}", what, name));
  };
  add("not there", missing);
  add("not in this model", extra);
  add("differs", differing);
  if (lines.empty()) return "";
  const std::size_t all = lines.size();
  if (all > kMostListed) {
    lines.resize(kMostListed);
    lines.push_back(fmt::format("  and {} more", all - kMostListed));
  }
  return fmt::format("{} parameter{} do not fit this model:\n{}", all, all == 1 ? "" : "s",
                     fmt::join(lines, "\n"));
}

InitialState::InitialState(const config::InitSettings& init, Registry& registry, Host& host,
                           FileSystem& files)
    : init_(init) {
  open(registry, host, files);
  if (init_.what != What::kWeights && run_ == nullptr)
    fail_config(
        fmt::format("{}[init] what: {} is a model folder, which has weights alone; expected "
                    "what = \"weights\", or from = a run",
                    place(), config::quoted(model_->folder())));
  if (init_.what != What::kWeights && model_->optimizer_state().empty())
    host.log(LogLevel::kInfo, fmt::format("[init]: the optimizer of {} keeps no tensors", model_->folder()));
  loaded_.from = model_->folder();
  loaded_.step = model_->step();
  loaded_.digest = model_->digest();
  loaded_.what = std::string(config::kInitWhat.name(init_.what));
}

void InitialState::open(Registry& registry, Host& host, FileSystem& files) {
  model_ = models::StoredModelPaths(place() + kUser, files, registry, host).open(init_.from, init_.step);
  run_ = dynamic_cast<models::StoredRun*>(model_.get());
  if (run_ != nullptr && !run_->doubt().empty()) host.log(LogLevel::kWarning, "[init]: " + run_->doubt());
}

std::string InitialState::place() const {
  return init_.origin.file.empty() ? "" : init_.origin.text() + ": ";
}

void InitialState::require_same(const std::vector<std::string>& missing,
                                const std::vector<std::string>& extra,
                                const std::vector<std::string>& differing) const {
  const std::vector<std::string> refused_missing = init_.draw_missing ? std::vector<std::string>{} : missing;
  const std::vector<std::string> refused_extra = init_.drop_extra ? std::vector<std::string>{} : extra;
  const std::string list = misfits(refused_missing, refused_extra, differing);
  if (list.empty()) return;
  const bool names = !refused_missing.empty() || !refused_extra.empty();
  fail_config(
      fmt::format("{}[init] from = {}: {}{}", place(), config::quoted(model_->folder()), list,
                  names ? "\nwrite rename, missing = \"draw\" or extra = \"drop\" where that is meant" : ""));
}

void InitialState::load_weights(ParameterSet& live, Device& device) {
  std::map<std::string, const StoredTensor*> there;  // by name here
  for (const StoredTensor& tensor : model_->parameters()) {
    const std::string here = renamed(init_.rename, tensor.name);
    if (!there.emplace(here, &tensor).second)
      fail_config(fmt::format("[init] rename gives two parameters the name '{}'", here));
  }
  std::vector<std::string> missing, differing;
  for (const ParameterInfo& info : live.parameters()) {
    const auto entry = there.find(info.spec.name);
    if (entry == there.end()) {
      missing.push_back(info.spec.name);
      continue;
    }
    const StoredTensor& stored = *entry->second;
    if (stored.dtype != info.spec.dtype || stored.shape != info.spec.shape)
      differing.push_back(fmt::format("{} is {} there and {} here", info.spec.name,
                                      described(stored.dtype, stored.shape),
                                      described(info.spec.dtype, info.spec.shape)));
    names_.emplace(info.spec.name, stored.name);
    there.erase(entry);
  }
  std::vector<std::string> extra;
  for (const auto& entry : there) extra.push_back(entry.first);
  require_same(missing, extra, differing);

  std::vector<std::byte> staging;
  for (const ParameterInfo& info : live.parameters()) {
    const auto named = names_.find(info.spec.name);
    if (named == names_.end()) continue;
    if (RowTable* table = live.table(info.index)) {
      read_table(*model_, named->second, *table);
      continue;
    }
    const TensorView target = live.tensor(info.index);
    if (target.empty()) continue;
    read_into(target, device, staging,
              [&](TensorView host) { model_->read(named->second, info.offset, host); });
  }
  live.touch(-1);
  loaded_.loaded = static_cast<std::int64_t>(names_.size());
  loaded_.drawn = static_cast<std::int64_t>(missing.size());
  loaded_.dropped = static_cast<std::int64_t>(extra.size());
}

void InitialState::load_optimizer(const ParameterSet& live, Updater& updater, Part<Optimizer>& optimizer,
                                  Device& device, Counters& counters) {
  if (init_.what == What::kWeights) return;
  // Two rules may keep tensors of the same names.
  if (const std::string there = run_->type_of("optimizer"); there != optimizer.id())
    fail_config(
        fmt::format("{}[init] what = \"{}\": {} was trained by optimizer '{}', and this run by '{}'; begin "
                    "with what = \"weights\"",
                    place(), loaded_.what, config::quoted(model_->folder()), there, optimizer.id()));
  if (init_.what != What::kOptimizer) return;
  std::vector<std::string> wrong;
  const auto stored_name = [&](std::string_view state, const std::string& parameter, DType dtype,
                               const Shape& shape) -> std::string {
    const auto named = names_.find(parameter);
    if (named == names_.end()) return "";
    std::string name = fmt::format("{}/{}", state, named->second);
    const StoredTensor* const stored = find(model_->optimizer_state(), name);
    if (stored != nullptr && stored->dtype == dtype && stored->shape == shape) return name;
    wrong.push_back(fmt::format("  {}: expected {}, found {}", name, described(dtype, shape),
                                stored == nullptr ? "nothing" : described(stored->dtype, stored->shape)));
    return "";
  };
  std::vector<std::byte> staging;
  for (const auto& set : updater.state()) {
    for (const ParameterInfo& info : set->parameters()) {
      const TensorView target = set->tensor(info.index);
      if (target.empty()) continue;
      const std::string name = stored_name(set->name(), info.spec.name, target.dtype, info.spec.shape);
      if (!name.empty())
        read_into(target, device, staging, [&](TensorView host) { model_->read(name, info.offset, host); });
    }
    set->touch(-1);
  }
  for (const Updater::TableState& state : updater.table_state()) {
    const std::string name =
        stored_name(state.name, live.parameters()[state.parameter].spec.name, state.table->dtype(),
                    Shape{state.table->rows(), state.table->width()});
    if (!name.empty()) read_table(*model_, name, *state.table);
  }
  if (!wrong.empty())
    fail_config(
        fmt::format("{}[init] what = \"weights+optimizer\": {} has the state of another optimizer:\n{}\n"
                    "begin with what = \"weights\"",
                    place(), config::quoted(model_->folder()), fmt::join(wrong, "\n")));
  CheckpointSource own(run_->checkpoint(), device, "rank0/optimizer/");
  StateRestorer restorer(own);
  optimizer->state(restorer);
  CheckpointSource core(run_->checkpoint(), device, "rank0/core/");
  StateRestorer counts(core);
  counts.integer("updates", counters.updates);
}

}  // namespace tenon::train
