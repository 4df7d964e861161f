// [init]: the weights that a run begins with, read from a stored model; on request with the optimizer's
// state, or everything, which is a fork. A run that is resumed has its own and does not read them again.
#pragma once

#include "config/run_schema.hpp"
#include "loop/parts.hpp"
#include "loop/update.hpp"
#include "models/stored_run.hpp"
#include "record/run_files.hpp"
#include "run/rank_state.hpp"

#include <tenon/device.hpp>
#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/parameter.hpp>
#include <tenon/registry.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

class InitialState {
 public:
  /// Opens the stored model. Throws Error(kConfig) where it has not what is asked of it.
  InitialState(const config::InitSettings& init, Registry& registry, Host& host, FileSystem& files);

  bool is_fork() const { return init_.what == config::InitSettings::What::kEverything; }
  /// Fills this rank's part of `live`; what stays drawn by the rules of `init` is left as it is. Every byte
  /// is checked as it is read. Throws Error(kConfig) that lists every parameter that is missing, extra, or of
  /// another shape or type.
  void load_weights(ParameterSet& live, Device& device);
  /// Where [init] asks for it: state of the optimizer, beside the weights that were loaded, and its count of
  /// updates. Parameters that were drawn have state as before the first slot.
  void load_optimizer(const ParameterSet& live, Updater& updater, Part<Optimizer>& optimizer, Device& device,
                      Counters& counters);
  /// Closes the files; a fork keeps them until its state is restored.
  void close() {
    run_ = nullptr;
    model_.reset();
  }
  /// The checkpoint of the run that a fork is a copy of.
  CheckpointReader& checkpoint() { return run_->checkpoint(); }
  /// For the manifest.
  const LoadedWeights& loaded() const { return loaded_; }

 private:
  void open(Registry& registry, Host& host, FileSystem& files);
  std::string place() const;
  /// Throws Error(kConfig) that lists all differences which [init] does not permit.
  void require_same(const std::vector<std::string>& missing, const std::vector<std::string>& extra,
                    const std::vector<std::string>& differing) const;

  config::InitSettings init_;
  std::unique_ptr<StoredModel> model_;
  models::StoredRun* run_ = nullptr;  ///< model_, where that is a run
  LoadedWeights loaded_;
  std::map<std::string, std::string> names_;  ///< of parameters: here -> there, loaded ones
};

/// "13 parameters do not fit this model:" and a line for each, at most 40; "" where all fit. `differing` says
/// how.
std::string misfits(const std::vector<std::string>& missing, const std::vector<std::string>& extra,
                    const std::vector<std::string>& differing);

/// Name here of a parameter that is called `there` in the other run; the first rule that fits decides.
std::string renamed(const std::vector<std::string>& rules, std::string_view there);

}  // namespace tenon::train
