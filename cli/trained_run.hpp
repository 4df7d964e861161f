// A trained run, opened for use by a command: its resolved configuration, the components that it names, and
// its checkpoints as stored models. Serves export, generate and evaluate; writes nothing.
#pragma once

#include "config/run_schema.hpp"
#include "loop/named_component.hpp"
#include "models/stored_models.hpp"
#include "models/stored_run.hpp"
#include "offline_host.hpp"

#include <tenon/registry.hpp>
#include <tenon/runtime.hpp>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::cli {

class TrainedRun {
 public:
  /// command: "export", for messages. run: an attempt, or the folder of a run, then its newest attempt. sets:
  /// K=V over its configuration.
  TrainedRun(std::string command, const std::string& run, const std::vector<std::string>& sets = {});

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

  /// The checkpoint of slot `step`, or the newest that is intact. It is read whole before it is trusted;
  /// damaged ones are named on standard error and left in place, and so is what cannot be known of weights.
  std::unique_ptr<models::StoredRun> open(std::optional<std::int64_t> step);

 private:
  config::CheckedComponent& component(std::string_view table);

  std::string command_, folder_;
  std::unique_ptr<FileSystem> files_;
  Runtime runtime_;
  OfflineHost host_;
  std::unique_ptr<models::StoredModelPaths> models_;  ///< for layers that read other models
  std::optional<Config> config_;                      ///< checked_ points into it
  config::CheckedRun checked_;
};

}  // namespace tenon::cli
