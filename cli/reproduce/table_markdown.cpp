// table.md and the list of studies; see render.hpp.
#include "reproduce/render.hpp"

#include "ab/format.hpp"
#include "reproduce/comparisons_render.hpp"
#include "reproduce/map_render.hpp"
#include "reproduce/markdown.hpp"
#include "reproduce/recovery_render.hpp"
#include "reproduce/scaling_render.hpp"
#include "reproduce/slabs_render.hpp"
#include "reproduce/time_to_render.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>

namespace tenon::reproduce {
namespace {

using ab::fixed;
using ab::fixed_signed;

/// Arms of the file, also for a study whose arms are divided into points.
std::size_t arm_count(const StudyFile& study) {
  std::set<std::string> names;
  for (const StudyArm& arm : study.arms) names.insert(arm.of.empty() ? arm.arm.name : arm.of);
  return names.size();
}

/// "+0.31 (0.10 to 0.52)"; one pair has no interval.
std::string with_interval(const std::optional<ab::MeanEstimate>& estimate, int decimals, bool sign) {
  if (!estimate) return "–";
  const std::string mean = sign ? fixed_signed(estimate->mean, decimals) : fixed(estimate->mean, decimals);
  if (estimate->n < 2) return mean + " (one pair)";
  const auto end = [&](double v) { return sign ? fixed_signed(v, decimals) : fixed(v, decimals); };
  return fmt::format("{} ({} to {})", mean, end(estimate->interval.low), end(estimate->interval.high));
}

std::string joined(const std::vector<std::string>& list, const char* none, const char* between = "; ") {
  std::string out;
  for (const std::string& text : list) out += (out.empty() ? "" : between) + text;
  return out.empty() ? none : out;
}

/// Gaps have a sign; curves are compared with values of the metric itself.
std::string paper_number(const StudyFile& study, double value) {
  if (study.figure == Figure::kCurves) return fixed(value, 4);
  return study.figure == Figure::kGaps ? fixed_signed(value, 2) : fixed(value, 2);
}

std::string paper_text(const StudyFile& study, const std::string& arm) {
  std::vector<std::string> values;
  for (const PaperValue& value : study.paper_values) {
    if (value.arm != arm) continue;
    values.push_back(fmt::format("{} [{}]", paper_number(study, value.value), value.what));
  }
  return values.empty() ? "–" : fmt::format("{}", fmt::join(values, "; "));
}

/// "train/mor/share/x" -> "mor/share/x".
std::string share_name(const std::string& metric) {
  return metric.substr(metric.find('/') + 1);
}

/// Bytes of an arm in per cent of its baseline's.
std::string share_of_baseline(const StudyResult& r, std::size_t arm) {
  for (std::size_t b = 0; b < r.arms.size(); ++b) {
    if (r.study.arms[b].arm.name != r.study.arms[arm].baseline || r.arms[b].bytes == 0) continue;
    return fixed(100 * r.arms[arm].bytes / r.arms[b].bytes, 2);
  }
  return "–";
}

/// "bf16", or words where not all arms are measured against the same.
std::string baseline_text(const StudyFile& study) {
  const bool one = std::all_of(study.arms.begin(), study.arms.end(),
                               [&](const StudyArm& arm) { return arm.baseline == study.baseline; });
  return one ? study.baseline : "its baseline";
}

std::string main_table(const StudyResult& r) {
  const std::string percent = fmt::format("{:g} % interval", 100 * (1 - r.study.alpha));
  std::vector<std::string> names{"arm", r.study.metric,
                                 fmt::format("gap to {}, % ({})", baseline_text(r.study), percent)};
  if (!r.study.reference.empty())
    names.push_back(fmt::format("gap to {}, % ({})", r.study.reference, percent));
  for (const std::string& share : r.study.shares) names.push_back(share_name(share) + ", %");
  const bool bytes = r.study.figure == Figure::kBytes;
  if (bytes) names.insert(names.end(), {"bytes per rank", "of " + baseline_text(r.study) + "'s, %"});
  // For times the paper's numbers are times, for overheads overheads.
  const bool paper = !r.study.paper_values.empty() && !r.study.time_to && !r.study.recovery;
  if (paper) names.push_back("paper");
  names.insert(names.end(), {"runs", "wall time, s"});
  std::string out = head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    const StudyArm& what = r.study.arms[a];
    const auto done = std::count_if(arm.runs.begin(), arm.runs.end(),
                                    [](const RunResult& run) { return run.value.has_value(); });
    std::string value = arm.value ? fixed(arm.value->mean, 4) : "";
    if (!arm.value) {
      for (const RunResult& run : arm.runs) value = run.status;
    }
    std::vector<std::string> cells{
        what.title, value, what.arm.name == what.baseline ? "0 (baseline)" : with_interval(arm.gap, 2, true)};
    if (!r.study.reference.empty())
      cells.push_back(what.arm.name == r.study.reference ? "0" : with_interval(arm.reference_gap, 2, true));
    for (const Share& share : arm.shares) cells.push_back(share.percent ? fixed(*share.percent, 2) : "–");
    if (bytes) cells.insert(cells.end(), {count(arm.bytes), share_of_baseline(r, a)});
    if (paper) cells.push_back(paper_text(r.study, what.arm.name));
    cells.push_back(fmt::format("{} of {}", done, arm.runs.size()));
    cells.push_back(arm.wall_s ? fixed(arm.wall_s->mean, 1) : "–");
    out += row(cells);
  }
  return out;
}

std::string sign_text(const StudyFile& study) {
  const char* formula = study.lower_is_better ? "(baseline − arm) / baseline" : "(arm − baseline) / baseline";
  return fmt::format(
      "Gap = {} of {}, in per cent, per pair of equal seeds: **negative = the arm is worse**{}. "
      "Intervals are Student t over the pairs, {:g} % coverage; one that contains 0 means that this size "
      "cannot "
      "tell the arms apart.\n",
      formula, study.metric, study.time_to || study.figure == Figure::kCurves ? "" : " (the paper's sign)",
      100 * (1 - study.alpha));
}

std::string consumed_table(const StudyResult& r) {
  const bool refused =
      std::any_of(r.arms.begin(), r.arms.end(), [](const ArmResult& a) { return a.refused > 0; });
  std::vector<std::string> names{"arm", "parameters", "updates", "samples", "tokens"};
  if (refused) names.push_back("updates refused");
  const bool sent = std::any_of(r.arms.begin(), r.arms.end(), [](const ArmResult& a) { return a.bytes > 0; });
  if (sent) names.push_back("bytes per rank");
  names.push_back("operands of products, by format");
  std::string out = head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    std::vector<std::string> operands;
    for (const auto& [format, n] : arm.operands) operands.push_back(fmt::format("{} {}", format, count(n)));
    const double parameters = arm.parameters.empty() ? 0 : std::stod(arm.parameters);
    std::vector<std::string> cells{r.study.arms[a].arm.name, count(parameters), count(arm.updates),
                                   count(arm.samples), count(arm.tokens)};
    if (refused) cells.push_back(count(arm.refused));
    if (sent) cells.push_back(count(arm.bytes));
    cells.push_back(operands.empty() ? "none" : fmt::format("{}", fmt::join(operands, ", ")));
    out += row(cells);
  }
  if (sent)
    out +=
        "\nBytes per rank are those of gradients and weights that rank 0 sent: what the method costs, "
        "without "
        "evaluations, statistics and control.\n";
  return out;
}

std::string seeds_table(const StudyResult& r) {
  std::vector<std::string> names{r.study.metric};
  for (const std::int64_t seed : r.size.seeds) names.push_back(fmt::format("seed {}", seed));
  std::string out = head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<std::string> cells{r.study.arms[a].arm.name};
    for (const RunResult& run : r.arms[a].runs)
      cells.push_back(run.value ? fixed(*run.value, 5) : run.status);
    out += row(cells);
  }
  return out;
}

/// Operands that did not always take the small format, worst first.
std::string decisions_text(const StudyResult& r) {
  constexpr std::size_t kMost = 40;
  constexpr double kAlways = 99.995;  // per cent, as two decimals round it
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<Decision> fallen;
    for (const Decision& d : r.arms[a].decisions) {
      if (d.percent < kAlways) fallen.push_back(d);
    }
    if (r.arms[a].decisions.empty()) continue;
    out += fmt::format("\n### {}\n\n{} of {} operands fell back at least once.\n", r.study.arms[a].arm.name,
                       fallen.size(), r.arms[a].decisions.size());
    if (fallen.empty()) continue;
    std::stable_sort(fallen.begin(), fallen.end(),
                     [](const Decision& x, const Decision& y) { return x.percent < y.percent; });
    out += "\n" + head({"layer", "operand", "in the small format, %", "mean relative error there, %"});
    for (std::size_t i = 0; i < std::min(fallen.size(), kMost); ++i)
      out += row({fallen[i].layer, fallen[i].operand, fixed(fallen[i].percent, 2),
                  fixed(fallen[i].error_percent, 2)});
    if (fallen.size() > kMost)
      out += fmt::format("\nand {} more; table.json has them all.\n", fallen.size() - kMost);
  }
  return out.empty() ? "" : "\n## Operands that fell back, and their error\n" + out;
}

std::string arms_list(const StudyFile& study) {
  std::string out, last;
  for (const StudyArm& arm : study.arms) {
    const std::string& name = arm.of.empty() ? arm.arm.name : arm.of;
    if (name == last) continue;  // another point of it
    last = name;
    std::vector<std::string> sets;
    for (const std::string& file : arm.arm.extends)
      sets.push_back(fmt::format("`{}`", std::filesystem::path(file).filename().string()));
    // Words that a point adds are in the tables.
    for (std::size_t i = 0; i + arm.added < arm.arm.set.size(); ++i)
      sets.push_back("`" + arm.arm.set[i] + "`");
    out += fmt::format("- **{}**: {}{}{}{}\n", name, arm.title, sets.empty() ? "" : ": ",
                       fmt::join(sets, ", "), arm.note.empty() ? "" : ". " + arm.note);
  }
  return out;
}

std::string provenance_list(const StudyResult& r) {
  const Provenance& p = r.provenance;
  const std::string wall =
      p.jobs > 1 ? fmt::format(" of all runs together, {} at a time", p.jobs) : " of all runs together";
  std::string out;
  const auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) out += fmt::format("- {}: {}\n", name, value);
  };
  line("command", p.command.empty() ? "" : "`" + p.command + "`");
  line("date", p.begun.empty() ? "" : fmt::format("{} to {} (UTC)", p.begun, p.ended));
  line("program", joined(p.program, ""));
  // Simulations have neither threads nor kernels of a device.
  const std::string device = p.kernels.empty()
                                 ? ""
                                 : fmt::format("; {} threads a run; kernels {}",
                                               joined(p.threads, "?", " or "), joined(p.kernels, "?"));
  line("machine", joined(p.machines, "not known") + device);
  line("model", p.model);
  line("data", p.data);
  line("simulated by", p.simulation);
  line("seeds", fmt::format("{}", fmt::join(r.size.seeds, ", ")));
  line("wall time", duration_text(p.wall_s) + wall);
  line("simulated columns", joined(p.simulated, "none"));
  return out;
}

}  // namespace

std::string duration_text(double seconds) {
  const auto s = static_cast<long long>(std::llround(seconds));
  if (s < 60) return fmt::format("{} s", s);
  if (s < 3600) return fmt::format("{} min {:02} s", s / 60, s % 60);
  return fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

std::string caution(const Size& size) {
  return size.name == "quick" ? "Size quick: proves that it runs; never quote these numbers." : "";
}

std::string size_text(const StudyFile& study, const Size& size) {
  const std::size_t seeds = size.seeds.size();
  std::string out =
      study.scaling
          ? fmt::format("{} arms at up to {} numbers of trainers x {} seed{}, {} samples a run",
                        arm_count(study), (size.points.empty() ? study.scaling->points : size.points).size(),
                        seeds, seeds == 1 ? "" : "s", count(static_cast<double>(size.samples)))
      : study.slabs ? slab_size_text(study, size)
      : study.map   ? map_size_text(study, size)
                    : fmt::format("{} arms x {} seed{} x {} updates", study.arms.size(), size.seeds.size(),
                                size.seeds.size() == 1 ? "" : "s", size.steps);
  if (size.minutes > 0) {
    out += size.minutes < 90 ? fmt::format(", about {:g} min", size.minutes)
                             : fmt::format(", about {:.1f} h", size.minutes / 60);
    out += " on " + size.machine;
  } else if (size.name == "cuda") {
    out += ", on a GPU";
  }
  return out;
}

std::string table_markdown(const StudyResult& r) {
  std::string out = fmt::format("# {}: {}\n\n", r.study.name, r.study.title);
  if (!caution(r.size).empty()) out += "**" + caution(r.size) + "**\n\n";
  if (!r.complete) out += "**Not complete: runs are missing or failed; see below.**\n\n";
  out += fmt::format("{}\n\nPaper: {}. Size {}: {}.\n\n", r.study.question, r.study.paper, r.size.name,
                     size_text(r.study, r.size));
  if (r.time_to) out += time_to_markdown(r) + fmt::format("\n## {} after all slots\n\n", r.study.metric);
  out += r.study.scaling ? scaling_tables(r)
         : r.slabs       ? slab_tables(r)
         : r.map         ? map_tables(r)
                         : main_table(r) + "\n" + sign_text(r.study);
  if (r.recovery) out += recovery_tables(r);
  for (const std::string& note : r.study.notes) out += "\n" + note + "\n";
  if (!r.time_to) out += "\n![figure](figure.svg)\n";
  if (!r.study.paper_values.empty()) {
    out += r.study.figure == Figure::kCurves ? "\nNumbers of the paper and of others:\n\n"
                                             : "\nThe paper's numbers, each of a far larger model:\n\n";
    const int decimals = r.study.figure == Figure::kCurves ? 4 : 2;
    for (const PaperValue& value : r.study.paper_values)
      out += fmt::format("- {}: {} ({}; {})\n", value.arm, fixed(value.value, decimals), value.what,
                         value.source);
  }
  out += comparisons_markdown(r);
  if (!r.warnings.empty()) {
    out += "\n## What went otherwise\n\n";
    for (const std::string& warning : r.warnings) out += "- " + warning + "\n";
  }
  out += decisions_text(r);
  out += "\n## Arms\n\n" + arms_list(r.study);
  if (r.study.scaling) {
    out += "\n## Every point\n\n" + scaling_points_table(r);
  } else if (r.map) {
    out += "\n## Every point\n\n" + map_points_table(r);
  } else {
    out += "\n## Consumed, per run\n\n" + consumed_table(r);
    out += "\n## Every run\n\n" + seeds_table(r);
  }
  return out + "\n## Where and how\n\n" + provenance_list(r);
}

std::string list_text(const std::vector<StudyFile>& studies) {
  std::string out;
  for (const StudyFile& study : studies) {
    out += fmt::format("{}\n  {}\n  {}\n", study.name, study.title, study.paper);
    for (const Size& size : study.sizes) {
      const std::string option = size.name == "default" ? "" : "--" + size.name;
      out += fmt::format("  {:<10}{}\n", option.empty() ? "default" : option, size_text(study, size));
    }
  }
  if (out.empty()) return "no studies: neither ./configs/studies nor the installation has any\n";
  return out + "\nRun one: tenon reproduce NAME [--quick|--full|--cuda] [--out DIR]\n";
}

}  // namespace tenon::reproduce
