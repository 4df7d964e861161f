// Reads the data of communication.hpp. A truncated trace (of a killed run) keeps its complete events.
#include "report/communication.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

}  // namespace tenon::report
