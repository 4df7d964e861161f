// Reads a run's times and bytes and its timelines, then draws them as sections of the run's page.
#include "report/communication.hpp"

#include "ab/format.hpp"
#include "ab/html.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

namespace tenon::report {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSummary = std::int64_t{64} << 20;
/// A page shows a few slots; a longer trace is for trace viewers.
constexpr std::int64_t kLargestTrace = std::int64_t{256} << 20;
constexpr int kMostRanks = 64;

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

/// The member `key` if it exists, else null, over which a loop does nothing.
const json& member(const json& object, const char* key) {
  static const json kNone;
  const auto found = object.find(key);
  return found == object.end() ? kNone : *found;
}

RankTimes rank_of(const json& object) {
  RankTimes rank;
  rank.compute_s = number(object, "compute_s");
  rank.exposed_s = number(object, "exposed_s");
  rank.late_s = number(object, "late_s");
  rank.data_s = number(object, "data_s");
  rank.evaluate_s = number(object, "evaluate_s");
  rank.save_s = number(object, "save_s");
  rank.generate_s = number(object, "generate_s");  // 0 in runs of earlier versions
  rank.other_s = number(object, "other_s");
  rank.total_s = number(object, "total_s");
  rank.overlapped_s = number(object, "overlapped_s");
  for (const auto& [name, counts] : member(object, "purposes").items()) {
    rank.purposes[name] = {number(counts, "bytes_sent"), number(counts, "operations"),
                           number(counts, "blocked_s"), number(counts, "late_s"),
                           number(counts, "transfer_s")};
  }
  return rank;
}

RecordedNumbers numbers_of(const json& object) {
  RecordedNumbers numbers;
  numbers.count = number(object, "count");
  numbers.mean = number(object, "mean");
  numbers.least = number(object, "min");
  numbers.most = number(object, "max");
  numbers.not_positive = number(object, "not_positive");
  for (const auto& [low, count] : member(object, "histogram").items()) {
    double lower = 0;
    const auto read = std::from_chars(low.data(), low.data() + low.size(), lower);
    if (read.ec != std::errc() || !count.is_number() || !std::isfinite(lower) || !(lower > 0)) continue;
    numbers.histogram[std::ldexp(1.0, static_cast<int>(std::lround(std::log2(lower))))] = count.get<double>();
  }
  return numbers;
}

/// One event a line, as the observer writes them.
std::vector<TimelineSpan> timeline_of(const std::string& text) {
  std::vector<TimelineSpan> spans;
  std::size_t begin = 0;
  while (begin < text.size()) {
    std::size_t end = text.find('\n', begin);
    if (end == std::string::npos) end = text.size();
    std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    while (!line.empty() && (line.back() == ',' || line.back() == ' ')) line.pop_back();
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object() || event.value("ph", "") != "X") continue;
    const double at = number(event, "ts") * 1e-6;
    spans.push_back({event.value("cat", ""), event.value("name", ""), at, at + number(event, "dur") * 1e-6,
                     static_cast<std::int64_t>(number(member(event, "args"), "slot"))});
  }
  return spans;
}

}  // namespace

CommunicationFacts read_communication(FileSystem& files, const std::string& attempt) {
  CommunicationFacts facts;
  const std::string summary = attempt + "/summary.json";
  if (files.exists(summary)) {
    const json object = json::parse(read_text(files, summary, kLargestSummary), nullptr, false);
    if (!object.is_object()) fail_run(summary + ": not a JSON object; the file is damaged or was cut short");
    try {
      for (const json& rank : member(object, "communication")) facts.ranks.push_back(rank_of(rank));
      for (const auto& [name, numbers] : member(object, "distributions").items())
        facts.numbers[name] = numbers_of(numbers);
    } catch (const json::exception& error) {
      fail_run(fmt::format("{}: {}", summary, error.what()));
    }
  }
  for (int rank = 0; rank < kMostRanks; ++rank) {
    const std::string path = fmt::format("{}/trace.rank{}.json", attempt, rank);
    if (!files.exists(path) || files.open(path)->size() > kLargestTrace) break;
    facts.timelines.push_back(timeline_of(read_text(files, path, kLargestTrace)));
  }
  return facts;
}

namespace {

constexpr std::size_t kMostLanes = 16;
constexpr std::int64_t kWindowSlots = 4;
constexpr std::size_t kMostSpans = 4000;  ///< of a window and rank; more would be lines, not areas

/// A part of a rank's time, in the order in which bars show them.
struct Part {
  const char* name;
  double RankTimes::*seconds;
  const char* colour;
};
constexpr std::array<Part, 8> kParts = {{{"compute", &RankTimes::compute_s, "arm0"},
                                         {"waiting for bytes", &RankTimes::exposed_s, "arm1"},
                                         {"waiting for ranks", &RankTimes::late_s, "arm4"},
                                         {"data", &RankTimes::data_s, "arm5"},
                                         {"evaluation", &RankTimes::evaluate_s, "arm3"},
                                         {"saving", &RankTimes::save_s, "arm3 half"},
                                         {"generating", &RankTimes::generate_s, "arm2"},
                                         {"other", &RankTimes::other_s, "rest"}}};

std::string area_legend(const std::vector<std::pair<std::string, std::string>>& entries) {
  std::string keys;
  for (const auto& [colour, name] : entries)
    keys += fmt::format(
        "<span class=\"arm\"><svg class=\"key\" viewBox=\"0 0 14 14\"><rect x=\"1\" y=\"1\" "
        "width=\"12\" height=\"12\" class=\"{} area\"/></svg>{}</span>",
        colour, name);
  return ab::legend(keys);
}

std::string seconds(double value) {
  if (value == 0) return "0";
  if (std::abs(value) < 0.0995) return fmt::format("{:.3g} ms", 1e3 * value);
  return value < 1000 ? fmt::format("{:.3g} s", value) : fmt::format("{:.0f} s", value);
}

std::string share(double part, double whole) {
  return whole > 0 ? fmt::format("{} <span class=\"note\">{:.1f} %</span>", seconds(part), 100 * part / whole)
                   : seconds(part);
}

std::string bars(const std::vector<RankTimes>& ranks, ab::ChartSize size) {
  const double left = 58, lane = 22, right = 8;
  const std::size_t shown = std::min(ranks.size(), kMostLanes);
  double longest = 0;
  for (const RankTimes& rank : ranks) longest = std::max(longest, rank.total_s);
  ab::Svg svg(size.width, lane * static_cast<double>(shown) + 28, "chart", "parts of each rank's time");
  const double scale = longest > 0 ? (size.width - left - right) / longest : 0;
  for (std::size_t r = 0; r < shown; ++r) {
    const double y = 4 + lane * static_cast<double>(r);
    svg.text({left - 8, y + 13}, fmt::format("rank {}", r), "label", ab::Anchor::kEnd);
    double x = left;
    for (const Part& part : kParts) {
      const double width = ranks[r].*part.seconds * scale;
      if (width > 0.05) svg.rect({x, y}, width, lane - 5, fmt::format("{} area", part.colour));
      x += width;
    }
  }
  const double foot = 4 + lane * static_cast<double>(shown);
  svg.text({left, foot + 14}, "0", "tick", ab::Anchor::kStart);
  svg.text({size.width - right, foot + 14}, seconds(longest), "tick", ab::Anchor::kEnd);
  return svg.take();
}

std::string parts_table(const std::vector<RankTimes>& ranks) {
  std::vector<ab::TableColumn> columns{{"rank", false}};
  for (const Part& part : kParts) columns.push_back({part.name, true});
  columns.push_back({"total", true});
  columns.push_back({"transfers beside other work", true});
  std::vector<ab::TableRow> rows;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ab::TableRow row{{fmt::format("{}", r)}, false};
    for (const Part& part : kParts) row.cells_html.push_back(share(ranks[r].*part.seconds, ranks[r].total_s));
    row.cells_html.push_back(seconds(ranks[r].total_s));
    row.cells_html.push_back(seconds(ranks[r].overlapped_s));
    rows.push_back(std::move(row));
  }
  return ab::table(columns, rows);
}

std::string purposes_table(const std::vector<RankTimes>& ranks) {
  std::map<std::string, PurposeCounts> sums;
  for (const RankTimes& rank : ranks) {
    for (const auto& [name, counts] : rank.purposes) {
      PurposeCounts& sum = sums[name];
      sum.bytes += counts.bytes;
      sum.operations += counts.operations;
      sum.blocked_s += counts.blocked_s;
      sum.late_s += counts.late_s;
      sum.transfer_s += counts.transfer_s;
    }
  }
  std::vector<ab::TableRow> rows;
  for (const auto& [name, sum] : sums) {
    rows.push_back({{fmt::format("<code>{}</code>", ab::escape_html(name)),
                     ab::quantity(sum.bytes, ab::Axis::kBytes), fmt::format("{:.0f}", sum.operations),
                     seconds(sum.transfer_s), seconds(sum.blocked_s - sum.late_s), seconds(sum.late_s)},
                    false});
  }
  return ab::table({{"purpose", false},
                    {"bytes, all ranks", true},
                    {"operations", true},
                    {"transfers took", true},
                    {"threads waited for bytes", true},
                    {"for ranks", true}},
                   rows);
}

/// Slots [first, last) around the one with the most communication; the first two include start-up costs.
struct Window {
  std::int64_t first = 0, last = 0;
  double begin_s = 0, end_s = 0;
};

/// Whether a span is between slots, where it would compress them.
bool is_between(const TimelineSpan& span) {
  return span.track == "evaluate" || span.track == "save" || span.track == "generate";
}

Window window_of(const std::vector<std::vector<TimelineSpan>>& timelines) {
  std::map<std::int64_t, double> busy;
  for (const auto& spans : timelines) {
    for (const TimelineSpan& span : spans) {
      double& sum = busy[span.slot];
      if (span.track == "communication" || span.track == "wait") sum += span.end_s - span.begin_s;
    }
  }
  Window window;
  if (busy.empty()) return window;
  const std::int64_t first = busy.begin()->first, last = busy.rbegin()->first + 1;
  std::int64_t centre = first;
  double most = -1;
  for (const auto& [slot, sum] : busy) {
    const bool early = slot < first + 2 && last - first > kWindowSlots + 2;
    if (!early && sum > most * (1 + 1e-9)) {
      most = sum;
      centre = slot;
    }
  }
  window.first = std::max(first, std::min(centre - kWindowSlots / 2, last - kWindowSlots));
  window.last = std::min(last, window.first + kWindowSlots);
  window.begin_s = 1e300;
  for (const auto& spans : timelines) {
    for (const TimelineSpan& span : spans) {
      if (span.slot < window.first || span.slot >= window.last) continue;
      if (is_between(span)) continue;
      window.begin_s = std::min(window.begin_s, span.begin_s);
      window.end_s = std::max(window.end_s, span.end_s);
    }
  }
  return window;
}

const char* colour_of(const std::string& track) {
  if (track == "compute") return "arm0";
  if (track == "data") return "arm5";
  if (track == "communication") return "arm1";
  if (track == "wait") return "arm4";
  if (track == "evaluate" || track == "save" || track == "generate") return "arm3";
  if (track == "declared") return "arm3 half";
  return nullptr;
}

std::string timeline(const std::vector<std::vector<TimelineSpan>>& timelines, const Window& window,
                     ab::ChartSize size) {
  const double left = 58, right = 8, lane = 34, bar = 18, thin = 6;
  const std::size_t shown = std::min(timelines.size(), kMostLanes);
  const double height = lane * static_cast<double>(shown) + 26;
  ab::Svg svg(size.width, height, "chart", "timeline of ranks");
  const double scale = (size.width - left - right) / std::max(1e-12, window.end_s - window.begin_s);
  const auto x_of = [&](double at) { return left + (at - window.begin_s) * scale; };
  for (std::size_t r = 0; r < shown; ++r)
    svg.text({left - 8, 4 + lane * static_cast<double>(r) + 13}, fmt::format("rank {}", r), "label",
             ab::Anchor::kEnd);
  svg.begin_clip({left, 0}, size.width - left - right, height);
  for (std::size_t r = 0; r < shown; ++r) {
    const double y = 4 + lane * static_cast<double>(r);
    svg.rect({left, y}, size.width - left - right, bar, "rest area");
    // Waits are inside the spans of computing, so they are drawn later and cover them.
    for (const char* track : {"compute", "data", "evaluate", "save", "generate", "declared", "communication",
                              "wait", "overlap"}) {
      std::size_t drawn = 0;
      for (const TimelineSpan& span : timelines[r]) {
        // Declared time is compute already, except for delays.
        if (span.track == "declared" && span.name != "straggler") continue;
        if (span.track != track || span.end_s < window.begin_s || span.begin_s > window.end_s) continue;
        if (++drawn > kMostSpans) break;
        const double x = x_of(span.begin_s), width = (span.end_s - span.begin_s) * scale;
        if (width < 0.04) continue;
        const char* colour = colour_of(span.track);
        if (colour == nullptr)
          svg.rect({x, y + bar + 2}, std::max(width, 0.5), thin, "arm2 area");
        else
          svg.rect({x, y}, width, bar,
                   fmt::format("{} area{}", colour, span.name == "backward" ? " half" : ""));
      }
    }
  }
  double last_label = -100;
  for (std::int64_t slot = window.first; slot < window.last; ++slot) {
    double begin = 1e300;
    for (const TimelineSpan& span : timelines[0]) {
      if (span.slot == slot && !is_between(span)) begin = std::min(begin, span.begin_s);
    }
    if (begin > 1e299) continue;
    const double x = x_of(begin);
    svg.line({x, 0}, {x, height - 20}, "zero");
    if (x - last_label > 52) {
      svg.text({x + 3, height - 8}, fmt::format("slot {}", slot), "tick", ab::Anchor::kStart);
      last_label = x;
    }
  }
  svg.end_clip();
  svg.text({size.width - right, height - 8}, seconds(window.end_s - window.begin_s), "tick",
           ab::Anchor::kEnd);
  return svg.take();
}

std::string timeline_figure(const std::vector<std::vector<TimelineSpan>>& timelines) {
  const Window window = window_of(timelines);
  if (timelines.size() < 2 || !(window.end_s > window.begin_s)) return "";
  bool delays = false;
  for (const auto& spans : timelines) {
    delays = delays || std::any_of(spans.begin(), spans.end(),
                                   [](const TimelineSpan& span) { return span.name == "straggler"; });
  }
  std::vector<std::pair<std::string, std::string>> names{
      {"arm0", "forward, update"},   {"arm0 half", "backward"}, {"arm1", "waiting for bytes"},
      {"arm4", "waiting for ranks"}, {"arm5", "data"},          {"arm2", "transfer beside other work"}};
  if (delays) names.push_back({"arm3 half", "a straggler's delay"});
  std::string out = "<h3>Timeline</h3>\n<figure>" + area_legend(names);
  out +=
      ab::drawing({860, 0}, {360, 0}, [&](ab::ChartSize size) { return timeline(timelines, window, size); });
  out += fmt::format(
      "<figcaption>Slots {} to {}, around the one with the most communication; lines mark where rank 0 "
      "begins a "
      "slot. The files trace.rank*.json have all of them for trace viewers.</figcaption></figure>\n",
      window.first, window.last - 1);
  return out;
}

std::string histogram(const RecordedNumbers& numbers, const std::string& title, ab::ChartSize size) {
  std::vector<std::pair<std::string, double>> columns;
  if (numbers.not_positive > 0) columns.push_back({"\u2264 0", numbers.not_positive});
  if (!numbers.histogram.empty()) {
    const double last = numbers.histogram.rbegin()->first;
    for (double low = numbers.histogram.begin()->first; low <= last; low *= 2) {
      const auto found = numbers.histogram.find(low);
      columns.push_back({fmt::format("{:g}", low), found == numbers.histogram.end() ? 0 : found->second});
    }
  }
  double most = 0;
  for (const auto& [label, count] : columns) most = std::max(most, count);
  ab::Svg svg(size.width, size.height, "chart", title);
  const double left = 8, top = 18, bottom = size.height - 20;
  const double step = std::min(64.0, (size.width - 2 * left) / static_cast<double>(columns.size()));
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const double x = left + step * static_cast<double>(i);
    const double height = most > 0 ? (bottom - top) * columns[i].second / most : 0;
    svg.rect({x + 1, bottom - height}, step - 2, height, "arm0 area");
    svg.text({x + step / 2, bottom + 14}, columns[i].first, "tick", ab::Anchor::kMiddle);
    if (step > 30 && columns[i].second > 0)
      svg.text({x + step / 2, bottom - height - 4}, fmt::format("{:.0f}", columns[i].second), "tick",
               ab::Anchor::kMiddle);
  }
  svg.line({left, bottom}, {left + step * static_cast<double>(columns.size()), bottom}, "axis");
  return svg.take();
}

std::string distributions(const std::map<std::string, RecordedNumbers>& all) {
  std::string out;
  for (const auto& [name, numbers] : all) {
    out += fmt::format(
        "<figure class=\"small\"><figcaption>{}: mean {}, from {} to {}, {:.0f} "
        "numbers</figcaption>{}</figure>\n",
        ab::escape_html(name), ab::compact(numbers.mean), ab::compact(numbers.least),
        ab::compact(numbers.most), numbers.count, histogram(numbers, name, {400, 160}));
  }
  if (out.empty()) return "";
  return "<h3>Recorded by the strategy</h3>\n<div class=\"grid\">" + out + "</div>\n" +
         ab::paragraph(
             "Columns are powers of two: \"4\" counts numbers from 4 to below 8. All ranks together.",
             "note");
}

}  // namespace

std::string communication_section(const CommunicationFacts& facts) {
  std::string out;
  if (facts.ranks.size() > 1) {
    std::vector<std::pair<std::string, std::string>> names;
    for (const Part& part : kParts) names.push_back({part.colour, part.name});
    out += "<figure>" + area_legend(names) +
           ab::drawing({860, 0}, {360, 0}, [&](ab::ChartSize size) { return bars(facts.ranks, size); }) +
           "<figcaption>Where each rank's training thread spent its time, on the run's "
           "clock.</figcaption></figure>\n";
    if (facts.ranks.size() > kMostLanes)
      out += ab::paragraph(fmt::format("{} further ranks are in the table.", facts.ranks.size() - kMostLanes),
                           "note");
    out += timeline_figure(facts.timelines);
    out += "<h3>Bytes by purpose</h3>\n" + purposes_table(facts.ranks);
  }
  out += distributions(facts.numbers);
  if (facts.ranks.size() > 1)
    out +=
        "<details><summary>Parts of each rank's time</summary>\n" + parts_table(facts.ranks) + "</details>\n";
  return out.empty() ? "" : ab::section("Ranks", out);
}

}  // namespace tenon::report
