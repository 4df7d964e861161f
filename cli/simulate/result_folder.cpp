// The renamed folders determine which samples are finished; the manifest adds digests, failures, and a
// description.
#include "simulate/result_folder.hpp"

#include "simulate/launched.hpp"
#include "simulate/sample_writer.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <charconv>
#include <set>
#include <utility>

namespace tenon::simulate {
namespace {

constexpr std::chrono::seconds kBetweenSaves{2};

/// "000012" -> 12.
std::optional<std::int64_t> index_of(const std::string& name) {
  std::int64_t index = 0;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), index);
  if (code != std::errc() || end != name.data() + name.size() || index < 0) return std::nullopt;
  return index;
}

/// The first difference of two simulations, "" if it is in none of these.
std::string first_difference(const SimulationManifest& there, const SimulationManifest& here) {
  const auto say = [](std::string_view what, const auto& left, const auto& right) {
    return fmt::format("{} is {} there and {} here", what, left, right);
  };
  if (there.simulator != here.simulator) return say("the simulator", there.simulator, here.simulator);
  if (there.plugin != here.plugin) return say("the plugin", there.plugin, here.plugin);
  if (there.plugin_version != here.plugin_version)
    return say("the version of " + here.plugin, there.plugin_version, here.plugin_version);
  if (there.seed != here.seed) return say("simulate.seed", there.seed, here.seed);
  const std::vector<Difference> found = differences(Config::parse(there.config, "manifest.json", {}).root(),
                                                    Config::parse(here.config, "", {}).root());
  if (found.empty()) return "the arrays of a sample are others";
  const Difference& first = found.front();
  return say(first.key, first.left.empty() ? "absent" : first.left,
             first.right.empty() ? "absent" : first.right);
}

}  // namespace

ResultFolder::ResultFolder(FileSystem& files, std::string folder, SimulationManifest wanted)
    : files_(files), folder_(std::move(folder)), manifest_(std::move(wanted)) {
  files_.make_directories(folder_ + "/samples");
  lock_.emplace(folder_, "choose another [simulate] folder");
  if (files_.exists(simulation_manifest_path(folder_))) {
    SimulationManifest there = read_simulation(files_, folder_);
    check_same(there);
    manifest_.finished = std::move(there.finished);
    manifest_.failed = std::move(there.failed);
  }
  take_up_samples();
  save(true);
}

ResultFolder::ResultFolder(FileSystem& files, std::string folder, SimulationManifest wanted, Place place)
    : files_(files), folder_(std::move(folder)), node_(place), manifest_(std::move(wanted)) {
  before_ = read_simulation(files_, folder_);
  check_same(before_);
  manifest_.finished = before_.finished;
  manifest_.failed = before_.failed;
  taken_up_ = static_cast<std::int64_t>(manifest_.finished.size());
  save(true);
}

/// Only the new samples, so that files stay small.
void ResultFolder::record_share() {
  SimulationManifest share = manifest_;
  std::erase_if(share.finished, [&](const auto& entry) { return before_.finished.count(entry.first) > 0; });
  std::erase_if(share.failed, [&](const auto& entry) { return !node_->makes(entry.first); });
  files_.write_text_atomically(node_manifest_path(folder_, node_->index), simulation_manifest_text(share));
  files_.write_text_atomically(node_beat_path(folder_, node_->index), std::to_string(++beats_));
}

void ResultFolder::check_same(const SimulationManifest& there) const {
  if (there.config_hash() != manifest_.config_hash()) {
    fail_config(
        fmt::format("'{}' holds another simulation: {}; choose another [simulate] folder, or remove this one",
                    folder_, first_difference(there, manifest_)));
  }
  if (there.samples > manifest_.samples) {
    fail_config(fmt::format(
        "'{}' was made for {} samples, and [simulate] samples is {}; ask for at least as many, or "
        "choose another folder",
        folder_, there.samples, manifest_.samples));
  }
}

void ResultFolder::take_up_samples() {
  std::set<std::int64_t> there;
  for (const DirectoryEntry& entry : files_.list(folder_ + "/samples")) {
    const std::string path = folder_ + "/samples/" + entry.name;
    if (entry.name == partial_path(entry.name.substr(0, entry.name.find('.')))) {
      remove_tree(files_, path);
      continue;
    }
    const std::optional<std::int64_t> index = index_of(entry.name);
    if (!index || *index >= manifest_.samples || simulation_sample_folder(folder_, *index) != path) continue;
    there.insert(*index);
    check_simulation_arrays(files_, path, manifest_.fields);
    if (manifest_.finished.count(*index) > 0) continue;
    // Finished after the last write of the manifest.
    const ArrayMemory memory(manifest_.fields);
    read_simulation_arrays(files_, path, manifest_.fields, memory.views());
    manifest_.finished[*index] = simulation_digest(memory.views());
    manifest_.failed.erase(*index);
  }
  std::erase_if(manifest_.finished, [&](const auto& entry) { return there.count(entry.first) == 0; });
  taken_up_ = static_cast<std::int64_t>(manifest_.finished.size());
}

void ResultFolder::save(bool now) {
  const auto time = std::chrono::steady_clock::now();
  if (!now && time - saved_ < kBetweenSaves) return;
  if (node_) {
    record_share();
  } else {
    files_.write_text_atomically(simulation_manifest_path(folder_), simulation_manifest_text(manifest_));
  }
  saved_ = time;
}

}  // namespace tenon::simulate
