// The life of a study of arms; see arms.hpp.
#include "reproduce/arms.hpp"
#include "ab/svg.hpp"

#include "ab/ab.hpp"
#include "ab/charts.hpp"
#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "report/line_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

namespace tenon::reproduce {

// The course of its runs.

namespace {

void announce(const Plan& plan, const Outcome& outcome, const Request& request) {
  if (!request.progress) return;
  for (const PlannedRun& run : plan.runs) {
    if (run.reason.empty()) continue;
    request.progress(fmt::format("reproduce: {} seed {} starts again: {}",
                                 plan.experiment.arms[run.job.arm].name, run.job.seed, run.reason),
                     true);
  }
  request.progress(fmt::format("reproduce: {} runs kept, {} to continue, {} to start", outcome.kept,
                               outcome.continued, outcome.started),
                   true);
}

/// The remaining jobs, counted in `out`.
std::vector<ab::Job> jobs_of(const Plan& plan, Outcome& out) {
  std::vector<ab::Job> jobs;
  for (const PlannedRun& run : plan.runs) {
    ++(run.action == Action::kKeep       ? out.kept
       : run.action == Action::kContinue ? out.continued
                                         : out.started);
    if (run.action != Action::kKeep) jobs.push_back(run.job);
  }
  return jobs;
}

/// Logs of failures, except those of arms that may fail. Paths are relative to the study's folder, so that a
/// table can be published.
std::vector<std::string> logs_of(const std::vector<ab::FailedJob>& failed, const StudyFile& study,
                                 const Plan& plan, const std::string& folder) {
  std::vector<std::string> out;
  for (const ab::FailedJob& f : failed) {
    if (study.arms[f.job.arm].may_fail) continue;
    std::string text = fmt::format("{} seed {}: {}, log in {}", plan.experiment.arms[f.job.arm].name,
                                   f.job.seed, f.reason, f.job.log);
    const std::size_t last = f.log_tail.rfind('\n');
    if (!f.log_tail.empty()) text += ": " + f.log_tail.substr(last == std::string::npos ? 0 : last + 1);
    for (std::size_t at = text.find(folder + "/"); at != std::string::npos; at = text.find(folder + "/", at))
      text.erase(at, folder.size() + 1);
    out.push_back(std::move(text));
  }
  return out;
}

/// Adds the results of `more` to `runs`.
void join(ab::RunnerResult& runs, ab::RunnerResult more) {
  runs.completed += more.completed;
  runs.interrupted |= more.interrupted;
  std::move(more.failed.begin(), more.failed.end(), std::back_inserter(runs.failed));
}

}  // namespace

Outcome Arms::run(const StudyFile& given, const Size& size, const Request& request,
                  ab::RunnerOptions runner) const {
  const std::string folder = runner.folder;
  const StudyFile study = as_runs(given, size, request.folder);
  // Before the plan, which opens the data of every arm.
  const std::string simulation =
      simulates(study, size) ? simulate_data(study, size, request.folder, runner) : "";
  const Plan plan = make_plan(study, size, runner, request.resolve);
  check_plan(given, size, plan);
  const std::vector<FurtherRuns> further = further_runs(study, size, plan, runner, request.resolve);

  Outcome out;
  std::vector<ab::Job> jobs = jobs_of(plan, out);
  const auto alone = std::stable_partition(jobs.begin(), jobs.end(),
                                           [&](const ab::Job& job) { return !runs_alone(study, job); });
  std::vector<ab::Job> measured(alone, jobs.end());
  jobs.erase(alone, jobs.end());
  std::vector<std::vector<ab::Job>> further_jobs;
  for (const FurtherRuns& runs : further) further_jobs.push_back(jobs_of(runs.plan, out));
  announce(plan, out, request);
  if (!jobs.empty()) out.runs = ab::run_planned(plan.experiment, std::move(jobs), runner);
  if (!measured.empty() && !out.runs.interrupted) {
    runner.jobs = 1;
    join(out.runs, ab::run_planned(plan.experiment, std::move(measured), runner));
  }
  runner.jobs = request.jobs;
  for (std::size_t i = 0; i < further.size() && !out.runs.interrupted; ++i) {
    if (further_jobs[i].empty()) continue;
    runner.folder = further[i].folder;
    runner.label = further[i].label;
    join(out.runs, ab::run_planned(further[i].plan.experiment, std::move(further_jobs[i]), runner));
  }

  out.result = read_results(study, size, plan, folder);
  read_numbers(out.result, plan, folder);
  out.result.provenance.simulation = simulation;
  read_columns(out.result, request.evaluate);
  read_agreements(out.result);
  count_parameters(out.result, request.resolve);
  compute_differences(out.result);
  if (!out.runs.interrupted) read_decodings(out.result, request.decode);
  read_verdicts(out.result, plan.experiment);
  for (std::string& line : logs_of(out.runs.failed, study, plan, folder))
    out.result.warnings.push_back(std::move(line));
  return out;
}

// Tables.

namespace {

using ab::fixed;
using ab::fixed_signed;

/// "+0.31 (0.10 to 0.52)"; one pair has no interval.
std::string with_interval(const std::optional<ab::MeanEstimate>& estimate, int decimals, bool sign) {
  if (!estimate) return "–";
  const std::string mean = sign ? fixed_signed(estimate->mean, decimals) : fixed(estimate->mean, decimals);
  if (estimate->n < 2) return mean + " (one pair)";
  const auto end = [&](double v) { return sign ? fixed_signed(v, decimals) : fixed(v, decimals); };
  return fmt::format("{} ({} to {})", mean, end(estimate->interval.low), end(estimate->interval.high));
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

std::string main_table(const StudyResult& r, bool paper_column) {
  const std::string percent = fmt::format("{:g} % interval", 100 * (1 - r.study.alpha));
  std::vector<std::string> names{"arm", r.study.metric,
                                 fmt::format("gap to {}, % ({})", baseline_text(r.study), percent)};
  if (!r.study.reference.empty())
    names.push_back(fmt::format("gap to {}, % ({})", r.study.reference, percent));
  for (const std::string& share : r.study.shares) names.push_back(share_name(share) + ", %");
  const bool bytes = r.study.figure == Figure::kBytes;
  if (bytes) names.insert(names.end(), {"bytes per rank", "of " + baseline_text(r.study) + "'s, %"});
  const bool paper = paper_column && !r.study.paper_values.empty();
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

std::string sign_text(const StudyFile& study, bool papers_sign) {
  const char* formula = study.lower_is_better ? "(baseline − arm) / baseline" : "(arm − baseline) / baseline";
  return fmt::format(
      "Gap = {} of {}, in per cent, per pair of equal seeds: **negative = the arm is worse**{}. "
      "Intervals are Student t over the pairs, {:g} % coverage; one that contains 0 means that this size "
      "cannot "
      "tell the arms apart.\n",
      formula, study.metric, papers_sign && study.figure != Figure::kCurves ? " (the paper's sign)" : "",
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

}  // namespace

std::string Arms::arms_table(const StudyResult& r, bool paper_column, bool papers_sign) {
  return main_table(r, paper_column) + "\n" + sign_text(r.study, papers_sign);
}

std::string Arms::tables(const StudyResult& r) const {
  return arms_table(r, true, true);
}

std::string Arms::every_run(const StudyResult& r) const {
  return "\n## Consumed, per run\n\n" + consumed_table(r) + "\n## Every run\n\n" + seeds_table(r);
}

void Arms::json(JsonWriter& json, const StudyResult& r) const {
  paper_values_json(json, r);
}

std::string Arms::size_text(const StudyFile& study, const Size& size) const {
  return fmt::format("{} arms x {} seed{} x {} updates", study.arms.size(), size.seeds.size(),
                     size.seeds.size() == 1 ? "" : "s", size.steps);
}

std::string Arms::lines(const StudyResult& r) const {
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    std::string line = fmt::format("  {:<24}", r.study.arms[a].arm.name);
    line +=
        arm.value ? fmt::format("{} {}", r.study.metric, fixed(arm.value->mean, 4)) : std::string("no value");
    if (arm.gap) line += fmt::format(", gap {} %", fixed_signed(arm.gap->mean, 2));
    if (arm.gap && arm.gap->n > 1)
      line += fmt::format(" ({} to {})", fixed_signed(arm.gap->interval.low, 2),
                          fixed_signed(arm.gap->interval.high, 2));
    for (const Share& share : arm.shares) {
      if (share.percent) line += fmt::format(", {} {} %", share.metric, fixed(*share.percent, 2));
    }
    out += line + "\n";
  }
  return out;
}

std::string Arms::legend(const StudyResult& r) const {
  return "  gap: per cent of the baseline's " + r.study.metric + "; negative = worse\n";
}

// The figure of gaps, shares or curves.

namespace {

constexpr double kWidth = kFigureWidth, kRow = 34, kTop = 64, kFoot = 44, kLabels = 250;
constexpr double kCurveHeight = 380;
constexpr std::size_t kRowGlyphs = 36;  // of a title beside its row

/// Values of one arm: every run or pair, and their mean.
struct Row {
  std::string title, name;
  std::vector<double> each;
  std::optional<ab::MeanEstimate> mean;
  bool beyond = false;  ///< so far off that an axis with it would show nothing else

  /// Values that the axis has to include.
  std::vector<double> extent() const {
    std::vector<double> values = each;
    if (mean && mean->n > 1) values.insert(values.end(), {mean->interval.low, mean->interval.high});
    return values;
  }
};

constexpr double kBeyond = 3;  ///< times all others: a control that must fail

/// At most one row, of at least two.
void mark_beyond(std::vector<Row>& rows) {
  if (rows.size() < 2) return;
  const auto most = [](const Row& row) {
    double largest = 0;
    for (const double value : row.extent()) largest = std::max(largest, std::abs(value));
    return largest;
  };
  const auto outermost = std::max_element(rows.begin(), rows.end(),
                                          [&](const Row& a, const Row& b) { return most(a) < most(b); });
  double others = 0;
  for (auto row = rows.begin(); row != rows.end(); ++row)
    if (row != outermost) others = std::max(others, most(*row));
  outermost->beyond = std::all_of(outermost->each.begin(), outermost->each.end(),
                                  [&](double value) { return std::abs(value) > kBeyond * others; });
}

std::vector<Row> rows_of(const StudyResult& r) {
  std::vector<Row> rows;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    const StudyArm& what = r.study.arms[a];
    Row row{shortened(what.title, kRowGlyphs), what.arm.name, {}, {}};
    if (r.study.figure == Figure::kShares) {
      if (arm.shares.empty() || !arm.shares[0].percent) continue;
      row.each = {*arm.shares[0].percent};
      row.mean = ab::mean_with_interval(row.each, r.study.alpha);
    } else {
      if (what.arm.name == what.baseline) continue;
      row.each = arm.gaps;
      row.mean = arm.gap;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

void heading(ab::Svg& svg, const StudyResult& r, bool paper) {
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const std::string seeds = fmt::format("{} seed{}, {} updates", r.size.seeds.size(),
                                        r.size.seeds.size() == 1 ? "" : "s", r.size.steps);
  if (!caution(r.size).empty()) {
    svg.text({16, 46}, caution(r.size), "warn", ab::Anchor::kStart);
  } else {
    svg.text({16, 46}, seeds, "tick", ab::Anchor::kStart);
  }
  if (!paper) return;
  svg.marker(ab::Marker::kCircle, {kWidth - 290, 42}, 4, "mean-mark", "");
  svg.text({kWidth - 280, 46}, "here, with interval", "tick", ab::Anchor::kStart);
  svg.marker(ab::Marker::kDiamond, {kWidth - 146, 42}, 5, "paper", "");
  svg.text({kWidth - 134, 46}, "paper, large model", "tick", ab::Anchor::kStart);
}

std::string row_figure(const StudyResult& r) {
  std::vector<Row> rows = rows_of(r);
  const bool shares = r.study.figure == Figure::kShares;
  if (!shares) mark_beyond(rows);
  std::vector<double> values;
  if (!shares) values.push_back(0);
  for (const Row& row : rows) {
    const std::vector<double> extent = row.extent();
    if (!row.beyond) values.insert(values.end(), extent.begin(), extent.end());
  }
  for (const PaperValue& value : r.study.paper_values) values.push_back(value.value);
  const ab::Range range = ab::range_of(values, 0.06);
  const double height = kTop + kRow * static_cast<double>(std::max<std::size_t>(rows.size(), 1)) + kFoot;
  ab::Svg svg(kWidth, height, "chart", r.study.title);
  const ab::Frame frame(
      svg,
      {.x = range,
       .y = {0, 1},
       .x_title = shares
                      ? fmt::format("{}, %", r.study.shares[0].substr(r.study.shares[0].find('/') + 1))
                      : fmt::format("gap to {} in {}, %; negative = worse", r.study.baseline, r.study.metric),
       .y_title = "",
       .x_is_quantity = false,
       .draw_y = false,
       .left = kLabels});
  heading(svg, r, true);
  if (!shares) svg.line({frame.x(0), kTop - 6}, {frame.x(0), frame.bottom()}, "zero");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Row& row = rows[i];
    const double y = kTop + kRow * (static_cast<double>(i) + 0.5);
    svg.text({kLabels - 12, y + 4}, row.title, "label", ab::Anchor::kEnd);
    svg.line({frame.left(), y + kRow / 2}, {frame.right(), y + kRow / 2}, "grid");
    if (!row.mean) {
      svg.text({frame.left() + 8, y + 4}, "no value: see table.md", "tick", ab::Anchor::kStart);
    } else if (row.beyond) {
      const bool left = row.mean->mean < 0;
      const std::string text = fmt::format("{}{}{}, beyond this axis", left ? "◀ " : "",
                                           ab::fixed_signed(row.mean->mean, 1), left ? "" : " ▶");
      svg.text({left ? frame.left() + 8 : frame.right() - 8, y + 4}, text, "tick",
               left ? ab::Anchor::kStart : ab::Anchor::kEnd);
    } else {
      if (row.mean->n > 1)
        svg.line({frame.x(row.mean->interval.low), y}, {frame.x(row.mean->interval.high), y}, "interval");
      for (const double value : row.each)
        svg.marker(ab::Marker::kCircle, {frame.x(value), y}, 3, "faint arm0", ab::fixed_signed(value, 2));
      svg.marker(ab::Marker::kCircle, {frame.x(row.mean->mean), y}, 4.5, "mean-mark",
                 fmt::format("mean {}", ab::fixed_signed(row.mean->mean, 2)));
    }
    for (const PaperValue& value : r.study.paper_values) {
      if (value.arm == row.name)
        svg.marker(
            ab::Marker::kDiamond, {frame.x(value.value), y}, 5, "paper",
            fmt::format("paper: {} ({}, {})", ab::fixed_signed(value.value, 2), value.what, value.source));
    }
  }
  return standing_alone(r, height, svg.take());
}

std::string curve_figure(const StudyResult& r) {
  std::vector<report::ChartLine> lines;
  for (std::size_t a = 0; a < r.arms.size() && lines.size() < 6; ++a) {
    const StudyArm& what = r.study.arms[a];
    const auto& wanted = r.study.curves;
    if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), what.arm.name) == wanted.end()) continue;
    for (const RunResult& run : r.arms[a].runs) {
      if (!run.record) continue;
      const auto found = run.record->series.find(r.study.figure_metric);
      if (found == run.record->series.end()) continue;
      lines.push_back({what.title, &found->second, lines.size()});
      break;  // the first seed that has a curve
    }
  }
  ab::Svg top(kWidth, kTop, "chart", "");
  heading(top, r, false);
  const std::size_t legend_rows = (lines.size() + 1) / 2;  // two columns
  const double legend_height = 20 * static_cast<double>(legend_rows) + 8;
  ab::Svg legend(kWidth, legend_height, "chart", "");
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::size_t row = i / 2, column = i % 2;
    const double x = 24 + static_cast<double>(column) * kWidth / 2, y = 14 + 20 * static_cast<double>(row);
    const std::string colour = fmt::format("arm{}", lines[i].colour);
    const ab::Point stroke[] = {{x, y}, {x + 26, y}};
    legend.polyline(stroke, "curve " + colour, "");
    legend.text({x + 34, y + 4}, lines[i].name, "label", ab::Anchor::kStart);
  }
  std::string drawing;
  const auto placed = [&](double y, double height, const std::string& inner) {
    drawing += fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", y, kWidth,
                           height, inner);
  };
  placed(0, kTop, top.take());
  placed(kTop, legend_height, legend.take());
  if (!lines.empty()) {
    placed(kTop + legend_height, kCurveHeight,
           report::line_chart(lines, r.study.figure_metric, ab::Axis::kSteps, {kWidth, kCurveHeight},
                              report::scale_of(lines, ab::Axis::kSteps)));
  }
  return standing_alone(r, kTop + legend_height + kCurveHeight, drawing);
}

}  // namespace

// The figure of a study about the benefit of communication: the metric against bytes sent.

namespace {

constexpr double kHeight = 480, kBytesTop = 58, kLabel = 14, kGlyph = 7;
constexpr int kMostMoves = 31;  // of a name, up and down

struct Mark {
  std::string name;
  double x = 0, mean = 0;
  std::vector<double> values;
  std::size_t arm = 0;
};

std::vector<Mark> marks_of(const StudyResult& r) {
  std::vector<Mark> out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const ArmResult& arm = r.arms[a];
    if (arm.bytes <= 0 || !arm.value) continue;
    Mark mark{.name = r.study.arms[a].arm.name,
              .x = std::log10(arm.bytes),
              .mean = arm.value->mean,
              .values = {},
              .arm = a};
    for (const RunResult& run : arm.runs)
      if (run.value) mark.values.push_back(*run.value);
    out.push_back(std::move(mark));
  }
  return out;
}

/// A rectangle that text or a mark covers.
struct Box {
  double left, right, top, bottom;
  bool meets(const Box& other) const {
    return left < other.right && other.left < right && top < other.bottom && other.top < bottom;
  }
};

/// Names beside their marks, moved up or down or to the other side until they overlap nothing, and then
/// connected to their marks by a line.
void draw_names(ab::Svg& svg, const ab::Frame& frame, const std::vector<Mark>& marks) {
  std::vector<Box> covered;
  for (const Mark& mark : marks) {
    const double x = frame.x(mark.x), y = frame.y(mark.mean);
    covered.push_back({x - 6, x + 6, y - 6, y + 6});
  }
  for (const Mark& mark : marks) {
    const double x = frame.x(mark.x), y = frame.y(mark.mean);
    const double wide = kGlyph * static_cast<double>(mark.name.size());
    for (int i = 0; i < 2 * kMostMoves; ++i) {
      const bool left = i % 2 == 1;
      const int move = (i / 2 + 1) / 2 * (i / 2 % 2 == 1 ? -1 : 1);  // 0, -1, 1, -2, 2, ...
      const double away = 9 + 4.0 * std::abs(move), middle = y + kLabel * move;
      const double begin = left ? x - away - wide : x + away;
      const Box box{begin, begin + wide, middle - kLabel / 2, middle + kLabel / 2};
      const bool inside = box.left > frame.left() && box.right < svg.width() && box.top > frame.top() &&
                          box.bottom < frame.bottom();
      const bool last = i + 1 == 2 * kMostMoves;
      if (!last && (!inside || std::any_of(covered.begin(), covered.end(),
                                           [&](const Box& other) { return other.meets(box); })))
        continue;
      if (move != 0) svg.line({x, y}, {left ? box.right + 2 : box.left - 2, middle}, "axis");
      svg.text({begin, middle + 4}, mark.name, "label", ab::Anchor::kStart);
      covered.push_back(box);
      break;
    }
  }
}

}  // namespace

std::vector<double> log_ticks(double low, double high) {
  std::vector<double> out;
  for (double power = std::floor(std::log10(low)); power <= std::ceil(std::log10(high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10, power);
      if (tick >= low && tick <= high) out.push_back(tick);
    }
  }
  return out;
}

namespace {

/// Every run a dot, every arm its mean with a name beside it, bytes on a logarithmic axis. Arms that sent
/// nothing are left out. `height` is that of the drawing.
std::string bytes_figure(const StudyResult& r, double width, double& height) {
  height = kHeight;
  const std::vector<Mark> marks = marks_of(r);
  std::vector<double> x, y;
  for (const Mark& mark : marks) {
    x.push_back(mark.x);
    y.insert(y.end(), mark.values.begin(), mark.values.end());
  }
  ab::Svg outer(width, kBytesTop, "chart", r.study.title);
  outer.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  outer.text({16, 46}, caution(r.size).empty() ? "dots: runs; rings: means over the seeds" : caution(r.size),
             caution(r.size).empty() ? "tick" : "warn", ab::Anchor::kStart);
  ab::Svg svg(width, kHeight - kBytesTop, "chart", "");
  const ab::Range range = ab::range_of(x, 0.08);
  const ab::Frame frame(svg, {.x = range,
                              .y = ab::range_of(y, 0.12),
                              .x_title = "",
                              .y_title = r.study.metric,
                              .x_is_quantity = false,
                              .draw_x = false});
  for (const double tick : log_ticks(std::pow(10, range.low), std::pow(10, range.high))) {
    const double at = frame.x(std::log10(tick));
    svg.line({at, frame.top()}, {at, frame.bottom()}, "grid");
    svg.text({at, frame.bottom() + 17}, fmt::format("{:g}", tick / 1e6), "tick", ab::Anchor::kMiddle);
  }
  svg.text({(frame.left() + frame.right()) / 2, kHeight - kBytesTop - 5},
           "MB sent per rank, gradients and weights (log)", "axis-title", ab::Anchor::kMiddle);
  for (const Mark& mark : marks) {
    for (const double value : mark.values)
      svg.marker(ab::Marker::kCircle, {frame.x(mark.x), frame.y(value)}, 3, "faint arm0",
                 fmt::format("{}: {}", mark.name, ab::fixed(value, 4)));
    svg.marker(ab::Marker::kCircle, {frame.x(mark.x), frame.y(mark.mean)}, 5, "mean-mark",
               fmt::format("{}: mean {}", mark.name, ab::fixed(mark.mean, 4)));
  }
  draw_names(svg, frame, marks);
  const auto placed = [&](double at, double high, const std::string& drawing) {
    return fmt::format("<svg y=\"{:.0f}\" width=\"{:.0f}\" height=\"{:.0f}\">{}</svg>\n", at, width, high,
                       drawing);
  };
  return placed(0, kBytesTop, outer.take()) + placed(kBytesTop, kHeight - kBytesTop, svg.take());
}

}  // namespace

std::string Arms::figure(const StudyResult& r) const {
  if (r.study.figure == Figure::kBytes) {
    double height = 0;
    const std::string drawing = bytes_figure(r, kWidth, height);
    return standing_alone(r, height, drawing);
  }
  return r.study.figure == Figure::kCurves ? curve_figure(r) : row_figure(r);
}

std::shared_ptr<StudyKind> make_arms_kind() {
  return std::make_shared<Arms>();
}

}  // namespace tenon::reproduce
