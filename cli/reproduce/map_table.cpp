// Tables, JSON and terminal lines of map_render.hpp.
#include "reproduce/map_render.hpp"

#include "ab/format.hpp"
#include "base/json_writer.hpp"
#include "reproduce/render.hpp"

#include <fmt/format.h>

namespace tenon::reproduce {
namespace {

constexpr const char* kNothing = "–";

std::string rate_digits(double rate) {
  return ab::fixed(rate, rate >= 100 ? 0 : rate >= 10 ? 1 : 2);
}

/// "12.3 (12.1 to 12.6)"; one seed has no range.
std::string with_range(const std::optional<RateRange>& range, const auto& digits) {
  if (!range) return kNothing;
  if (range->n < 2) return digits(range->mean);
  return fmt::format("{} ({} to {})", digits(range->mean), digits(range->low), digits(range->high));
}

std::string hundredths(double share) {
  return ab::fixed(100 * share, 1);
}

std::string pivot_by_workers(const StudyResult& r, const std::string& what, const auto& cell_of) {
  std::vector<std::string> names{what};
  for (const std::int64_t workers : r.study.map->workers_at(r.size))
    names.push_back(fmt::format("{} worker{}", workers, workers == 1 ? "" : "s"));
  std::string out = head(names);
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    std::vector<std::string> cells{r.study.arms[arm].title};
    for (const MapPoint& point : r.map->points)
      if (point.arm == arm) cells.push_back(cell_of(point));
    out += row(cells);
  }
  return out;
}

}  // namespace

std::string map_tables(const StudyResult& r) {
  std::string out = "### Tasks per second, measured\n\n";
  out += pivot_by_workers(r, "finished tasks/s",
                          [](const MapPoint& point) { return with_range(point.rate, rate_digits); });
  out += "\n### Efficiency, measured\n\n";
  out += pivot_by_workers(r, "of workers x one worker's rate, %",
                          [](const MapPoint& point) { return with_range(point.efficiency, hundredths); });
  return out +
         fmt::format(
             "\nMean{} of {} tasks each. Efficiency is the rate over workers x the rate of the row's "
             "baseline "
             "by one worker with the same seed; the baseline of a row with injected failures is the same "
             "simulation without them, so attempts that were lost count against it. Time is from the start "
             "of "
             "the first worker process to the last result on the disk.\n",
             r.size.seeds.size() > 1 ? fmt::format(" of {} seeds (smallest to largest)", r.size.seeds.size())
                                     : " of one seed",
             r.size.samples);
}

std::string map_points_table(const StudyResult& r) {
  std::string out =
      head({"arm", "workers", "baseline", "tasks finished", "attempts repeated", "workers lost", "holes",
            "s of a worker per attempt", "workers busy, %", "samples with the bits of one worker"});
  for (const MapPoint& point : r.map->points) {
    const StudyArm& arm = r.study.arms[point.arm];
    out += row({arm.arm.name, std::to_string(point.workers), arm.baseline, ab::fixed(point.finished, 1),
                ab::fixed(point.repeated, 1), ab::fixed(point.lost_workers, 1), ab::fixed(point.holes, 1),
                point.attempt_s ? ab::fixed(*point.attempt_s, 4) : kNothing,
                point.busy ? hundredths(*point.busy) : kNothing,
                fmt::format("{} of {}", point.equal, point.compared)});
  }
  return out +
         "\nCounts are means over seeds. Busy = from an order to its answer, lost attempts included. Samples "
         "are compared by the digests of their manifests (xxh3-128 over all elements), with the same seed.\n";
}

void map_json(JsonWriter& json, const StudyResult& r) {
  const auto range = [&](const char* key, const std::optional<RateRange>& value) {
    json.begin_object(key);
    json.member("seeds", static_cast<std::int64_t>(value ? value->n : 0));
    json.member("mean", value ? value->mean : JsonWriter::kNull);
    json.member("low", value ? value->low : JsonWriter::kNull);
    json.member("high", value ? value->high : JsonWriter::kNull);
    json.end_object();
  };
  json.objects("map", r.map->points, [&](const MapPoint& point) {
    const StudyArm& arm = r.study.arms[point.arm];
    json.member("arm", arm.arm.name);
    json.member("title", arm.title);
    json.member("baseline", arm.baseline);
    json.member("workers", point.workers);
    range("tasks_per_s_measured", point.rate);
    range("efficiency_measured", point.efficiency);
    json.member("finished", point.finished);
    json.member("repeated", point.repeated);
    json.member("lost_workers", point.lost_workers);
    json.member("holes", point.holes);
    json.member("attempt_s", point.attempt_s.value_or(JsonWriter::kNull));
    json.member("busy_share", point.busy.value_or(JsonWriter::kNull));
    json.member("samples_equal", static_cast<std::int64_t>(point.equal));
    json.member("samples_compared", static_cast<std::int64_t>(point.compared));
  });
}

std::string map_text(const StudyResult& r) {
  std::string out;
  for (std::size_t arm = 0; arm < r.study.arms.size(); ++arm) {
    out += fmt::format("  {:<24}", r.study.arms[arm].arm.name);
    for (const MapPoint& point : r.map->points) {
      if (point.arm != arm) continue;
      out += fmt::format(" {}: {} tasks/s, {} %;", point.workers,
                         point.rate ? rate_digits(point.rate->mean) : kNothing,
                         point.efficiency ? hundredths(point.efficiency->mean) : kNothing);
    }
    out += "\n";
  }
  return out + "  per cent of workers x one worker's rate without failures\n";
}

std::string map_size_text(const StudyFile& study, const Size& size) {
  const std::size_t workers = study.map->workers_at(size).size();
  return fmt::format("{} arms x {} number{} of workers x {} seed{} x {} tasks", study.arms.size(), workers,
                     workers == 1 ? "" : "s", size.seeds.size(), size.seeds.size() == 1 ? "" : "s",
                     size.samples);
}

}  // namespace tenon::reproduce
