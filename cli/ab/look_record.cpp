// Reading, checking and writing of look_record.hpp.
#include "ab/look_record.hpp"

#include "ab/ab.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <filesystem>
#include <optional>
#include <utility>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kLooks = "looks.json";
constexpr const char* kFormat = "tenon.ab.looks/1";
constexpr const char* kParts[] = {kStudyRecord, kLooks, "report.json", "report.html", "csv", "arms", "runs"};

fs::path looks_path(const std::string& folder) {
  return fs::path(folder) / kLooks;
}

}  // namespace

std::string plan_digest(const Experiment& experiment) {
  Experiment plan = experiment;
  plan.name = plan.path = plan.base = "";
  if (plan.family) plan.alpha = plan.family->alpha;  // a plan is the same at every level
  plan.family.reset();
  std::string text;
  for (Arm& arm : plan.arms) {
    text += to_toml(Config::load(experiment.base, arm.set, arm.extends).root(), false);
    arm.extends.clear();
  }
  text += study_record_json({plan, 1, false});
  return xxh3_128_of(std::as_bytes(std::span(text)));
}

LookRecord LookRecord::read(const std::string& folder) {
  LookRecord out;
  out.folder_ = folder;
  const std::string where = looks_path(folder).string();
  const std::optional<std::string> text = base::read_file(where);
  if (!text) return out;
  try {
    const ordered_json value = ordered_json::parse(*text);
    if (value.at("format") != kFormat)
      fail_run(fmt::format("expected format {}, found {}", kFormat, value.at("format").dump()));
    out.digest_ = value.at("digest");
    for (const ordered_json& used : value.at("used"))
      out.used_.push_back({used.at("arm"), used.at("seed"), used.at("attempt"), used.at("value")});
  } catch (const std::exception& error) {
    fail_run(fmt::format("{}: not a record of looks: {}; begin anew with --restart", where, error.what()));
  }
  return out;
}

LookRecord LookRecord::begin(const std::string& folder, const std::string& digest) {
  LookRecord out = read(folder);
  if (out.digest_.empty() && fs::exists(fs::path(folder) / "runs")) {
    fail_config(
        fmt::format("{} holds runs of a study without looks; a sequential study begins in a folder of its "
                    "own (--out DIR), or with --restart, which keeps them in {}/earlier",
                    folder, folder));
  }
  // Before the first run there is nothing that an edit could follow.
  const bool begun = !out.used_.empty() || fs::exists(fs::path(folder) / "runs");
  if (begun && !out.digest_.empty() && out.digest_ != digest) {
    fail_config(fmt::format(
        "{}: the experiment, or a file that its arms extend, was edited after {}: the digest of the plan is "
        "now {}, "
        "{} was looked at. A verdict under looking needs the plan it began with: put the files as they were, "
        "or begin "
        "anew with --restart, which keeps what there is in {}/earlier",
        folder,
        out.used_.empty() ? "the study began" : fmt::format("{} runs were used in looks", out.used_.size()),
        digest, out.digest_, folder));
  }
  out.digest_ = digest;
  out.write();
  return out;
}

const LookRecord::Used* LookRecord::find(const std::string& arm, std::int64_t seed) const {
  for (const Used& used : used_) {
    if (used.arm == arm && used.seed == seed) return &used;
  }
  return nullptr;
}

void LookRecord::check_runs() const {
  for (const Used& used : used_) {
    const fs::path parent = run_parent(folder_, used.arm, used.seed);
    const int newest = newest_attempt(parent.string());
    const fs::path attempt = parent / std::to_string(used.attempt);
    if (newest == used.attempt && fs::exists(attempt / "summary.json")) continue;
    fail_run(
        fmt::format("arm '{}', seed {}: a look has used the run {}, and {}; put it back, or begin anew with "
                    "--restart",
                    used.arm, used.seed, attempt.string(),
                    newest > used.attempt ? fmt::format("there is a newer attempt {} now", newest)
                                          : std::string("it is gone")));
  }
}

void LookRecord::check_values(const Study& study) const {
  for (const ArmRuns& arm : study.arms) {
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      const Used* used = find(arm.arm.name, study.experiment.seeds[s]);
      if (used == nullptr || !arm.runs[s]) continue;
      const std::optional<double> value = arm.runs[s]->final_value(study.experiment.metric);
      if (value && *value == used->value) continue;
      fail_run(
          fmt::format("{}: a look has used {} = {}, and it is {} now; put the run back, or begin anew with "
                      "--restart",
                      arm.runs[s]->folder, study.experiment.metric, used->value,
                      value ? fmt::format("{}", *value) : "absent"));
    }
  }
}

void LookRecord::add(const Study& study) {
  for (const ArmRuns& arm : study.arms) {
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      const std::int64_t seed = study.experiment.seeds[s];
      if (find(arm.arm.name, seed) != nullptr) continue;
      used_.push_back({arm.arm.name, seed, arm.runs[s]->attempt,
                       arm.runs[s]->final_value(study.experiment.metric).value()});
    }
  }
  write();
}

void LookRecord::write() const {
  if (digest_.empty()) return;  // a folder that is only read
  ordered_json used = ordered_json::array();
  for (const Used& u : used_)
    used.push_back({{"arm", u.arm}, {"seed", u.seed}, {"attempt", u.attempt}, {"value", u.value}});
  const ordered_json out{{"format", kFormat}, {"digest", digest_}, {"used", used}};
  make_posix_files()->write_text_atomically(looks_path(folder_).string(), out.dump(1) + "\n");
}

void put_aside(const std::string& folder) {
  fs::path target;
  for (int n = 1; target.empty() || fs::exists(target); ++n)
    target = fs::path(folder) / "earlier" / std::to_string(n);
  for (const char* part : kParts) {
    const fs::path from = fs::path(folder) / part;
    if (!fs::exists(from)) continue;
    fs::create_directories(target);
    fs::rename(from, target / part);
  }
}

}  // namespace tenon::ab
