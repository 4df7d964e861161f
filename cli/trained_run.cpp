// Components are those of the configuration that was resolved when the run began.
#include "trained_run.hpp"

#include "command_line.hpp"
#include "record/run_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <iostream>
#include <utility>

namespace tenon::cli {

TrainedRun::TrainedRun(std::string command, const std::string& run, const std::vector<std::string>& sets)
    : command_(std::move(command)), files_(make_posix_files()) {
  folder_ = open_newest_attempt(*files_, run).path;
  config_ = load_run(runtime_, folder_ + "/config.resolved.toml", sets);
  checked_ = config::check_run(*config_, registry(), {});
  models_ = std::make_unique<models::StoredModelPaths>("tenon " + command_, *files_, registry(), host_);
  host_.set_stored_models(models_.get());
}

config::CheckedComponent& TrainedRun::component(std::string_view table) {
  config::CheckedComponent* found = checked_.component(table);
  if (found == nullptr) fail_config(fmt::format("tenon {}: run {} has no [{}]", command_, folder_, table));
  return *found;
}

std::unique_ptr<models::StoredRun> TrainedRun::open(std::optional<std::int64_t> step) {
  const auto say = [this](const std::string& what) {
    std::cerr << fmt::format("tenon {}: {}\n", command_, what);
  };
  auto run = std::make_unique<models::StoredRun>("tenon " + command_, *files_, registry(), host_, folder_,
                                                 models::CheckpointChoice{step, say});
  if (!run->doubt().empty()) say(run->doubt());
  return run;
}

}  // namespace tenon::cli
