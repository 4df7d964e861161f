// A trained run opened for use. A checkpoint is read whole before it is trusted.
#include "stored_run.hpp"

#include "command_line.hpp"
#include "record/run_folder.hpp"
#include "run/state_io.hpp"

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
    return open(store, *step);
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
      return open(store, slot);
    } catch (const Error& error) {
      reject(slot, error);
    }
  }
  fail_run(
      fmt::format("tenon {}: {} has no valid checkpoint; train with [recovery] type = \"full\", which "
                  "saves at least at the end",
                  command_, folder_));
}

CheckpointReader StoredRun::open(const CheckpointStore& store, std::int64_t step) {
  CheckpointReader reader = store.open(step);
  if (checked_.component("recovery") == nullptr) return reader;
  if (!recovery_) recovery_ = make<Recovery>("recovery");
  auto* const codec = static_cast<RowCodec*>(recovery_->query(RowCodec::kId));
  if (codec != nullptr) train::add_row_decoders(reader, [this, codec] { return recovery_.guarded(*codec); });
  return reader;
}

std::vector<train::StoredWeights> StoredRun::weights(const CheckpointReader& reader) const {
  std::string doubt;
  std::vector<train::StoredWeights> found = train::stored_weights(reader, doubt);
  if (!doubt.empty()) std::cerr << fmt::format("tenon {}: {}\n", command_, doubt);
  return found;
}

}  // namespace tenon::cli
