// Readers of timelines and of CSV; see phase_log.hpp.
#include "power/phase_log.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

namespace tenon::power {
namespace {

using nlohmann::json;

constexpr double kLongestRun_s = 1e9;
constexpr double kUnequal = 0.01;  ///< of a step
constexpr std::size_t kFewestSamples = 4;
constexpr std::size_t kLongestSensor = 160;

std::string_view trimmed(std::string_view text) {
  const auto blank = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

/// The first characters of a line for a message.
std::string shown(std::string_view text, std::size_t most = 40) {
  std::string out;
  for (const char c : text.substr(0, most)) out += c >= 0x20 && c < 0x7f ? c : '?';
  return text.size() > most ? out + "..." : out;
}

/// Calls `each(line, number, whether the line has an end)`.
template <typename Each>
void for_each_line(std::string_view text, Each&& each) {
  std::size_t number = 0;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    ++number;
    each(trimmed(text.substr(0, end)), number, end != std::string_view::npos);
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + 1);
  }
}

// Timelines.

enum PhaseRank : std::size_t {
  kCommunication,
  kForward,
  kBackward,
  kOptimizer,
  kEvaluate,
  kData,
  kSave,
  kIdle,
  kPhaseCount
};

/// The phase of a span; empty for tracks that say nothing about the load of the moment.
std::optional<PhaseRank> phase_of(std::string_view track, std::string_view name) {
  if (track == "communication" || track == "wait") return kCommunication;
  if (track == "compute") {
    if (name == "backward") return kBackward;
    if (name == "optimizer") return kOptimizer;
    return kForward;
  }
  if (track == "evaluate" || track == "generate") return kEvaluate;
  if (track == "data") return kData;
  if (track == "save") return kSave;
  // Inside of a span of `compute` this is forward or backward, which precede it.
  if (track == "declared" && name == "declared") return kOptimizer;
  return std::nullopt;
}

struct Edge {
  double at = 0;
  PhaseRank phase = kIdle;
  int change = 0;  ///< +1 begins, -1 ends
};

/// Phases from the beginnings and ends of spans, of which several may be open.
std::vector<Phase> sweep(std::vector<Edge> edges) {
  std::stable_sort(edges.begin(), edges.end(), [](const Edge& a, const Edge& b) { return a.at < b.at; });
  std::int64_t open[kPhaseCount] = {};
  std::vector<Phase> phases;
  double since = edges.front().at;
  std::size_t current = kIdle;
  for (std::size_t i = 0; i < edges.size();) {
    const double at = edges[i].at;
    for (; i < edges.size() && edges[i].at == at; ++i) open[edges[i].phase] += edges[i].change;
    std::size_t next = kIdle;
    for (std::size_t phase = 0; phase < kIdle && next == kIdle; ++phase)
      if (open[phase] > 0) next = phase;
    if (next == current) continue;
    if (at > since) phases.push_back({since, at, trace_phases()[current]});
    since = at;
    current = next;
  }
  return phases;
}

double member_number(const json& event, const char* key, const std::string& where) {
  const auto found = event.find(key);
  if (found == event.end() || !found->is_number())
    fail_config(fmt::format("{}: a span has no number '{}'", where, key));
  const double value = found->get<double>() * 1e-6;
  if (!std::isfinite(value) || value < 0 || value > kLongestRun_s)
    fail_config(fmt::format("{}: '{}' is {} s, expected from 0 to {:g}", where, key, value, kLongestRun_s));
  return value;
}

/// The slot of a span; 0 where it has none.
std::int64_t slot_of(const json& event) {
  const auto arguments = event.find("args");
  if (arguments == event.end() || !arguments->is_object()) return 0;
  const auto slot = arguments->find("slot");
  return slot != arguments->end() && slot->is_number_integer() ? slot->get<std::int64_t>() : 0;
}

std::string member_text(const json& event, const char* key) {
  const auto found = event.find(key);
  return found != event.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

const std::vector<std::string>& trace_phases() {
  static const std::vector<std::string> names{"communication", "forward", "backward", "optimizer",
                                              "evaluate",      "data",    "save",     "idle"};
  return names;
}

bool is_timeline(std::string_view file, TimelineFile& out) {
  const auto number = [&file](auto& value) {
    const auto [stopped, code] = std::from_chars(file.data(), file.data() + file.size(), value);
    if (code != std::errc() || value < 0) return false;
    file.remove_prefix(static_cast<std::size_t>(stopped - file.data()));
    return true;
  };
  const auto word = [&file](std::string_view text) {
    if (!file.starts_with(text)) return false;
    file.remove_prefix(text.size());
    return true;
  };
  out = {};
  if (!word("trace.rank") || !number(out.rank)) return false;
  if (word(".slot") && !number(out.first_slot)) return false;
  return file == ".json";
}

PhaseLog parse_timeline(std::string_view text, const std::string& path, std::int64_t end_slot) {
  PhaseLog log{path, {}, {}};
  std::vector<Edge> edges;
  bool closed = false, later = false;
  std::size_t damaged = 0;
  for_each_line(text, [&](std::string_view line, std::size_t number, bool) {
    if (!line.empty() && line.back() == ',') line.remove_suffix(1);
    if (line.empty() || line == "[") return;
    if (damaged > 0)
      fail_config(fmt::format("{}:{}: expected one event a line, found '{}'", path, damaged,
                              "a line that is no JSON object"));
    if (line == "]") {
      closed = true;
      return;
    }
    const json event = json::parse(line, nullptr, false);
    if (!event.is_object()) {
      damaged = number;  // an error, unless this is where the file ends
      return;
    }
    if (member_text(event, "ph") != "X") return;
    const std::optional<PhaseRank> phase = phase_of(member_text(event, "cat"), member_text(event, "name"));
    if (!phase) return;
    const std::string where = fmt::format("{}:{}", path, number);
    const double begin = member_number(event, "ts", where), length = member_number(event, "dur", where);
    if (length == 0) return;
    if (slot_of(event) >= end_slot) {
      later = true;
      return;
    }
    edges.push_back({begin, *phase, 1});
    edges.push_back({begin + length, *phase, -1});
  });
  if (!edges.empty()) log.phases = sweep(std::move(edges));
  if (log.phases.empty() && !later)
    fail_config(
        fmt::format("{}: found no span of a track compute, communication, wait, evaluate, data or "
                    "save; record a run with [[observe]] type = \"trace\"",
                    path));
  if (damaged > 0 || !closed)
    log.notes.push_back(
        damaged > 0 ? fmt::format("{}:{}: the file ends inside of an event; it is read as far as it goes",
                                  path, damaged)
                    : fmt::format("{}: the file has no end; it is read as far as it goes", path));
  return log;
}

std::vector<PhaseLog> joined(const Segments& segments) {
  std::map<int, PhaseLog> logs;
  double end = 0;  // of all segments so far
  for (const auto& [slot, ranks] : segments) {
    double begin = kLongestRun_s;
    for (const auto& [rank, segment] : ranks)
      if (!segment.phases.empty()) begin = std::min(begin, segment.begin_s());
    const double shift = std::max(0.0, end - begin);
    for (const auto& [rank, segment] : ranks) {
      PhaseLog& log = logs.try_emplace(rank, PhaseLog{segment.source, {}, {}}).first->second;
      log.notes.insert(log.notes.end(), segment.notes.begin(), segment.notes.end());
      for (Phase phase : segment.phases) {
        phase.begin_s += shift, phase.end_s += shift;
        if (!log.phases.empty() && phase.begin_s > log.phases.back().end_s)
          log.phases.push_back({log.phases.back().end_s, phase.begin_s, trace_phases()[kIdle]});
        log.phases.push_back(std::move(phase));
      }
      if (!log.phases.empty()) end = std::max(end, log.end_s());
    }
  }
  std::vector<PhaseLog> out;
  for (auto& [rank, log] : logs) out.push_back(std::move(log));
  return out;
}

void require_overlap(const std::vector<PhaseLog>& logs) {
  for (const PhaseLog& log : logs) {
    for (const PhaseLog& other : logs) {
      if (log.begin_s() < other.end_s()) continue;
      fail_config(
          fmt::format("{} begins at {:.6g} s, after {} ends at {:.6g} s: timelines of one run overlap",
                      log.source, log.begin_s(), other.source, other.end_s()));
    }
  }
}

// CSV.

Trace parse_power_csv(std::string_view text, const std::string& path) {
  Trace trace;
  std::vector<double> times;
  std::vector<std::size_t> lines;
  for_each_line(text, [&](std::string_view line, std::size_t number, bool) {
    if (trace.sensor.empty() && line.starts_with("#"))
      trace.sensor = shown(trimmed(line.substr(1)), kLongestSensor);
    if (line.empty() || line.front() == '#') return;
    const std::size_t comma = line.find(',');
    const auto real = [&](std::string_view word) -> std::optional<double> {
      double value = 0;
      const auto [stopped, code] = std::from_chars(word.data(), word.data() + word.size(), value);
      if (code != std::errc() || stopped != word.data() + word.size()) return std::nullopt;
      return value;
    };
    const std::string_view first = trimmed(line.substr(0, comma));
    const std::string_view second = comma == std::string_view::npos ? "" : trimmed(line.substr(comma + 1));
    const std::optional<double> time = real(first), watts = real(second);
    if (!time || !watts) {
      // A heading names its columns.
      if (times.empty() && !time && !watts && comma != std::string_view::npos && !first.empty()) {
        trace.is_share = second == "share";
        return;
      }
      fail_config(fmt::format("{}:{}: expected 'seconds,watts', found '{}'", path, number, shown(line)));
    }
    if (!std::isfinite(*time) || !std::isfinite(*watts))
      fail_config(fmt::format("{}:{}: '{}' is not finite", path, number, shown(line)));
    if (*watts < 0) fail_config(fmt::format("{}:{}: {} W; power is not negative", path, number, *watts));
    if (trace.is_share && *watts > 1)
      fail_config(fmt::format("{}:{}: {} of a share, which is at most 1", path, number, *watts));
    if (!times.empty() && *time <= times.back())
      fail_config(fmt::format("{}:{}: {} s {} {} s on line {}; times ascend", path, number, *time,
                              *time == times.back() ? "repeats" : "comes after", times.back(), lines.back()));
    times.push_back(*time);
    lines.push_back(number);
    trace.watts.push_back(*watts);
  });
  const std::size_t n = times.size();
  if (n < kFewestSamples)
    fail_config(fmt::format("{}: {} samples, expected at least {}", path, n, kFewestSamples));
  // The usual step is the median one: a mean would hide a gap.
  std::vector<double> steps(n - 1);
  for (std::size_t i = 0; i + 1 < n; ++i) steps[i] = times[i + 1] - times[i];
  std::vector<double> sorted = steps;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2),
                   sorted.end());
  const double step = sorted[sorted.size() / 2];
  for (std::size_t i = 0; i + 1 < n; ++i) {
    if (std::abs(steps[i] - step) <= kUnequal * step) continue;
    fail_config(fmt::format("{}:{}: {:.6g} s after the line before, where steps are {:.6g} s: {}", path,
                            lines[i + 1], steps[i], step,
                            steps[i] > 1.5 * step ? "samples are missing; take a part without a gap"
                                                  : "samples are unequally spaced; resample the trace"));
  }
  trace.rate_hz = static_cast<double>(n - 1) / (times.back() - times.front());
  if (!std::isfinite(trace.rate_hz) || trace.rate_hz <= 0)
    fail_config(fmt::format("{}: steps of {:.6g} s are too short", path, step));
  return trace;
}

}  // namespace tenon::power
