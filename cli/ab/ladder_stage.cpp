// The plan, the studies and the fit of a ladder; see ladder_stage.hpp.
#include "ab/ladder_stage.hpp"

#include "ab/ab.hpp"
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
#include <utility>

namespace tenon::ab {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr const char* kLadderFile = "ladder.json";
constexpr const char* kLadderFormat = "tenon.ab.ladder_plan/1";

std::string point_folder(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / "points" / name).string();
}

/// Without a budget: the base's steps are those that its schedule was written for.
Config counted_config(const Experiment& experiment, const LadderPoint& point) {
  std::vector<std::string> sets = point.set;
  const Arm& baseline = experiment.arms.front();
  sets.insert(sets.end(), baseline.set.begin(), baseline.set.end());
  return Config::load(experiment.base, sets, baseline.extends);
}

class Planner {
 public:
  Planner(const Experiment& experiment, const StudyOptions& options)
      : experiment_(experiment), rule_(*experiment.ladder), options_(options) {}

  std::vector<PlannedPoint> plan() const {
    std::vector<PlannedPoint> out;
    std::vector<double> sizes;
    for (const LadderPoint& point : rule_.points) {
      out.push_back(planned(point));
      sizes.push_back(out.back().size);
    }
    if (const auto problems = problems_of(rule_, sizes); !problems.empty())
      fail_config(fmt::format("{}", fmt::join(problems, "\n")));
    for (const PlannedPoint& p : out) check_arms(p);
    return out;
  }

 private:
  PlannedPoint planned(const LadderPoint& point) const {
    PlannedPoint out{.point = point, .size = point.size.value_or(0)};
    ModelSize model;
    if (rule_.counts(point)) {
      model = count(point);
      out.parameters = model.parameters;
      if (!point.size) out.size = static_cast<double>(model.parameters);
    }
    out.budget = experiment_.budget;
    if (point.steps > 0) {
      out.budget = {Axis::kSteps, static_cast<double>(point.steps)};
    } else if (rule_.tokens_per_parameter) {
      out.budget = steps(*rule_.tokens_per_parameter, model.parameters, model.tokens_per_step);
    } else if (rule_.samples_per_parameter) {
      out.budget = steps(*rule_.samples_per_parameter, model.parameters, model.samples_per_step);
    }
    return out;
  }

  static Budget steps(double each, std::int64_t parameters, std::int64_t per_step) {
    return {Axis::kSteps, static_cast<double>(steps_for(each, parameters, per_step))};
  }

  ModelSize count(const LadderPoint& point) const {
    ModelSize model;
    try {
      if (!options_.measure)
        fail_config("the parameters of a model cannot be counted here; write size and steps beside set");
      model = options_.measure(counted_config(experiment_, point));
    } catch (const Error& error) {
      throw Error(error.kind(),
                  fmt::format("{}: ladder: point '{}' cannot be built, and nothing was started: {}",
                              point.where, point.name, error.what()));
    }
    if (model.parameters > 0) return model;
    fail_config(
        fmt::format("{}: ladder: the model of point '{}' has no trained parameter; write size beside set",
                    point.where, point.name));
  }

  /// Refuses before the first run what the last point would refuse after hours.
  void check_arms(const PlannedPoint& planned) const {
    if (!options_.resolve) return;
    const Experiment at = experiment_of_point(experiment_, planned);
    for (const Arm& arm : at.arms) {
      try {
        options_.resolve(Config::load(at.base, run_sets(at, arm, at.seeds.front()), arm.extends));
      } catch (const Error& error) {
        throw Error(error.kind(),
                    fmt::format("{}: ladder: arm '{}' cannot run at point '{}', and nothing was started: {}",
                                planned.point.where, arm.name, planned.point.name, error.what()));
      }
    }
  }

  const Experiment& experiment_;
  const LadderRule& rule_;
  const StudyOptions& options_;
};

std::string plan_json(const std::vector<PlannedPoint>& plan) {
  ordered_json points = ordered_json::array();
  for (const PlannedPoint& p : plan) {
    points.push_back({{"name", p.point.name},
                      {"size", p.size},
                      {"parameters", p.parameters},
                      {"budget", {{"kind", axis_name(p.budget.kind)}, {"amount", p.budget.amount}}}});
  }
  const ordered_json out{{"format", kLadderFormat}, {"points", points}};
  return out.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

std::vector<PlannedPoint> stored_plan(const Experiment& experiment, const std::string& folder) {
  const std::string where = (fs::path(folder) / kLadderFile).string();
  const std::optional<std::string> text = base::read_file(where);
  if (!text) fail_run(fmt::format("{} cannot be read; the ladder had not begun. Start it again", where));
  std::vector<PlannedPoint> out;
  try {
    const ordered_json value = ordered_json::parse(*text);
    if (value.at("format") != kLadderFormat)
      fail_run(fmt::format("expected format {}, found {}", kLadderFormat, value.at("format").dump()));
    for (const ordered_json& p : value.at("points")) {
      const std::string name = p.at("name");
      const auto& points = experiment.ladder->points;
      const auto found = std::find_if(points.begin(), points.end(),
                                      [&](const LadderPoint& point) { return point.name == name; });
      if (found == points.end()) fail_run(fmt::format("the experiment has no point '{}'", name));
      const double size = p.at("size");
      if (!(size > 0)) fail_run(fmt::format("point '{}' has the size {}", name, size));
      out.push_back({.point = *found,
                     .size = size,
                     .parameters = p.at("parameters"),
                     .budget = {axis_from_name(p.at("budget").at("kind")), p.at("budget").at("amount")}});
    }
  } catch (const std::exception& error) {
    fail_run(fmt::format("{}: not the plan of a ladder: {}; start the study again", where, error.what()));
  }
  return out;
}

/// What a finished study says, with the size of its point.
PointStudy read_point_study(const PlannedPoint& planned, const StudyResult& result) {
  PointStudy out{.plan = planned};
  const Study& study = result.study;
  for (const ArmRuns& arm : study.arms)
    out.runs += static_cast<std::size_t>(
        std::count_if(arm.runs.begin(), arm.runs.end(), [](const auto& run) { return run.has_value(); }));
  if (study.wall_clock_valid()) out.seconds = study.sum(&RunRecord::wall_s);
  out.bytes = study.sum(&RunRecord::bytes_sent);
  for (const Comparison& c : result.comparisons) {
    const MeanEstimate& d = c.primary.difference;
    out.effects.push_back(
        {study.arms[c.other].arm.name, {planned.size, d}, d.interval, outcome_name(c.verdict.outcome)});
  }
  if (result.comparisons.empty()) {
    out.refusals = study.refusals;
    if (out.refusals.empty()) out.refusals = {result.refusal.headline};
  }
  return out;
}

/// Collects the points of a ladder. The study of the greatest size stands for all in the outcome.
class Collected {
 public:
  Collected(const Experiment& experiment, const std::string& folder, int jobs) {
    result_.experiment = experiment;
    result_.folder = folder;
    result_.jobs = jobs;
  }

  void add(const PlannedPoint& planned, StudyOutcome study) {
    add_point(read_point_study(planned, study.result));
    outcome_.runs.completed += study.runs.completed;
    outcome_.runs.interrupted |= study.runs.interrupted;
    if (planned.size < greatest_) return;
    greatest_ = planned.size;
    outcome_.result = std::move(study.result);
  }

  void add(const PlannedPoint& planned, const std::string& refusal) {
    add_point(PointStudy{.plan = planned, .refusals = {refusal}});
  }

  bool interrupted() const { return outcome_.runs.interrupted; }

  StudyOutcome finish() {
    if (interrupted()) result_.refusals.push_back("the study was interrupted");
    analyse_ladder(result_);
    const fs::path folder = result_.folder;
    outcome_.report_json_path = (folder / "report.json").string();
    outcome_.report_html_path = (folder / "report.html").string();
    const auto files = make_posix_files();
    files->make_directories((folder / "csv").string());
    files->write_text_atomically((folder / "csv" / "ladder.csv").string(), ladder_csv(result_));
    files->write_text_atomically(outcome_.report_json_path, ladder_json(result_, true));
    files->write_text_atomically(outcome_.report_html_path, ladder_html(result_));
    const bool fits = std::any_of(result_.lines.begin(), result_.lines.end(),
                                  [](const LadderLine& line) { return line.fit.has_value(); });
    outcome_.exit_status = fits ? 0 : 1;
    if (outcome_.result.study.arms.empty()) outcome_.result.study.experiment = result_.experiment;
    outcome_.ladder = std::move(result_);
    return std::move(outcome_);
  }

 private:
  void add_point(PointStudy point) {
    point.held_out = point.plan.point.name == result_.experiment.ladder->held_out;
    result_.points.push_back(std::move(point));
  }

  LadderResult result_;
  StudyOutcome outcome_;
  double greatest_ = 0;
};

}  // namespace

const PointEffect* PointStudy::of(const std::string& arm) const {
  const auto found =
      std::find_if(effects.begin(), effects.end(), [&](const PointEffect& e) { return e.arm == arm; });
  return found == effects.end() ? nullptr : &*found;
}

Experiment experiment_of_point(const Experiment& experiment, const PlannedPoint& planned) {
  Experiment out = experiment;
  out.ladder.reset();
  out.name += "-" + planned.point.name;
  out.path.clear();  // its command would be that of the whole ladder
  const std::string question = experiment.question.empty() ? experiment.name : experiment.question;
  out.question = fmt::format("{} At {}.", question, planned.point.name);
  out.budget = planned.budget;
  for (Arm& arm : out.arms)
    arm.set.insert(arm.set.begin(), planned.point.set.begin(), planned.point.set.end());
  return out;
}

std::int64_t steps_for(double each, std::int64_t parameters, std::int64_t per_step) {
  const double steps =
      each * static_cast<double>(parameters) / static_cast<double>(std::max<std::int64_t>(per_step, 1));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(steps)));
}

void analyse_ladder(LadderResult& result) {
  const Experiment& e = result.experiment;
  for (const PointStudy& point : result.points) {
    for (const std::string& why : point.refusals)
      result.refusals.push_back(fmt::format("point '{}': {}", point.plan.point.name, why));
  }
  if (!result.refusals.empty()) return;
  for (std::size_t a = 1; a < e.arms.size(); ++a) {
    const std::string& arm = e.arms[a].name;
    std::vector<LadderEffect> effects;
    std::optional<LadderEffect> held_out;
    LadderLine absent{.arm = arm};
    for (const PointStudy& point : result.points) {
      const PointEffect* found = point.of(arm);
      if (found == nullptr) {
        absent.refusals.push_back(fmt::format(
            "arm '{}' is not in the study of point '{}'; its report says why", arm, point.plan.point.name));
      } else if (point.held_out) {
        held_out = found->effect;
      } else {
        effects.push_back(found->effect);
      }
    }
    result.lines.push_back(absent.refusals.empty() ? fit_line(arm, effects, held_out, e.alpha) : absent);
  }
}

StudyOutcome run_ladder(const Experiment& experiment, const StudyOptions& options) {
  if (options.self_check)
    fail_config(
        "--aa compares an arm with itself at one size; [ladder] fits effects over sizes. Use one of them");
  if (options.restart)
    fail_config("--restart is for experiments with [sequential]; a ladder makes anew what was edited");
  const std::string folder = fs::absolute(options.folder).lexically_normal().string();
  const auto files = make_posix_files();
  files->make_directories(folder);
  const FileLock lock = lock_study(folder);
  const std::vector<PlannedPoint> plan = Planner(experiment, options).plan();
  files->write_text_atomically((fs::path(folder) / kStudyRecord).string(),
                               study_record_json({experiment, options.jobs, false}));
  files->write_text_atomically((fs::path(folder) / kLadderFile).string(), plan_json(plan));
  Collected collected(experiment, folder, options.jobs);
  for (const PlannedPoint& planned : plan) {
    const std::string& name = planned.point.name;
    if (collected.interrupted()) {
      collected.add(planned, "its study was not begun");
      continue;
    }
    StudyOptions at = options;
    at.folder = point_folder(folder, name);
    at.keep_finished = true;
    if (options.progress) {
      options.progress(fmt::format("point {}: size {:.10g}, {:.10g} {} a run", name, planned.size,
                                   planned.budget.amount, axis_name(planned.budget.kind)),
                       true);
      at.progress = [&](const std::string& line, bool finished) {
        options.progress(fmt::format("{}: {}", name, line), finished);
      };
    }
    collected.add(planned, run_study(experiment_of_point(experiment, planned), at));
  }
  return collected.finish();
}

StudyOutcome report_ladder(const Experiment& experiment, const std::string& folder, int jobs) {
  Collected collected(experiment, folder, jobs);
  for (const PlannedPoint& planned : stored_plan(experiment, folder)) {
    const std::string at = point_folder(folder, planned.point.name);
    if (!is_study_folder(at)) {
      collected.add(planned, "its study was not begun");
      continue;
    }
    try {
      collected.add(planned, report_study(at));
    } catch (const Error& error) {
      collected.add(planned, error.what());
    }
  }
  return collected.finish();
}

}  // namespace tenon::ab
