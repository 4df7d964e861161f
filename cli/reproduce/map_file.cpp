// Reading and checking of map_file.hpp.
#include "reproduce/map_file.hpp"

#include "reproduce/study_file.hpp"

#include <fmt/format.h>

namespace tenon::reproduce {
namespace {

constexpr OptionSpec kMapOptions[] = {
    option::integers("workers", nullptr)
        .mandatory()
        .doc_text("numbers of worker processes, ascending, from 1, to which rates are compared"),
};

using SayWhat = std::function<void(const std::string&, const std::string&)>;

void check_workers(const std::vector<std::int64_t>& workers, const std::string& key, const SayWhat& say) {
  if (workers.empty() || workers.front() != 1)
    say(key, "the first number must be 1: efficiency is a rate over that of one worker");
  for (std::size_t i = 1; i < workers.size(); ++i) {
    if (workers[i] <= workers[i - 1])
      say(key, fmt::format("{} follows {}; values must ascend", workers[i], workers[i - 1]));
  }
}

}  // namespace

const std::vector<std::int64_t>& SimulationMap::workers_at(const Size& size) const {
  return size.points.empty() ? workers : size.points;
}

SimulationMap read_simulation_map(const Value& table) {
  const Resolution found =
      resolve_options({.table = table, .owner = "map", .specs = option_list(kMapOptions)});
  return {integers_of(*found.options, "workers")};
}

void check_simulation_map(const StudyFile& study, const SayWhat& say) {
  check_workers(study.map->workers, "map.workers", say);
  for (const Size& size : study.sizes) {
    const auto key = [&](const char* name) { return fmt::format("size.{}.{}", size.name, name); };
    if (size.steps != 0) say(key("steps"), "a simulation has tasks and no steps; say samples = N");
    if (size.samples < 1)
      say(key("samples"), "how many tasks does every simulation have? e.g. samples = 100");
    if (!size.points.empty()) check_workers(size.points, key("points"), say);
  }
  for (std::size_t i = 0; i < study.arms.size(); ++i) {
    const StudyArm& arm = study.arms[i];
    const StudyArm* baseline = study.arm(arm.baseline);
    if (baseline != nullptr && baseline->baseline != baseline->arm.name)
      say(fmt::format("arm[{}].baseline", i),
          fmt::format("'{}' is itself compared with '{}'; name that one", arm.baseline, baseline->baseline));
    for (const std::string& set : arm.arm.set) {
      for (const char* ours : {"simulate.workers", "simulate.samples", "simulate.seed", "simulate.folder"}) {
        if (set.starts_with(std::string(ours) + "="))
          say(fmt::format("arm[{}].set", i), fmt::format("{} is the study's to set", ours));
      }
    }
  }
}

}  // namespace tenon::reproduce
