// Names in checkpoints are those of services/run/rank_state.hpp.
#include "models/stored_run.hpp"

#include "base/digests.hpp"
#include "config/run_schema.hpp"
#include "record/run_files.hpp"
#include "record/run_folder.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

namespace tenon::models {
namespace {

constexpr std::string_view kSharedOptimizer = "optimizer.", kOwnOptimizer = "replica0/optimizer.";

/// Attributes without those that only count samples.
std::vector<DataAttribute> attributes_of(FileSystem& files, const std::string& folder) {
  std::vector<DataAttribute> kept;
  if (!files.exists(folder + "/manifest.json")) return kept;
  for (const DataAttribute& attribute : read_manifest(files, folder).attributes)
    if (!attribute.name.starts_with("val_samples")) kept.push_back(attribute);
  return kept;
}

const Value& component_table(const Config& config, const std::string& folder, const char* name) {
  const Value* const table = config.find(name);
  const Value* const type = table == nullptr ? nullptr : table->find("type");
  if (type == nullptr || !type->is_text())
    fail_config(fmt::format("{}/config.resolved.toml has no [{}] with a type", folder, name));
  return *table;
}

}  // namespace

Blueprint::Blueprint(const Value& table, Registry& registry, Host& host) {
  const std::string& type = table.find("type")->text();
  OptionRequest request = component_request(table, registry.describe(Model::kKind, type), &registry);
  for (const std::string& key : config::core_keys("model")) {
    request.other_keys.push_back(key);
    if (const Member* const edit = table.find_member(key)) edits_.set(key, edit->value, edit->origin);
  }
  options_ = resolve_options(request).options;
  registry.create_inner(*options_, host);
  model_ = registry.create<Model>(type, *options_, host);
}

Blueprint::~Blueprint() = default;

GraphSpec Blueprint::graph(const DataInfo& data, const std::vector<DataAttribute>& made_for) {
  for (const DataAttribute& attribute : made_for) {
    const auto here = std::ranges::find(data.attributes, attribute.name, &DataAttribute::name);
    if (here != data.attributes.end() && here->value != attribute.value)
      fail_config(fmt::format("the stored model was made for data with {} = {}, found {}", attribute.name,
                              attribute.value, here->value));
  }
  return train::edit_graph([&] { return model_->build(data); }, data, edits_);
}

GraphSpec Blueprint::edited(GraphSpec graph, const DataInfo& data) const {
  return train::edit_graph([&] { return std::move(graph); }, data, edits_);
}

StoredRun::StoredRun(std::string user, FileSystem& files, Registry& registry, Host& host,
                     const std::string& run, const CheckpointChoice& choice)
    : user_(std::move(user)), files_(files), registry_(registry), host_(host) {
  folder_ = open_newest_attempt(files, run).path;
  choose(choice);
  digest_ = plugin::file_sha256(fmt::format("{}/checkpoints/step-{}/MANIFEST.json", folder_, step()));
  config_ = Config::load(folder_ + "/config.resolved.toml", {});
  description_.model = component_table(config_, folder_, "model");
  description_.attributes = attributes_of(files, folder_);
  if (config_.find("recovery.type") != nullptr) add_decoders(component_table(config_, folder_, "recovery"));
  weights_ = train::stored_weights(*reader_, doubt_);
  list_tensors();
}

std::string StoredRun::type_of(const char* table) const {
  const Value* const found = config_.find(table);
  const Value* const type = found == nullptr ? nullptr : found->find("type");
  return type == nullptr || !type->is_text() ? "" : type->text();
}

void StoredRun::choose(const CheckpointChoice& choice) {
  const CheckpointStore store(files_, folder_ + "/checkpoints", {});
  const std::vector<std::int64_t> there = store.generations();
  if (there.empty())
    fail_config(
        fmt::format("{}: {} has no checkpoint; train with [recovery] type = \"full\", which saves at "
                    "least at the end",
                    user_, folder_));
  if (choice.step) {
    if (std::ranges::find(there, *choice.step) == there.end())
      fail_config(fmt::format("{}: {} has no checkpoint of step {}; it has {}", user_, folder_, *choice.step,
                              fmt::join(there, ", ")));
    if (choice.pass_over) store.verify(*choice.step);
    reader_ = store.open(*choice.step);
    return;
  }
  const auto try_one = [&](std::int64_t step, auto&& use) {
    try {
      use();
    } catch (const Error& error) {
      if (!choice.pass_over) throw;
      choice.pass_over(fmt::format("checkpoint step-{} is passed over: {}", step, error.what()));
    }
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> newest;
  for (const std::int64_t step : there)
    try_one(step, [&] { newest.emplace_back(store.open(step).timeline(), step); });
  std::ranges::sort(newest, std::ranges::greater());
  for (const auto& candidate : newest) {
    const std::int64_t step = candidate.second;
    try_one(step, [&] {
      if (choice.pass_over) store.verify(step);
      reader_ = store.open(step);
    });
    if (reader_) return;
  }
  fail_run(
      fmt::format("{}: none of the checkpoints of {} is valid; train with [recovery] type = \"full\", "
                  "which saves at least at the end",
                  user_, folder_));
}

void StoredRun::add_decoders(const Value& table) {
  const std::string& type = table.find("type")->text();
  OptionRequest request = component_request(table, registry_.describe(Recovery::kKind, type), &registry_);
  for (std::string& key : config::core_keys("recovery")) request.other_keys.push_back(std::move(key));
  recovery_options_ = resolve_options(request).options;
  registry_.create_inner(*recovery_options_, host_);
  recovery_ = registry_.create<Recovery>(type, *recovery_options_, host_);
  auto* const codec = static_cast<RowCodec*>(recovery_->query(RowCodec::kId));
  if (codec == nullptr) return;
  train::add_row_decoders(*reader_, [this, codec] { return recovery_.guarded(*codec); });
}

void StoredRun::list_tensors() {
  const auto add = [&](std::vector<StoredTensor>& list, std::string name, const TensorSpec& stored) {
    stored_name_.emplace(name, stored.name);
    list.push_back({std::move(name), stored.dtype, stored.shape});
  };
  for (const std::string& name : weights_.front().parameters())
    add(parameters_, name, *reader_->find(weights_.front().tensor(name)));
  for (const TensorSpec& tensor : reader_->tensors()) {
    const std::string_view name = tensor.name;
    const bool own = name.starts_with(kOwnOptimizer);
    if (!own && !name.starts_with(kSharedOptimizer)) continue;
    add(optimizer_state_, std::string(own ? name.substr(name.find('/') + 1) : name), tensor);
  }
  std::ranges::sort(optimizer_state_, {}, &StoredTensor::name);
}

void StoredRun::read(std::string_view tensor, const Shape& offset, TensorView out) {
  const auto stored = stored_name_.find(tensor);
  if (stored == stored_name_.end())
    fail_run(fmt::format("{}: step {} of {} has no tensor '{}'", user_, step(), folder_, tensor));
  reader_->read_slice(stored->second, offset, out);
}

Blueprint& StoredRun::blueprint() {
  if (blueprint_ == nullptr) blueprint_ = std::make_unique<Blueprint>(description_.model, registry_, host_);
  return *blueprint_;
}

GraphSpec StoredRun::graph(const DataInfo& data) {
  return blueprint().graph(data, description_.attributes);
}

}  // namespace tenon::models
