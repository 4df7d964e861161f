// A trained run opened for use. A checkpoint is read whole before it is trusted.
#include "stored_run.hpp"

#include "command_line.hpp"
#include "observe/run_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <utility>
#include <vector>

namespace tenon::cli {

void OfflineHost::log(LogLevel level, std::string_view message) {
  if (level >= LogLevel::kWarning) std::cerr << "tenon: " << message << "\n";
}

std::unique_ptr<Actor> OfflineHost::spawn(std::string_view name, std::function<void(Actor&)>) {
  fail_plugin(fmt::format("background loop '{}': nothing runs in the background outside training", name));
}

StoredRun::StoredRun(std::string command, const std::string& run, const std::vector<std::string>& sets)
    : command_(std::move(command)), files_(make_posix_files()) {
  folder_ = open_newest_attempt(*files_, run).path;
  config_ = load_run(runtime_, folder_ + "/config.resolved.toml", sets);
  checked_ = config::check_run(*config_, registry(), {});
}

config::CheckedComponent& StoredRun::component(std::string_view table) {
  config::CheckedComponent* found = checked_.component(table);
  if (found == nullptr) fail_config(fmt::format("tenon {}: run {} has no [{}]", command_, folder_, table));
  return *found;
}

CheckpointReader StoredRun::checkpoint(std::optional<std::int64_t> step) {
  const CheckpointStore store(*files_, folder_ + "/checkpoints", {});
  std::vector<std::int64_t> there = store.generations();
  if (step) {
    if (std::find(there.begin(), there.end(), *step) == there.end()) {
      fail_config(fmt::format("tenon {}: {} has no checkpoint of step {}; it has {}", command_, folder_,
                              *step, there.empty() ? "none" : fmt::format("{}", fmt::join(there, ", "))));
    }
    store.verify(*step);
    return store.open(*step);
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> newest;  // a later timeline wins over a later step
  const auto reject = [&](std::int64_t slot, const Error& error) {
    std::cerr << fmt::format("tenon {}: checkpoint step-{} is passed over: {}\n", command_, slot,
                             error.what());
  };
  for (const std::int64_t slot : there) {
    try {
      newest.emplace_back(store.open(slot).timeline(), slot);
    } catch (const Error& error) {
      reject(slot, error);
    }
  }
  std::sort(newest.rbegin(), newest.rend());
  for (const auto& [timeline, slot] : newest) {
    try {
      store.verify(slot);
      return store.open(slot);
    } catch (const Error& error) {
      reject(slot, error);
    }
  }
  fail_run(
      fmt::format("tenon {}: {} has no valid checkpoint; train with [recovery] type = \"full\", which "
                  "saves at least at the end",
                  command_, folder_));
}

std::string StoredRun::weights_prefix(const CheckpointReader& reader) {
  for (const TensorSpec& tensor : reader.tensors()) {
    for (const char* prefix : {"model/", "replica0/model/"}) {
      if (tensor.name.starts_with(prefix)) return prefix;
    }
  }
  fail_run(fmt::format("checkpoint step-{} holds no weights: no tensor is named model/...", reader.step()));
}

}  // namespace tenon::cli
