// A trained run as a stored model: the configuration of an attempt, and weights and optimizer state of one of
// its checkpoints. Writes nothing.
#pragma once

#include "loop/named_component.hpp"
#include "run/evaluated_weights.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/stored_model.hpp>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::models {

/// The blueprint of a [model] table, for graphs of its own.
class Blueprint {
 public:
  /// `table` as in config.resolved.toml, edits of the graph among its keys. Throws Error(kConfig).
  Blueprint(const Value& table, Registry& registry, Host& host);
  ~Blueprint();

  /// Throws Error(kConfig) where `data` has another value of an attribute than `made_for`.
  GraphSpec graph(const DataInfo& data, const std::vector<DataAttribute>& made_for);
  void* query(std::string_view interface_id) { return model_->query(interface_id); }
  GraphSpec edited(GraphSpec graph, const DataInfo& data) const;

 private:
  Value edits_;
  std::unique_ptr<ResolvedOptions> options_;
  train::NamedComponent<Model> model_;
};

struct CheckpointChoice {
  std::optional<std::int64_t> step;  ///< absent: the newest; a later timeline wins over a later step
  /// Called for each newer checkpoint that is damaged, after all its bytes were read; empty: the newest is
  /// opened as it is, and damage is an error where it is read.
  std::function<void(const std::string& why)> pass_over;
};

class StoredRun final : public StoredModel {
 public:
  /// run: an attempt, or the folder of a run, then its newest attempt. user: begins every message,
  /// "[init] from". Components are made only when they are needed. Throws Error(kConfig).
  StoredRun(std::string user, FileSystem& files, Registry& registry, Host& host, const std::string& run,
            const CheckpointChoice& choice);

  std::string_view folder() const override { return folder_; }
  std::int64_t step() const override { return reader_->step(); }
  std::string_view digest() const override { return digest_; }
  const ModelDescription& description() const override { return description_; }
  std::span<const StoredTensor> parameters() const override { return parameters_; }
  std::span<const StoredTensor> optimizer_state() const override { return optimizer_state_; }
  void read(std::string_view tensor, const Shape& offset, TensorView out) override;
  GraphSpec graph(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return blueprint().query(interface_id); }
  GraphSpec edited(GraphSpec graph, const DataInfo& data) override {
    return blueprint().edited(std::move(graph), data);
  }

  /// `type` of a table of the run's configuration; "" without one.
  std::string type_of(const char* table) const;
  CheckpointReader& checkpoint() { return *reader_; }
  /// By replica, at least one; the model is the first.
  const std::vector<train::StoredWeights>& weights() const { return weights_; }
  /// What cannot be known of the weights; "" as a rule.
  const std::string& doubt() const { return doubt_; }

 private:
  Blueprint& blueprint();
  void choose(const CheckpointChoice& choice);
  void add_decoders(const Value& root);
  void list_tensors();

  std::string user_, folder_, digest_, doubt_;
  FileSystem& files_;
  Registry& registry_;
  Host& host_;
  Config config_;
  ModelDescription description_;
  std::unique_ptr<ResolvedOptions> recovery_options_;
  train::NamedComponent<Recovery> recovery_;  ///< it decodes rows that it has encoded
  std::optional<CheckpointReader> reader_;
  std::vector<train::StoredWeights> weights_;
  std::vector<StoredTensor> parameters_, optimizer_state_;
  std::map<std::string, std::string, std::less<>> stored_name_;  ///< in the checkpoint
  std::unique_ptr<Blueprint> blueprint_;
};

}  // namespace tenon::models
