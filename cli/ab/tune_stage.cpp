// The runs of tune_stage.hpp.
#include "ab/tune_stage.hpp"

#include "ab/run_record.hpp"
#include "base/digests.hpp"
#include "base/file_descriptor.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <span>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kTuningFile = "tuning.json";
constexpr const char* kTuningFormat = "tenon.ab.tuning/1";

/// The experiment of the tuning runs: their seeds and their budget.
Experiment trial_experiment(const Experiment& experiment) {
  Experiment out = experiment;
  out.seeds = experiment.tune->seeds;
  out.budget = experiment.tune->budget.value_or(experiment.budget);
  out.sequential.reset();
  return out;
}

Arm with_settings(Arm arm, const TuneRule& rule, const std::vector<double>& position) {
  for (std::string& word : settings(rule, arm.name, position)) arm.set.push_back(std::move(word));
  return arm;
}

/// Whether the files of the plugins that a run has loaded are what they were.
class PluginFiles {
 public:
  bool unchanged(const RunRecord& run) {
    for (const auto& [key, value] : run.plugins_lock) {
      if (!key.ends_with(".file")) continue;
      const auto digest = run.plugins_lock.find(key.substr(0, key.size() - 4) + "sha256");
      if (digest != run.plugins_lock.end() && digest->second != Value(digest_of(value)).inline_toml())
        return false;
    }
    return true;
  }

 private:
  /// `file` is TOML.
  const std::string& digest_of(const std::string& file) {
    auto [at, fresh] = digests_.try_emplace(file);
    if (fresh) {
      const fs::path path = parse_value(file, {}).text();
      if (fs::exists(path)) at->second = plugin::file_sha256(path);
    }
    return at->second;
  }

  std::map<std::string, std::string> digests_;
};

class Stage {
 public:
  Stage(const Experiment& experiment, const RunnerOptions& options)
      : rule_(*experiment.tune), plan_(trial_experiment(experiment)), options_(options) {
    const std::size_t arms = rule_.arms == TuneArms::kShared ? 1 : plan_.arms.size();
    const std::vector<std::vector<double>> points = tune_points(rule_);
    for (std::size_t a = 0; a < arms; ++a) {
      Basin basin;
      basin.arm = plan_.arms[a].name;
      for (const std::vector<double>& point : points) basin.trials.push_back({.position = point});
      basins_.push_back(std::move(basin));
    }
  }

  /// Names the folder of every run by the resolved configuration of its trial.
  void name_folders() {
    for (std::size_t a = 0; a < basins_.size(); ++a) {
      for (Trial& trial : basins_[a].trials) {
        const std::string digest = trial_digest(with_settings(plan_.arms[a], rule_, trial.position));
        for (const std::int64_t seed : plan_.seeds)
          trial.folders.push_back(fmt::format("tuning/{}/{}", digest, seed));
      }
    }
  }

  /// The runs that are not there. Arms take turns in going first.
  std::vector<Job> missing() {
    std::vector<Job> out;
    PluginFiles plugins;
    std::map<std::string, bool> planned;
    for (std::size_t s = 0; s < plan_.seeds.size(); ++s) {
      for (std::size_t t = 0; t < basins_.front().trials.size(); ++t) {
        for (std::size_t i = 0; i < basins_.size(); ++i) {
          const std::size_t a = t % 2 == 0 ? i : basins_.size() - 1 - i;
          const Trial& trial = basins_[a].trials[t];
          const std::string parent = path_of(trial.folders[s]);
          if (!planned.try_emplace(parent, true).second || is_there(parent, plugins)) continue;
          Job job = job_of(plan_, with_settings(plan_.arms[a], rule_, trial.position), plan_.seeds[s], parent,
                           options_);
          job.arm = a;
          job.note = settings_text(rule_, basins_[a].arm, trial.position);
          out.push_back(std::move(job));
        }
      }
    }
    return out;
  }

  void take_folders(const std::string& text, const std::string& where) {
    try {
      const ordered_json value = ordered_json::parse(text);
      if (value.at("format") != kTuningFormat)
        fail_run(fmt::format("expected format {}, found {}", kTuningFormat, value.at("format").dump()));
      for (std::size_t a = 0; a < basins_.size(); ++a) {
        const ordered_json& trials = value.at("arms").at(a).at("trials");
        for (std::size_t t = 0; t < basins_[a].trials.size(); ++t)
          basins_[a].trials[t].folders = trials.at(t).at("runs").get<std::vector<std::string>>();
      }
    } catch (const std::exception& error) {
      fail_run(
          fmt::format("{}: not the tuning of this study: {}; start the study again", where, error.what()));
    }
  }

  Tuning read(const RunnerResult& runs) {
    for (Basin& basin : basins_) {
      for (Trial& trial : basin.trials) read_trial(basin, trial, runs);
      choose(basin, rule_, plan_.lower_is_better, plan_.alpha);
    }
    Tuning out{rule_, std::move(basins_)};
    judge(out);
    for (std::string& cost : cost_refusals(out, plan_.budget.kind)) out.refusals.push_back(std::move(cost));
    return out;
  }

 private:
  std::string path_of(const std::string& folder) const {
    return (fs::path(options_.folder) / folder).string();
  }

  std::string trial_digest(const Arm& arm) const {
    try {
      // One seed for all: the folder below names it.
      Config config = Config::load(plan_.base, run_sets(plan_, arm, 0), arm.extends);
      if (options_.resolve) config = options_.resolve(config);
      const std::string text = to_toml(config.root(), false);
      return xxh3_128_of(std::as_bytes(std::span(text))).substr(0, 16);
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("arm '{}' cannot run with {}, and nothing was started: {}\nA key that this arm "
                              "does not have takes only = [...] in its [[tune.key]]",
                              arm.name, fmt::join(arm.set, ", "), error.what()));
    }
  }

  static bool is_there(const std::string& parent, PluginFiles& plugins) {
    if (!run_completed(parent)) return false;
    try {
      return plugins.unchanged(
          read_run((fs::path(parent) / std::to_string(newest_attempt(parent))).string()));
    } catch (const Error&) {
      return false;  // a run that cannot be read is made again
    }
  }

  void read_trial(Basin& basin, Trial& trial, const RunnerResult& runs) const {
    for (std::size_t s = 0; s < plan_.seeds.size(); ++s) {
      const std::string parent = path_of(trial.folders[s]);
      std::string why;
      trial.costs.emplace_back();
      trial.values.push_back(read_value(trial.costs.back(), parent, runs, why));
      basin.cost += trial.costs.back();
      if (!why.empty() && trial.failure.empty())
        trial.failure = fmt::format("seed {}: {}", plan_.seeds[s], why);
    }
  }

  /// The final value of a run, and what it consumed; NaN, and why, if there is none.
  double read_value(TuneCost& cost, const std::string& parent, const RunnerResult& runs,
                    std::string& why) const {
    for (const FailedJob& failed : runs.failed) {
      if (failed.job.parent == parent) why = fmt::format("{}, see {}", failed.reason, failed.job.log);
    }
    try {
      const int attempt = newest_attempt(parent);
      if (attempt == 0) fail_run(fmt::format("{}: no attempt was made", parent));
      const RunRecord run = read_run((fs::path(parent) / std::to_string(attempt)).string());
      cost = {.runs = 1,
              .ended_early = run.status == "completed" ? 0U : 1U,
              .steps = run.steps,
              .samples = run.samples,
              .tokens = run.tokens,
              .bytes = run.bytes_sent,
              .seconds = run.wall_s};
      const std::optional<double> value = run.final_value(plan_.metric);
      if (!why.empty()) return NAN;
      if (run.status != "completed") {
        why = fmt::format("the run is '{}', not completed ({})", run.status, run.folder);
      } else if (!value) {
        why = fmt::format("no value of {} was recorded ({})", plan_.metric, run.folder);
      } else if (!std::isfinite(*value)) {
        why = fmt::format("the run diverged, {} ended as {}", plan_.metric, *value);
      } else {
        return *value;
      }
    } catch (const Error& error) {
      if (why.empty()) why = error.what();
    }
    return NAN;
  }

  void judge(Tuning& tuning) const {
    for (std::size_t a = 0; a < tuning.basins.size(); ++a) {
      const Basin& basin = tuning.basins[a];
      if (basin.chosen) {
        for (std::string& edge : edge_refusals(basin, rule_)) tuning.refusals.push_back(std::move(edge));
        continue;
      }
      const std::string why =
          fmt::format("none of its {} settings trained on all tuning seeds; the first: {}",
                      basin.trials.size(), basin.trials.front().failure);
      if (a > 0 && rule_.failure == TuneFailure::kDrop) {
        tuning.dropped.push_back(fmt::format("{}: {}", basin.arm, why));
      } else {
        tuning.refusals.push_back(fmt::format(
            "arm '{}': {}{}", basin.arm, why,
            a > 0 ? ". To go on without such an arm, write on_failure = \"drop\" in [tune]" : ""));
      }
    }
    if (tuning.refusals.empty() && plan_.arms.size() - tuning.dropped.size() < 2)
      tuning.refusals.push_back(
          fmt::format("no arm is left to compare with the baseline: {}", fmt::join(tuning.dropped, "; ")));
  }

  TuneRule rule_;
  Experiment plan_;
  const RunnerOptions& options_;
  std::vector<Basin> basins_;
};

ordered_json tried_number(double v) {
  return std::isfinite(v) ? ordered_json(v) : ordered_json(nullptr);
}

ordered_json trial_json(const TuneRule& rule, const std::string& arm, const Trial& trial) {
  ordered_json values = ordered_json::array();
  for (const double v : trial.values) values.push_back(tried_number(v));
  return {{"settings", settings(rule, arm, trial.position)},
          {"values", values},
          {"mean", tried_number(trial.mean)},
          {"interval", {tried_number(trial.interval.low), tried_number(trial.interval.high)}},
          {"smoothed", tried_number(trial.smoothed)},
          {"failure", trial.failure},
          {"runs", trial.folders}};
}

ordered_json basin_json(const TuneRule& rule, const Basin& basin) {
  ordered_json trials = ordered_json::array(), edges = ordered_json::array();
  for (const Trial& trial : basin.trials) trials.push_back(trial_json(rule, basin.arm, trial));
  for (const TuneEdge& edge : basin.edges)
    edges.push_back({{"key", rule.keys[edge.key].name}, {"end", edge.high ? "high" : "low"}});
  return {{"name", basin.arm},
          {"chosen", basin.chosen ? ordered_json(*basin.chosen) : ordered_json(nullptr)},
          {"edges", edges},
          {"noise", tried_number(basin.noise)},
          {"cost",
           {{"runs", basin.cost.runs},
            {"ended_early", basin.cost.ended_early},
            {"steps", basin.cost.steps},
            {"samples", basin.cost.samples},
            {"tokens", basin.cost.tokens},
            {"bytes_sent", basin.cost.bytes},
            {"wall_s", basin.cost.seconds}}},
          {"trials", trials}};
}

}  // namespace

std::string tuning_json(const Tuning& tuning) {
  ordered_json arms = ordered_json::array();
  for (const Basin& basin : tuning.basins) arms.push_back(basin_json(tuning.rule, basin));
  const ordered_json out{{"format", kTuningFormat},
                         {"seeds", tuning.rule.seeds},
                         {"tuned", kTuneArms.name(tuning.rule.arms)},
                         {"arms", arms},
                         {"refusals", tuning.refusals},
                         {"dropped", tuning.dropped}};
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Tuning tune(const Experiment& experiment, const RunnerOptions& options, RunnerResult& runs) {
  Stage stage(experiment, options);
  stage.name_folders();
  RunnerOptions trials = options;
  trials.label = "tune";
  runs = run_planned(trial_experiment(experiment), stage.missing(), trials);
  Tuning out = stage.read(runs);
  make_posix_files()->write_text_atomically((fs::path(options.folder) / kTuningFile).string(),
                                            tuning_json(out));
  for (const Basin& basin : out.basins) {
    if (options.progress && basin.chosen && !runs.interrupted)
      options.progress(fmt::format("tuned {}: {}", basin.arm,
                                   settings_text(out.rule, basin.arm, basin.trials[*basin.chosen].position)),
                       true);
  }
  return out;
}

Tuning stored_tuning(const Experiment& experiment, const std::string& folder) {
  const RunnerOptions options{.program = "", .folder = folder};
  Stage stage(experiment, options);
  const std::string where = (fs::path(folder) / kTuningFile).string();
  const std::optional<std::string> text = base::read_file(where);
  if (!text)
    fail_run(fmt::format("{} cannot be read; the study had not begun to tune. Start it again", where));
  stage.take_folders(*text, where);
  return stage.read({});
}

Experiment tuned_experiment(const Experiment& experiment, const Tuning& tuning) {
  Experiment out = experiment;
  out.tune.reset();
  out.arms.clear();
  for (const Arm& arm : experiment.arms) {
    const Basin* basin = tuning.of(arm.name);
    if (basin == nullptr || !basin->chosen) continue;
    out.arms.push_back(with_settings(arm, tuning.rule, basin->trials[*basin->chosen].position));
  }
  return out;
}

}  // namespace tenon::ab
