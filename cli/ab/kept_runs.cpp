// The digests and what follows from them; see kept_runs.hpp.
#include "ab/kept_runs.hpp"

#include "base/file_descriptor.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <string>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using Digests = std::map<std::string, std::string>;  // by arm

constexpr const char* kKeptFormat = "tenon.ab.kept/1";

fs::path kept_path(const RunnerOptions& options) {
  return fs::path(options.folder) / "kept.json";
}

/// The digest of every arm's configuration, with one seed for all.
Digests digests_of(const Experiment& experiment) {
  Digests out;
  for (const Arm& arm : experiment.arms) {
    const Config config = Config::load(experiment.base, run_sets(experiment, arm, 0), arm.extends);
    const std::string text = to_toml(config.root(), false);
    out[arm.name] = xxh3_128_of(std::as_bytes(std::span(text)));
  }
  return out;
}

/// Empty where there is no record, or a damaged one: then no run is known to be of this study.
Digests read_kept(const fs::path& path) {
  const std::optional<std::string> text = base::read_file(path);
  if (!text) return {};
  try {
    const nlohmann::ordered_json value = nlohmann::ordered_json::parse(*text);
    if (value.at("format") == kKeptFormat) return value.at("arms").get<Digests>();
  } catch (const nlohmann::json::exception&) {
  }
  return {};
}

void put_arm_aside(const fs::path& folder, const std::string& arm) {
  fs::path target;
  for (int n = 1; target.empty() || fs::exists(target / arm); ++n)
    target = folder / "earlier" / std::to_string(n) / "runs";
  fs::create_directories(target);
  fs::rename(folder / "runs" / arm, target / arm);
}

}  // namespace

std::vector<Job> missing_jobs(const Experiment& experiment, const RunnerOptions& options) {
  const Digests kept = read_kept(kept_path(options));
  const Digests now = digests_of(experiment);
  for (const auto& [arm, digest] : now) {
    const auto found = kept.find(arm);
    if (found != kept.end() && found->second == digest) continue;
    if (!fs::exists(fs::path(options.folder) / "runs" / arm)) continue;
    put_arm_aside(options.folder, arm);
    if (options.progress) {
      options.progress(
          fmt::format("arm '{}' was edited since its runs were made; they are in {} now, and are "
                      "made anew",
                      arm, (fs::path(options.folder) / "earlier").string()),
          true);
    }
  }
  // After the moves: a start that reads this record finds no run of another configuration.
  const nlohmann::ordered_json record{{"format", kKeptFormat}, {"arms", now}};
  make_posix_files()->write_text_atomically(kept_path(options).string(), record.dump(1) + "\n");
  std::vector<Job> jobs = plan_jobs(experiment, options);
  std::erase_if(jobs, [](const Job& job) { return run_completed(job.parent); });
  return jobs;
}

}  // namespace tenon::ab
