// Tables, JSON and figure of a study of time to a loss; every number comes from time_to.cpp.
#include "ab/svg.hpp"
#include "reproduce/time_to.hpp"

#include "ab/format.hpp"
#include "ab/plot.hpp"
#include "base/json_writer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tenon::reproduce {

namespace {

constexpr double kAddUp = 0.02;  // parts of a time must add up to its total within this

/// Enough decimals for three digits.
int decimals_of(double seconds) {
  return seconds >= 100 ? 0 : seconds >= 10 ? 1 : seconds >= 1 ? 2 : 3;
}

bool is_baseline(const StudyResult& r, std::size_t arm) {
  return r.study.arms[arm].arm.name == r.study.arms[arm].baseline;
}

/// The numbers alone; their meaning is printed below the tables.
std::string paper_of(const StudyResult& r, std::size_t arm) {
  std::vector<std::string> values;
  for (const PaperValue& value : r.study.paper_values) {
    if (value.arm == r.study.arms[arm].arm.name) values.push_back(ab::fixed_signed(value.value, 1));
  }
  return values.empty() ? "–" : fmt::format("{}", fmt::join(values, "; "));
}

std::string seconds_name(const StudyResult& r) {
  return r.as<TimeToResult>().simulated ? "simulated s" : "s";
}

std::string times_table(const StudyResult& r, bool looser) {
  const TimeToResult& t = r.as<TimeToResult>();
  std::vector<std::string> names{"arm", "runs that reach it"};
  for (const std::string& link : t.links) {
    names.push_back(fmt::format("{}: {}", link, seconds_name(r)));
    names.push_back(fmt::format("{}: faster, %", link));
  }
  const bool paper = !looser && !r.study.paper_values.empty();
  if (paper) names.push_back("paper, %");
  std::string out = head(names);
  for (std::size_t a = 0; a < t.arms.size(); ++a) {
    const auto& links = t.arms[a].links;
    const auto to = [&](std::size_t l) -> const ToThreshold& {
      return looser ? links[l].looser : links[l].strict;
    };
    std::vector<std::string> cells{r.study.arms[a].arm.name, reached_text(to(0))};
    for (std::size_t l = 0; l < links.size(); ++l) {
      const auto& seconds = to(l).seconds;
      cells.push_back(spread_text(seconds, seconds ? decimals_of(seconds->low.value) : 0, false, false));
      cells.push_back(is_baseline(r, a) ? "0 (baseline)" : spread_text(to(l).gap, 1, true, true));
    }
    if (paper) cells.push_back(paper_of(r, a));
    out += row(cells);
  }
  return out;
}

std::string used_table(const StudyResult& r) {
  std::vector<std::string> names{"arm", "slots", "samples trained", "samples drawn", "MB sent per rank"};
  for (const char* name : {"slots", "samples trained", "MB sent per rank"})
    names.push_back(fmt::format("looser: {}", name));
  std::string out = head(names);
  const auto plain = [](const std::optional<Spread>& s) { return spread_text(s, 0, false, false); };
  const auto mega = [](std::optional<Spread> s) {
    if (s)
      for (Bounded* b : {&s->median, &s->low, &s->high}) b->value /= 1e6;
    return spread_text(s, s ? decimals_of(s->low.value) : 0, false, false);
  };
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    const Used &strict = r.as<TimeToResult>().arms[a].strict, &looser = r.as<TimeToResult>().arms[a].looser;
    out += row({r.study.arms[a].arm.name, plain(strict.steps), plain(strict.trained), plain(strict.drawn),
                mega(strict.bytes), plain(looser.steps), plain(looser.trained), mega(looser.bytes)});
  }
  return out;
}

std::string equal_table(const StudyResult& r) {
  std::vector<std::string> names{"arm"};
  for (const std::string& link : r.as<TimeToResult>().links) names.push_back("at equal time, " + link);
  names.push_back("at equal samples trained");
  std::string out = head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<std::string> cells{r.study.arms[a].arm.name};
    for (const TimedArm& link : r.as<TimeToResult>().arms[a].links)
      cells.push_back(spread_text(link.at_equal_time, 4, false, false));
    cells.push_back(spread_text(r.as<TimeToResult>().arms[a].at_equal_samples, 4, false, false));
    out += row(cells);
  }
  return out;
}

std::string split_table(const StudyResult& r) {
  std::string out = head({"arm", "link", fmt::format("whole run, {}", seconds_name(r)), "compute, %",
                          "blocking communication, %", "barrier wait, %", "data and other, %",
                          "hidden communication, % of the time"});
  std::string odd;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    for (std::size_t l = 0; l < r.as<TimeToResult>().links.size(); ++l) {
      const std::optional<ab::TimeSplit>& split = r.as<TimeToResult>().arms[a].links[l].split;
      if (!split || split->total <= 0) continue;
      const auto part = [&](double seconds) { return ab::fixed(100 * seconds / split->total, 1); };
      const std::string& name = r.study.arms[a].arm.name;
      out += row({name, r.as<TimeToResult>().links[l], ab::fixed(split->total, decimals_of(split->total)),
                  part(split->compute), part(split->exposed), part(split->late),
                  part(split->data + split->other), part(split->overlapped)});
      if (split->gap() > kAddUp)
        odd += fmt::format("\nThe parts of {} under {} miss its total by {:.1f} %.\n", name,
                           r.as<TimeToResult>().links[l], 100 * split->gap());
    }
  }
  return out + odd;
}

std::string thresholds_text(const StudyResult& r) {
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    if (!is_baseline(r, a)) continue;
    std::vector<std::string> values;
    for (const auto& threshold : r.as<TimeToResult>().arms[a].thresholds)
      values.push_back(threshold ? ab::fixed(*threshold, 4) : "missing");
    out += fmt::format("- {}: {}\n", r.study.arms[a].arm.name, fmt::join(values, ", "));
  }
  return out;
}

}  // namespace

std::string bounded_text(const Bounded& value, int decimals, bool upper, bool sign) {
  return (value.bound ? upper ? "< " : "> " : "") +
         (sign ? ab::fixed_signed(value.value, decimals) : ab::fixed(value.value, decimals));
}

std::string spread_text(const std::optional<Spread>& spread, int decimals, bool upper, bool sign) {
  if (!spread) return "–";
  const auto text = [&](const Bounded& b) { return bounded_text(b, decimals, upper, sign); };
  const std::string median = text(spread->median);
  return spread->n == 1 ? median
                        : fmt::format("{} ({} to {})", median, text(spread->low), text(spread->high));
}

std::string reached_text(const ToThreshold& to) {
  std::size_t reached = 0, missing = 0;
  for (const auto& run : to.runs) {
    if (!run) {
      ++missing;
    } else if (run->reached) {
      ++reached;
    }
  }
  return fmt::format("{} of {}{}", reached, to.runs.size(),
                     missing == 0 ? "" : fmt::format(", {} missing", missing));
}

std::string TimeTo::tables(const StudyResult& r) const {
  const TimeToResult& t = r.as<TimeToResult>();
  std::string out =
      fmt::format("## {} to the baseline's {}\n\n", t.simulated ? "Simulated time" : "Time", r.study.metric);
  const std::string when =
      budget == 1 ? "at its end" : fmt::format("after {:.0f} % of its slots", 100 * budget);
  out += fmt::format(
      "When an arm's {} is first what its baseline with the same seed has {}, by linear interpolation "
      "between "
      "evaluations, which take no time here. Median over the seeds (range). `> T`: a run that is not there "
      "at its "
      "end T; it counts as later than all others. Faster = (baseline − arm) / baseline of the time to it, in "
      "per "
      "cent, per pair of equal seeds: **positive = the arm is faster**; `< x`: at most that, because the run "
      "is not "
      "there at its end.\n\n",
      r.study.metric, when);
  out += times_table(r, false);
  out += "\n![figure](figure.svg)\n";
  out += fmt::format("\nThresholds, by seed:\n\n{}", thresholds_text(r));
  if (!links.empty()) {
    out +=
        "\n**Times are simulated.** Losses are those of the study's runs; the time of each slot is that of a "
        "run "
        "with the same messages under the simulated clock and the link:\n\n";
    for (const TimeToLink& link : links) {
      std::string sets;
      for (const std::string& set : link.set) sets += (sets.empty() ? "`" : ", `") + set + "`";
      out += fmt::format("- {}: {}\n", link.name, sets);
    }
  }
  out += fmt::format("\n### A threshold that is {:g} % looser\n\n", 100 * looser) + times_table(r, true);
  out +=
      "\n### What it took to get there\n\nTo the first threshold, and to the looser one. Samples drawn "
      "include "
      "those that mixing slots passed over.\n\n" +
      used_table(r);
  out += fmt::format(
             "\n### {} at equal time and at equal samples\n\nWhere the first arm with the same baseline and "
             "seed "
             "ends.\n\n",
             r.study.metric) +
         equal_table(r);
  out += fmt::format("\n### Where the {}time goes\n\nMean over ranks, in per cent of the whole run.\n\n",
                     t.simulated ? "simulated " : "") +
         split_table(r);
  return out + fmt::format("\n## {} after all slots\n\n", r.study.metric) + arms_table(r, false, false);
}

std::string TimeTo::lines(const StudyResult& r) const {
  const TimeToResult& t = r.as<TimeToResult>();
  std::string out = Arms::lines(r);
  for (std::size_t a = 0; a < t.arms.size(); ++a) {
    std::string line = fmt::format("  {:<24}", r.study.arms[a].arm.name);
    line += fmt::format("reaches its baseline in {} runs", reached_text(t.arms[a].links[0].strict));
    for (std::size_t l = 0; l < t.links.size(); ++l) {
      const auto& strict = t.arms[a].links[l].strict;
      if (strict.gap)
        line += fmt::format(", {} {} %", t.links[l], bounded_text(strict.gap->median, 1, true, true));
    }
    out += line + "\n";
  }
  return out + fmt::format("  {}time to the baseline's {}, median; positive = faster\n",
                           t.simulated ? "simulated " : "", r.study.metric);
}

// The member "time_to" of table.json.

namespace {

void member(JsonWriter& json, const char* key, const Bounded& b) {
  json.begin_object(key);
  json.member("value", b.value);
  json.member("censored", b.bound);
  json.end_object();
}

void member(JsonWriter& json, const char* key, const std::optional<Spread>& spread) {
  json.begin_object(key);
  json.member("runs", spread ? static_cast<std::int64_t>(spread->n) : 0);
  json.member("censored", spread ? static_cast<std::int64_t>(spread->censored) : 0);
  if (spread) {
    member(json, "median", spread->median);
    member(json, "low", spread->low);
    member(json, "high", spread->high);
  }
  json.end_object();
}

void threshold(JsonWriter& json, const char* key, const ToThreshold& to, const Size& size) {
  json.begin_object(key);
  member(json, "seconds", to.seconds);
  member(json, "faster_percent", to.gap);
  json.begin_array("runs");
  for (std::size_t s = 0; s < to.runs.size(); ++s) {
    json.begin_object();
    json.member("seed", size.seeds[s]);
    json.member("missing", !to.runs[s].has_value());
    json.member("reached", to.runs[s] && to.runs[s]->reached);
    json.member("seconds", to.runs[s] ? to.runs[s]->at.seconds : JsonWriter::kNull);
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

void used(JsonWriter& json, const char* key, const Used& what) {
  json.begin_object(key);
  member(json, "slots", what.steps);
  member(json, "samples_trained", what.trained);
  member(json, "samples_drawn", what.drawn);
  member(json, "bytes_sent_rank0", what.bytes);
  json.end_object();
}

void split(JsonWriter& json, const ab::TimeSplit& s) {
  json.begin_object("seconds_by_part");
  json.member("total", s.total);
  json.member("compute", s.compute);
  json.member("blocking_communication", s.exposed);
  json.member("barrier_wait", s.late);
  json.member("data", s.data);
  json.member("other", s.other);
  json.member("hidden_communication", s.overlapped);
  json.end_object();
}

}  // namespace

void TimeTo::json(JsonWriter& json, const StudyResult& r) const {
  Arms::json(json, r);
  const TimeToResult& t = r.as<TimeToResult>();
  json.begin_object("time_to");
  json.member("simulated", t.simulated);
  json.member("sign", "(baseline - arm) / baseline of the time in per cent; positive = the arm is faster");
  json.member("looser", looser);
  json.member("budget", budget);
  json.objects("links", links, [&](const TimeToLink& link) {
    json.member("name", link.name);
    json.objects("set", link.set, [&](const std::string& set) { json.member("value", set); });
  });
  json.begin_array("arms");
  for (std::size_t a = 0; a < t.arms.size(); ++a) {
    const TimeToArm& arm = t.arms[a];
    json.begin_object();
    json.member("name", r.study.arms[a].arm.name);
    json.objects("thresholds", arm.thresholds, [&](const std::optional<double>& value) {
      json.member("value", value.value_or(JsonWriter::kNull));
    });
    used(json, "to_threshold", arm.strict);
    used(json, "to_looser_threshold", arm.looser);
    member(json, "value_at_equal_samples", arm.at_equal_samples);
    json.begin_array("links");
    for (std::size_t l = 0; l < t.links.size(); ++l) {
      const TimedArm& timed = arm.links[l];
      json.begin_object();
      json.member("link", t.links[l]);
      threshold(json, "threshold", timed.strict, r.size);
      threshold(json, "looser_threshold", timed.looser, r.size);
      member(json, "value_at_equal_time", timed.at_equal_time);
      member(json, "whole_run_seconds", timed.total_seconds);
      if (timed.split) split(json, *timed.split);
      json.end_object();
    }
    json.end_array();
    json.end_object();
  }
  json.end_array();
  json.end_object();
}

// Time to the baseline's loss by link, one block of rows per arm.

namespace {

constexpr double kLine = 13, kPad = 12, kHead = 26, kLegend = 22, kBlocksFoot = 44, kBlocksLabels = 225,
                 kBlocksTop = 64;
constexpr std::size_t kBlockGlyphs = 34;  // of a title beside its rows
constexpr std::size_t kColours = 6;

std::string colour(std::size_t link) {
  return fmt::format("arm{}", link % kColours);
}

/// Arms in the study's order, those of one baseline together, the baseline first.
std::vector<std::vector<std::size_t>> groups_of(const StudyFile& study) {
  std::vector<std::vector<std::size_t>> out;
  for (std::size_t b = 0; b < study.arms.size(); ++b) {
    if (study.arms[b].arm.name != study.arms[b].baseline) continue;
    out.push_back({b});
    for (std::size_t a = 0; a < study.arms.size(); ++a)
      if (a != b && study.arms[a].baseline == study.arms[b].arm.name) out.back().push_back(a);
  }
  return out;
}

void draw_runs(ab::Svg& svg, const ab::Frame& frame, const ToThreshold& to, const std::string& title,
               double y, std::size_t link) {
  const std::string tone = colour(link);
  if (!to.seconds) {
    svg.text({frame.left() + 8, y + 4}, "no value", "tick", ab::Anchor::kStart);
    return;
  }
  if (to.seconds->n > 1)
    svg.line({frame.x(to.seconds->low.value), y}, {frame.x(to.seconds->high.value), y}, "span " + tone);
  for (const auto& run : to.runs) {
    if (!run) continue;
    const ab::Point at{frame.x(run->at.seconds), y};
    const std::string hover =
        fmt::format("{}: {}{} s", title, run->reached ? "" : "> ", ab::compact(run->at.seconds));
    if (run->reached) {
      svg.marker(ab::Marker::kCircle, at, 3, "dot " + tone, hover);
    } else {
      svg.marker(ab::Marker::kTriangle, at, 5, "late " + tone, hover);
    }
  }
  if (!to.seconds->median.bound) {
    const double x = frame.x(to.seconds->median.value);
    svg.line({x, y - 6}, {x, y + 6}, "median " + tone);
  }
}

/// Per group of arms with one baseline and per arm, one row of runs for each link. Runs that end before the
/// threshold are open triangles at that end. Returns the drawing without its frame.
std::string time_to_figure(const StudyResult& r, double top, double width, double& height) {
  const TimeToResult& t = r.as<TimeToResult>();
  const double block = kLine * static_cast<double>(t.links.size()) + kPad;
  const std::vector<std::vector<std::size_t>> groups = groups_of(r.study);
  const double begin = top + kLegend * (t.links.size() > 3 ? 2 : 1) + kHead;
  height = begin + block * static_cast<double>(t.arms.size()) + kPad * static_cast<double>(groups.size()) +
           kBlocksFoot;
  std::vector<double> extent{0};
  for (const TimeToArm& arm : t.arms)
    for (const TimedArm& link : arm.links)
      for (const auto& run : link.strict.runs)
        if (run) extent.push_back(run->at.seconds);
  ab::Range range = ab::range_of(extent, 0.04);
  range.low = 0;
  ab::Svg svg(width, height, "chart", r.study.title);
  const ab::Frame frame(svg, {.x = range,
                              .y = {0, 1},
                              .x_title = fmt::format("{} to the baseline's {}, s",
                                                     t.simulated ? "simulated time" : "time", r.study.metric),
                              .y_title = "",
                              .x_is_quantity = false,
                              .draw_y = false,
                              .left = kBlocksLabels});
  svg.text({16, 24}, r.study.title, "title", ab::Anchor::kStart);
  const std::string warning = caution(r.size);
  if (!warning.empty()) svg.text({16, 44}, warning, "warn", ab::Anchor::kStart);
  for (std::size_t l = 0; l < t.links.size(); ++l) {
    const std::size_t row = l / 3;
    const double x = 24 + static_cast<double>(l % 3) * (width - 24) / 3,
                 y = top + kLegend * static_cast<double>(row);
    svg.marker(ab::Marker::kCircle, {x, y}, 4, "dot " + colour(l), "");
    svg.text({x + 12, y + 4}, "link: " + t.links[l], "label", ab::Anchor::kStart);
  }
  const double key = begin - kHead + 8;
  svg.text({24, key + 4}, "dots: seeds; bar: their median; dashed: the baseline's median;", "tick",
           ab::Anchor::kStart);
  svg.marker(ab::Marker::kTriangle, {414, key}, 5, "late arm0", "");
  svg.text({424, key + 4}, "not there when the run ended", "tick", ab::Anchor::kStart);
  double y = begin;
  for (const std::vector<std::size_t>& group : groups) {
    const double end = y + block * static_cast<double>(group.size());
    for (std::size_t l = 0; l < t.links.size(); ++l) {
      const auto& seconds = t.arms[group[0]].links[l].strict.seconds;
      if (seconds)
        svg.line({frame.x(seconds->median.value), y}, {frame.x(seconds->median.value), end},
                 "base " + colour(l));
    }
    for (const std::size_t a : group) {
      const std::string& title = r.study.arms[a].title;
      svg.text({kBlocksLabels - 12, y + block / 2 + 1}, shortened(title, kBlockGlyphs), "label",
               ab::Anchor::kEnd);
      for (std::size_t l = 0; l < t.links.size(); ++l)
        draw_runs(svg, frame, t.arms[a].links[l].strict, title + ", " + t.links[l],
                  y + kPad / 2 + kLine * (static_cast<double>(l) + 0.5), l);
      y += block;
      svg.line({frame.left(), y}, {frame.right(), y}, "grid");
    }
    y += kPad;
  }
  std::string style;
  for (std::size_t c = 0; c < kColours; ++c)
    style += fmt::format(
        ".{0}.dot{{fill:var(--{0})}}.{0}.span,.{0}.median,.{0}.base,.{0}.late{{stroke:var(--{0})}}",
        colour(c));
  return "<style>" + style +
         ".span{stroke-width:1.2;opacity:.6}.median{stroke-width:2.6}.late{fill:var(--page);stroke-width:1.5}"
         ".base{stroke-dasharray:3 3;stroke-width:1;opacity:.7}</style>\n" +
         svg.take();
}

}  // namespace

std::string TimeTo::figure(const StudyResult& r) const {
  double height = 0;
  const std::string drawing = time_to_figure(r, kBlocksTop, kFigureWidth, height);
  return standing_alone(r, height, drawing);
}

}  // namespace tenon::reproduce
