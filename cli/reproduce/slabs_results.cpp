// Reading of slabs_results.hpp.
#include "reproduce/slabs_results.hpp"

#include "reproduce/results.hpp"
#include "reproduce/slabs_runs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

namespace tenon::reproduce {
namespace {

std::optional<double> median(std::vector<double> values) {
  if (values.empty()) return std::nullopt;
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

/// Value per update: the median over the intervals after the second line of training metrics, mean over
/// seeds.
std::optional<double> per_update(const ArmResult& arm, double ab::MetricPoint::*what) {
  double sum = 0;
  int seeds = 0;
  for (const RunResult& run : arm.runs) {
    if (!run.record || run.status != "completed") continue;
    const auto found = run.record->series.find("train/loss");
    if (found == run.record->series.end()) continue;
    const ab::Series& lines = found->second;
    std::vector<double> each;
    for (std::size_t i = 2; i < lines.size(); ++i)
      each.push_back((lines[i].*what - lines[i - 1].*what) /
                     static_cast<double>(lines[i].step - lines[i - 1].step));
    const std::optional<double> middle = median(each);
    if (!middle) continue;
    sum += *middle;
    ++seeds;
  }
  return seeds == 0 ? std::nullopt : std::optional(sum / seeds);
}

void add_prediction(SlabPoint& point, const SlabArm& arm, const std::vector<Exchange>& list,
                    const std::vector<SlabLink>& links, std::optional<double> alone_s) {
  for (const Latencies latencies : {Latencies::kOverlap, Latencies::kAdd}) {
    for (const SlabLink& link : links) {
      SlabTime time{link_seconds(list, link, latencies), {}};
      if (alone_s && point.compute_s) {
        const double over = arm.weak ? 1 : static_cast<double>(point.ranks);
        time.efficiency = *alone_s / (over * (*point.compute_s + time.link_s));
      }
      (latencies == Latencies::kOverlap ? point.overlapped : point.added).push_back(time);
    }
  }
}

SlabArm read_slab_arm(StudyResult& r, const Plan& plan, const std::vector<SlabRun>& runs,
                      const std::string& name) {
  const Slabs& slabs = *r.study.slabs;
  const SlabProblem& problem = *slabs.problem(name, r.size.name);
  const auto index_of = [&](SlabKind kind, std::int64_t ranks) {
    for (std::size_t i = 0; i < runs.size(); ++i)
      if (runs[i].arm == name && runs[i].kind == kind && runs[i].ranks == ranks) return i;
    return runs.size();
  };
  const auto from = [&](SlabKind kind, std::int64_t ranks, double ab::MetricPoint::*what) {
    const std::size_t i = index_of(kind, ranks);
    return i == runs.size() ? std::nullopt : per_update(r.arms[i], what);
  };
  const std::size_t alone = index_of(SlabKind::kLocal, 1);
  SlabArm arm{name, r.study.arms[alone].title, problem.of_one_rank, {}, {}};
  arm.one = operator_of(r.study, r.size, runs[alone], plan.arms[alone]);
  const std::optional<double> alone_s = from(SlabKind::kLocal, 1, &ab::MetricPoint::wall_s);
  std::set<std::int64_t> all{1};
  for (const auto* list : {&slabs.measured, &slabs.counted, &slabs.predicted_at(r.size)})
    all.insert(list->begin(), list->end());
  for (const std::int64_t ranks : all) {
    SlabOperator op = arm.one;
    const SlabOperator whole = problem.whole(ranks, slabs.cut);
    op.points = whole.points, op.modes = whole.modes;
    const std::vector<Exchange> list = exchanges(op, ranks);
    SlabPoint point;
    point.ranks = ranks;
    point.points = op.points;
    point.local_points = problem.local(ranks, slabs.cut).points;
    point.elements = move_elements(op, ranks);
    point.bytes = bytes_of_first(list);
    point.move_bytes = bytes_of_first(list, "moves");
    point.compute_s = from(SlabKind::kLocal, arm.weak ? 1 : ranks, &ab::MetricPoint::wall_s);
    point.threads_s = from(SlabKind::kThreads, ranks, &ab::MetricPoint::wall_s);
    if (point.threads_s && alone_s)
      point.threads_efficiency = *alone_s / (arm.weak ? 1 : static_cast<double>(ranks)) / *point.threads_s;
    point.virtual_s = from(SlabKind::kVirtual, ranks, &ab::MetricPoint::wall_s);
    point.counted_bytes = from(SlabKind::kVirtual, ranks, &ab::MetricPoint::bytes_sent);
    if (point.counted_bytes && *point.counted_bytes != static_cast<double>(point.bytes)) {
      r.warnings.push_back(
          fmt::format("{} over {} ranks: rank 0 sent {:.0f} bytes in an update, and the closed form says {}",
                      name, ranks, *point.counted_bytes, point.bytes));
      r.complete = false;
    }
    add_prediction(point, arm, list, slabs.links, alone_s);
    arm.points.push_back(std::move(point));
  }
  return arm;
}

}  // namespace

void read_slab_results(StudyResult& r, const Plan& plan) {
  StudyFile given = r.study;  // with an arm per arm of the file, as the runs were derived from it
  given.arms.clear();
  for (const StudyArm& arm : r.study.arms) {
    if (!given.arms.empty() && given.arms.back().arm.name == arm.of) continue;
    given.arms.push_back(arm);
    given.arms.back().arm.name = arm.of;
  }
  const std::vector<SlabRun> runs = slab_runs(given, r.size);
  SlabResult out;
  for (const StudyArm& arm : given.arms) out.arms.push_back(read_slab_arm(r, plan, runs, arm.arm.name));
  r.slabs = std::move(out);
  // Virtual seconds are not wall time.
  for (std::size_t i = 0; i < runs.size(); ++i) {
    if (runs[i].kind != SlabKind::kVirtual) continue;
    for (const RunResult& run : r.arms[i].runs)
      if (run.record) r.provenance.wall_s -= run.record->wall_s;
  }
  r.provenance.simulated = {"seconds of the link, simulated"};
}

}  // namespace tenon::reproduce
