// Reading, pairing and comparing of results.hpp.
#include "reproduce/results.hpp"

#include "ab/study.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

namespace fs = std::filesystem;

RunResult read_one(const ab::Experiment& e, const std::string& folder, const ab::Arm& arm, std::int64_t seed,
                   const std::string& metric) {
  RunResult out;
  out.seed = seed;
  const std::string parent = ab::run_parent(folder, arm.name, seed);
  const int attempt = ab::newest_attempt(parent);
  if (attempt == 0) {
    out.status = "missing";
    out.reason = "not run yet";
    return out;
  }
  try {
    out.record = ab::read_run((fs::path(parent) / std::to_string(attempt)).string(), ab::RunState::kAny);
  } catch (const Error& error) {
    out.status = "missing";
    out.reason = error.what();
    return out;
  }
  out.stages = read_stages_of(out.record->folder, {metric, e.metric});
  out.status = out.record->status;
  if (out.status != "completed") {
    const auto why = out.record->manifest.find("exit_reason");
    out.reason = why == out.record->manifest.end() ? "" : why->second;
    return out;
  }
  const std::optional<double> own = metric.empty() ? std::nullopt : out.record->final_value(metric);
  const std::optional<double> value = own ? own : out.record->final_value(e.metric);
  if (!value) {
    out.status = "failed";
    out.reason = fmt::format("no value of {} was recorded", e.metric);
  } else if (!std::isfinite(*value)) {
    out.status = "diverged";
    out.reason = fmt::format("{} ended as {}", e.metric, *value);
  } else {
    out.value = value;
  }
  return out;
}

/// Gaps of the pairs in which both arms have a value and may be compared.
std::vector<double> paired_gaps(ab::Experiment e, const ArmResult& baseline, const ArmResult& arm,
                                const std::string& who, std::vector<std::string>& warnings) {
  // Slots of an arm with its own steps hold more samples: compare samples, not slots.
  const auto own = [&](const ab::Arm& a) { return a.name == who && a.steps > 0; };
  if (std::any_of(e.arms.begin(), e.arms.end(), own)) e.budget.kind = ab::Axis::kSamples;
  std::vector<double> out;
  for (std::size_t s = 0; s < arm.runs.size(); ++s) {
    const RunResult& b = baseline.runs[s];
    const RunResult& a = arm.runs[s];
    if (!a.value || !b.value) continue;
    const std::vector<std::string> refusals = ab::pairing_refusals(e, *b.record, *a.record);
    if (!refusals.empty()) {
      for (const std::string& why : refusals)
        warnings.push_back(fmt::format("{}, seed {} is no pair: {}", who, a.seed, why));
      continue;
    }
    out.push_back(gap_percent(*b.value, *a.value, e.lower_is_better));
  }
  return out;
}

double last_of(const ab::RunRecord& run, const std::string& metric) {
  return run.final_value(metric).value_or(0);
}

/// Mean of a metric's last values; empty if no run has it.
std::optional<double> mean_of(const ArmResult& arm, const std::string& metric) {
  double sum = 0, n = 0;
  for (const RunResult& run : arm.runs) {
    const std::optional<double> value = run.record ? run.record->final_value(metric) : std::nullopt;
    if (!value) continue;
    sum += *value;
    ++n;
  }
  return n > 0 ? std::optional(sum / n) : std::nullopt;
}

/// "train/mor/h.1.attn.q_proj/dgrad.dy" and the same with "/error": layer, operand, share, error.
void read_decisions(const std::string& prefix, ArmResult& arm) {
  std::set<std::string> names;
  for (const RunResult& run : arm.runs) {
    if (!run.record) continue;
    for (const auto& entry : run.record->series) {
      const std::string& name = entry.first;
      if (name.starts_with(prefix) && name.find('.', name.rfind('/')) != std::string::npos)
        names.insert(name);
    }
  }
  for (const std::string& name : names) {
    const std::string rest = name.substr(prefix.size());
    const std::size_t slash = rest.find('/');
    if (slash == std::string::npos) continue;
    arm.decisions.push_back({rest.substr(0, slash), rest.substr(slash + 1),
                             100 * mean_of(arm, name).value_or(0),
                             100 * mean_of(arm, name + "/error").value_or(0)});
  }
}

void summarise(const StudyFile& study, ArmResult& arm) {
  std::vector<double> values, walls;
  double n = 0;
  for (const RunResult& run : arm.runs) {
    if (run.value) values.push_back(*run.value);
    if (!run.record || run.status == "interrupted" || run.status == "unfinished") continue;
    const ab::RunRecord& r = *run.record;
    ++n;
    arm.updates += r.steps;
    arm.samples += r.samples;
    arm.tokens += r.tokens;
    arm.refused += last_of(r, "train/skipped_updates");
    for (const char* purpose : {"gradient", "parameter"})
      arm.bytes += ab::bytes_of(r.bytes_by_purpose, purpose);
    walls.push_back(r.wall_s);
    for (const auto& [format, count] : r.quantized_operands) arm.operands[format] += count;
  }
  for (double* sum : {&arm.updates, &arm.samples, &arm.tokens, &arm.refused, &arm.bytes})
    *sum /= std::max(n, 1.0);
  for (auto& entry : arm.operands) entry.second /= std::max(n, 1.0);
  arm.value = estimate(values, study.alpha);
  arm.wall_s = estimate(walls, study.alpha);
  for (const std::string& metric : study.shares) {
    const std::optional<double> mean = mean_of(arm, metric);
    arm.shares.push_back({metric, mean ? std::optional(100 * *mean) : std::nullopt});
  }
  if (!study.decisions.empty()) read_decisions(study.decisions + "/", arm);
}

/// `text` without the folders of this machine from which paths count: a table is read elsewhere.
std::string as_written(std::string text) {
  std::error_code error;
  std::vector<std::string> folders = data_directories();
  folders.push_back(fs::current_path(error).string());
  for (const std::string& folder : folders) {
    if (folder.size() < 2) continue;
    for (std::size_t at = 0; (at = text.find("\"" + folder + "/", at)) != std::string::npos;)
      text.erase(at + 1, folder.size() + 1);
  }
  return text;
}

/// "gpt_neo (layers = 4, width = 128)": the type and the options that are not defaults.
std::string described(const Value& root, const char* table) {
  const Value* found = root.find(table);
  if (found == nullptr || !found->is_table()) return "";
  std::string type;
  std::vector<std::string> rest;
  for (const Member& member : found->table()) {
    if (member.key == "type") {
      type = member.value.text();
    } else if (member.value.origin.text() != "default") {
      rest.push_back(fmt::format("{} = {}", member.key, member.value.inline_toml()));
    }
  }
  return rest.empty() ? type : as_written(fmt::format("{} ({})", type, fmt::join(rest, ", ")));
}

void add_distinct(std::vector<std::string>& list, std::string text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end())
    list.push_back(std::move(text));
}

void read_provenance(const Plan& plan, const std::vector<ArmResult>& arms, Provenance& out) {
  const Value& root = plan.arms.front().root;
  out.model = described(root, "model");
  out.data = described(root, "data");
  for (const ArmResult& arm : arms) {
    for (const RunResult& run : arm.runs) {
      if (!run.record) continue;
      const ab::RunRecord& r = *run.record;
      out.wall_s += r.wall_s;
      const auto fact = [&](const char* key) {
        const auto found = r.manifest.find(key);
        return found == r.manifest.end() ? std::string() : found->second;
      };
      const bool dirty = fact("program.git_dirty") == "true";
      add_distinct(out.program, fmt::format("{} ({}{})", fact("program.version"), fact("program.git"),
                                            dirty ? ", changed" : ""));
      add_distinct(out.machines, fmt::format("{}, {} cores", fact("cpu.model"), fact("cpu.cores")));
      add_distinct(out.kernels, fact("kernels"));
      add_distinct(out.threads, fact("threads"));
      const std::string start = fact("start"), end = fact("end");
      if (!start.empty() && (out.begun.empty() || start < out.begun)) out.begun = start;
      out.ended = std::max(out.ended, end);
      const auto clock = r.config.find("transport.clock.type");
      if (clock != r.config.end() && clock->second == "\"simulated\"")
        add_distinct(out.simulated, "wall time");
    }
  }
}

}  // namespace

std::string parameters_of(const ResolvedRun& arm) {
  constexpr std::string_view kFact = "parameters: ";
  for (const std::string& fact : arm.facts) {
    if (fact.starts_with(kFact))
      return fact.substr(kFact.size(), fact.find(' ', kFact.size()) - kFact.size());
  }
  return "";
}

std::optional<ab::MeanEstimate> estimate(const std::vector<double>& values, double alpha) {
  if (values.empty()) return std::nullopt;
  return ab::mean_with_interval(values, alpha);
}

double gap_percent(double baseline, double arm, bool lower_is_better) {
  return 100 * (lower_is_better ? baseline - arm : arm - baseline) / std::abs(baseline);
}

StudyResult read_results(const StudyFile& study, const Size& size, const Plan& plan,
                         const std::string& folder) {
  StudyResult out;
  out.study = study;
  out.size = size;
  out.complete = true;
  const ab::Experiment& e = plan.experiment;
  for (std::size_t a = 0; a < e.arms.size(); ++a) {
    ArmResult& arm = out.arms.emplace_back();
    for (const std::int64_t seed : e.seeds) {
      RunResult run = read_one(e, folder, e.arms[a], seed, study.arms[a].metric);
      const bool expected = run.status == "completed" || (study.arms[a].may_fail && run.status == "failed") ||
                            run.status == "diverged";
      if (!expected) out.complete = false;
      if (run.status != "completed") {
        // "failed: the plugin's words" says both.
        const bool both = run.reason.starts_with(run.status);
        out.warnings.push_back(fmt::format("{}, seed {}: {}{}{}", e.arms[a].name, seed,
                                           both ? "" : run.status, both || run.reason.empty() ? "" : ", ",
                                           run.reason));
      }
      arm.runs.push_back(std::move(run));
    }
    arm.parameters = parameters_of(plan.arms[a]);
    summarise(study, arm);
  }
  const auto index_of = [&](const std::string& name) {
    for (std::size_t a = 0; a < e.arms.size(); ++a) {
      if (e.arms[a].name == name) return a;
    }
    return e.arms.size();
  };
  const std::size_t reference = index_of(study.reference);
  for (std::size_t a = 0; a < e.arms.size(); ++a) {
    ArmResult& arm = out.arms[a];
    const std::size_t baseline = index_of(study.arms[a].baseline);
    if (a != baseline) {
      arm.gaps = paired_gaps(e, out.arms[baseline], arm, e.arms[a].name, out.warnings);
      arm.gap = estimate(arm.gaps, study.alpha);
    }
    if (reference < e.arms.size() && a != reference && e.arms[a].name != study.baseline) {
      std::vector<std::string> said_already;
      arm.reference_gap = estimate(paired_gaps(e, out.arms[reference], arm, "", said_already), study.alpha);
    }
  }
  read_provenance(plan, out.arms, out.provenance);
  if (out.provenance.program.size() > 1)
    out.warnings.push_back("the runs were made by more than one program; repeat the study in a fresh folder");
  if (out.provenance.machines.size() > 1)
    out.warnings.push_back("the runs were made on more than one machine; their times do not compare");
  return out;
}

namespace {

std::size_t place_of(const StudyFile& study, const std::string& arm) {
  const auto found = std::find_if(study.arms.begin(), study.arms.end(),
                                  [&](const StudyArm& each) { return each.arm.name == arm; });
  return found - study.arms.begin();
}

void fail(StudyResult& result, std::string why) {
  result.warnings.push_back(std::move(why));
  result.complete = false;
}

/// Values of a metric after the updates 1 ... n, from the lines of a run; empty where one is missing.
std::vector<double> first_values(const RunResult& run, const AgreeingPair& pair) {
  std::vector<double> values;
  if (!run.record) return values;
  const auto series = run.record->series.find(pair.metric);
  if (series == run.record->series.end()) return values;
  for (const ab::MetricPoint& point : series->second) {
    if (point.step == static_cast<std::int64_t>(values.size()) + 1 && point.step <= pair.updates)
      values.push_back(point.value);
  }
  if (values.size() != static_cast<std::size_t>(pair.updates)) values.clear();
  return values;
}

}  // namespace

void read_columns(StudyResult& result, const Evaluator& evaluate) {
  for (const OtherData& other : result.study.evaluations) {
    if (!says(other.sizes, result.size.name)) continue;
    Column column{other, {}};
    for (std::size_t a = 0; a < result.arms.size(); ++a) {
      const std::string& arm = result.study.arms[a].arm.name;
      std::vector<std::optional<double>>& values = column.values.emplace_back(result.arms[a].runs.size());
      if (!says(other.arms, arm)) continue;
      for (std::size_t s = 0; s < values.size(); ++s) {
        const RunResult& run = result.arms[a].runs[s];
        if (run.status != "completed" || !run.record) continue;
        const auto who = [&] { return fmt::format("{}, seed {}, {}", arm, run.seed, other.name); };
        try {
          const auto metrics = evaluate(run.record->folder, other.set);
          const auto found = metrics.find(other.metric);
          if (found != metrics.end() && std::isfinite(found->second)) {
            values[s] = found->second;
          } else {
            fail(result, fmt::format("{}: no finite value of {} was measured", who(), other.metric));
          }
        } catch (const Error& error) {
          fail(result, fmt::format("{}: {}", who(), error.what()));
        }
      }
    }
    result.columns.push_back(std::move(column));
  }
}

void read_agreements(StudyResult& result) {
  for (const AgreeingPair& pair : result.study.agreements) {
    Agreement out{pair, {}, 0, 0, 0};
    const ArmResult& arm = result.arms[place_of(result.study, pair.arm)];
    const ArmResult& with = result.arms[place_of(result.study, pair.with)];
    for (std::size_t s = 0; s < arm.runs.size(); ++s) {
      const std::vector<double> values = first_values(arm.runs[s], pair),
                                wanted = first_values(with.runs[s], pair);
      if (values.empty() || wanted.empty()) {
        fail(result,
             fmt::format("{} and {}, seed {}: expected {} after each of the first {} updates of both; "
                         "let run.log_every be 1",
                         pair.arm, pair.with, arm.runs[s].seed, pair.metric, pair.updates));
        continue;
      }
      ++out.seeds;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double apart = std::abs(values[i] - wanted[i]) / std::abs(wanted[i]);
        if (out.largest && !(apart > *out.largest)) continue;
        out.largest = apart;
        out.seed = arm.runs[s].seed;
        out.update = static_cast<std::int64_t>(i) + 1;
      }
    }
    result.agreements.push_back(std::move(out));
  }
}

void read_verdicts(StudyResult& result, const ab::Experiment& experiment) {
  const StudyFile& study = result.study;
  if (study.margin <= 0) return;
  for (const StudyArm& baseline : study.arms) {
    ab::Study compared;
    compared.experiment = experiment;
    compared.experiment.margin = study.margin;
    compared.experiment.arms.clear();
    const auto add = [&](std::size_t a) {
      compared.experiment.arms.push_back(experiment.arms[a]);
      ab::ArmRuns& runs = compared.arms.emplace_back();
      runs.arm = experiment.arms[a];
      for (const RunResult& run : result.arms[a].runs) {
        runs.runs.push_back(run.value ? run.record : std::nullopt);
        if (!run.value)
          compared.refusals.push_back(
              fmt::format("{}, seed {}: {}", experiment.arms[a].name, run.seed, run.status));
      }
    };
    add(place_of(study, baseline.arm.name));
    for (std::size_t a = 0; a < study.arms.size(); ++a) {
      if (study.arms[a].baseline == baseline.arm.name && study.arms[a].arm.name != baseline.arm.name) add(a);
    }
    if (compared.arms.size() < 2) continue;
    if (compared.refusals.empty()) ab::check_study(compared);
    const ab::StudyResult analysed = ab::analyse(std::move(compared));
    for (std::size_t i = 1; i < analysed.study.arms.size(); ++i) {
      const ab::Verdict& verdict =
          analysed.comparisons.empty() ? analysed.refusal : analysed.comparisons[i - 1].verdict;
      result.verdicts.push_back({analysed.study.arms[i].arm.name, verdict});
    }
  }
}

}  // namespace tenon::reproduce
