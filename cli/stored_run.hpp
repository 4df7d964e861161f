// A trained run, opened for use: its resolved configuration, the components that it names, and its
// checkpoints. Serves export, generate and evaluate; writes nothing.
#pragma once

#include "config/run_schema.hpp"
#include "loop/graph_edits.hpp"
#include "loop/named_component.hpp"
#include "run/evaluated_weights.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

/// One rank and no run: what components log goes to standard error.
class OfflineHost final : public Host {
 public:
  void log(LogLevel level, std::string_view message) override;
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view name, std::function<void(Actor&)> loop) override;
  double deadline() const override { return 60; }
  void* query(std::string_view interface_id) override {
    if (interface_id == train::NodePlaces::kId) return places_;
    return interface_id == LayerFactory::kId ? layers_ : nullptr;
  }
  /// The factory for layers with graphs of their own; none at first.
  void set_layers(LayerFactory* layers) { layers_ = layers; }
  /// Lines of the graph's edits, for errors of layers; none at first.
  void set_places(train::NodePlaces* places) { places_ = places; }

 private:
  LayerFactory* layers_ = nullptr;
  train::NodePlaces* places_ = nullptr;
};

class StoredRun {
 public:
  /// command: "export", for messages. run: an attempt, or the folder of a run, then its newest attempt. sets:
  /// K=V over its configuration.
  StoredRun(std::string command, const std::string& run, const std::vector<std::string>& sets = {});

  const std::string& folder() const { return folder_; }
  config::CheckedRun& checked() { return checked_; }
  Registry& registry() { return runtime_.registry(); }
  OfflineHost& host() { return host_; }
  FileSystem& files() { return *files_; }

  /// The component of a table; throws Error(kConfig) if the run has none.
  template <typename Interface>
  train::NamedComponent<Interface> make(std::string_view table) {
    config::CheckedComponent& found = component(table);
    registry().create_inner(*found.options, host_);
    return registry().create<Interface>(found.type, *found.options, host_);
  }
  std::string_view type(std::string_view table) { return component(table).type; }

  /// The checkpoint of slot `step`, or the newest that is intact; damaged ones are named on standard error
  /// and left in place.
  CheckpointReader checkpoint(std::optional<std::int64_t> step);
  /// The weights of the run, by replica; standard error says what cannot be known of them.
  std::vector<train::StoredWeights> weights(const CheckpointReader& reader) const;

 private:
  config::CheckedComponent& component(std::string_view table);
  CheckpointReader open(const CheckpointStore& store, std::int64_t step);

  std::string command_, folder_;
  std::unique_ptr<FileSystem> files_;
  Runtime runtime_;
  OfflineHost host_;
  std::optional<Config> config_;  ///< checked_ points into it
  config::CheckedRun checked_;
  train::NamedComponent<Recovery> recovery_;  ///< once a checkpoint is open: it decodes what it encoded
};

}  // namespace tenon::cli
