// The section of table.md about time to a loss; see time_to_render.hpp.
#include "ab/format.hpp"
#include "reproduce/render.hpp"
#include "reproduce/time_to_render.hpp"

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
  return r.time_to->simulated ? "simulated s" : "s";
}

std::string times_table(const StudyResult& r, bool looser) {
  const TimeToResult& t = *r.time_to;
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
    const Used &strict = r.time_to->arms[a].strict, &looser = r.time_to->arms[a].looser;
    out += row({r.study.arms[a].arm.name, plain(strict.steps), plain(strict.trained), plain(strict.drawn),
                mega(strict.bytes), plain(looser.steps), plain(looser.trained), mega(looser.bytes)});
  }
  return out;
}

std::string equal_table(const StudyResult& r) {
  std::vector<std::string> names{"arm"};
  for (const std::string& link : r.time_to->links) names.push_back("at equal time, " + link);
  names.push_back("at equal samples trained");
  std::string out = head(names);
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    std::vector<std::string> cells{r.study.arms[a].arm.name};
    for (const TimedArm& link : r.time_to->arms[a].links)
      cells.push_back(spread_text(link.at_equal_time, 4, false, false));
    cells.push_back(spread_text(r.time_to->arms[a].at_equal_samples, 4, false, false));
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
    for (std::size_t l = 0; l < r.time_to->links.size(); ++l) {
      const std::optional<ab::TimeSplit>& split = r.time_to->arms[a].links[l].split;
      if (!split || split->total <= 0) continue;
      const auto part = [&](double seconds) { return ab::fixed(100 * seconds / split->total, 1); };
      const std::string& name = r.study.arms[a].arm.name;
      out += row({name, r.time_to->links[l], ab::fixed(split->total, decimals_of(split->total)),
                  part(split->compute), part(split->exposed), part(split->late),
                  part(split->data + split->other), part(split->overlapped)});
      if (split->gap() > kAddUp)
        odd += fmt::format("\nThe parts of {} under {} miss its total by {:.1f} %.\n", name,
                           r.time_to->links[l], 100 * split->gap());
    }
  }
  return out + odd;
}

std::string thresholds_text(const StudyResult& r) {
  std::string out;
  for (std::size_t a = 0; a < r.arms.size(); ++a) {
    if (!is_baseline(r, a)) continue;
    std::vector<std::string> values;
    for (const auto& threshold : r.time_to->arms[a].thresholds)
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

std::string time_to_markdown(const StudyResult& r) {
  const TimeToResult& t = *r.time_to;
  const TimeTo& what = *r.study.time_to;
  std::string out =
      fmt::format("## {} to the baseline's {}\n\n", t.simulated ? "Simulated time" : "Time", r.study.metric);
  const std::string budget =
      what.budget == 1 ? "at its end" : fmt::format("after {:.0f} % of its slots", 100 * what.budget);
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
      r.study.metric, budget);
  out += times_table(r, false);
  out += "\n![figure](figure.svg)\n";
  out += fmt::format("\nThresholds, by seed:\n\n{}", thresholds_text(r));
  if (!what.links.empty()) {
    out +=
        "\n**Times are simulated.** Losses are those of the study's runs; the time of each slot is that of a "
        "run "
        "with the same messages under the simulated clock and the link:\n\n";
    for (const TimeToLink& link : what.links) {
      std::string sets;
      for (const std::string& set : link.set) sets += (sets.empty() ? "`" : ", `") + set + "`";
      out += fmt::format("- {}: {}\n", link.name, sets);
    }
  }
  out += fmt::format("\n### A threshold that is {:g} % looser\n\n", 100 * what.looser) + times_table(r, true);
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
  return out;
}

std::string time_to_lines(const StudyResult& r) {
  const TimeToResult& t = *r.time_to;
  std::string out;
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

}  // namespace tenon::reproduce
