// The tables of scaling_render.hpp.
#include "reproduce/scaling_render.hpp"

#include "ab/format.hpp"
#include "reproduce/render.hpp"
#include "reproduce/scaling.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

namespace tenon::reproduce {
namespace {

using ab::fixed;

std::string number(const std::optional<double>& value, int decimals) {
  return value ? fixed(*value, decimals) : kNoValue;
}

std::string rounded(const std::optional<double>& value) {
  return value ? count(*value) : kNoValue;
}

std::string loss_text(const PointResult& point) {
  if (!point.loss) return kNoValue;
  const MeanAndRange& loss = *point.loss;
  if (loss.n < 2) return fixed(loss.mean, 5);
  return fmt::format("{} ({} to {})", fixed(loss.mean, 5), fixed(loss.low, 5), fixed(loss.high, 5));
}

std::string rate_text(const PointResult& point) {
  if (!point.examples_per_s) return kNoValue;
  return rounded(point.examples_per_s) + (point.linear_percent && point.trainers > 1
                                              ? fmt::format(" ({} %)", fixed(*point.linear_percent, 0))
                                              : "");
}

std::string gap_text(const PointResult& point) {
  if (!point.sync_gap) return kNoValue;
  std::string out = fixed(*point.sync_gap, 1);
  if (point.longest_sync_gap) out += fmt::format(", at most {}", fixed(*point.longest_sync_gap, 0));
  if (point.predicted_gap) out += fmt::format(" [{}]", fixed(*point.predicted_gap, 1));
  return out;
}

/// Arms of the file, also for a study whose arms are divided into points.
std::size_t arm_count(const StudyFile& study) {
  std::set<std::string> names;
  for (const StudyArm& arm : study.arms) names.insert(arm.of.empty() ? arm.arm.name : arm.of);
  return names.size();
}

using Cell = std::function<std::string(const PointResult&)>;

/// An arm per row, a number of trainers per column.
std::string pivot(const std::vector<ScalingArm>& arms, bool measured, const char* what, const Cell& cell,
                  const std::function<std::string(const ScalingArm&)>& last = {},
                  const char* last_name = "") {
  std::set<std::int64_t> trainers;
  for (const ScalingArm& arm : arms)
    for (const PointResult& point : arm.points)
      if (arm.measured == measured) trainers.insert(point.trainers);
  if (trainers.empty()) return "";
  std::vector<std::string> names{what};
  for (const std::int64_t k : trainers) names.push_back(fmt::format("{} trainer{}", k, k == 1 ? "" : "s"));
  if (last) names.push_back(last_name);
  std::string out = head(names);
  for (const ScalingArm& arm : arms) {
    if (arm.measured != measured) continue;
    std::vector<std::string> cells{arm.title};
    for (const std::int64_t k : trainers) {
      const auto found = std::find_if(arm.points.begin(), arm.points.end(),
                                      [k](const PointResult& point) { return point.trainers == k; });
      cells.push_back(found == arm.points.end() ? kNoValue : cell(*found));
    }
    if (last) cells.push_back(last(arm));
    out += row(cells);
  }
  return out;
}

std::string shared_text(const StudyResult& r) {
  if (r.study.scaling->alone.empty()) return "";
  return fmt::format(
      " One trainer exchanges with nobody, so its column is one and the same run (`{}`) for all arms.",
      r.study.scaling->alone);
}

}  // namespace

std::string scaling_tables(const StudyResult& r) {
  const std::vector<ScalingArm> arms = scaling_arms(r);
  std::string out = "### Examples per second of the whole job, simulated\n\n";
  out += pivot(
      arms, false, "examples/s, simulated (share of linear)", rate_text,
      [](const ScalingArm& arm) { return number(arm.saturates_at, 1); }, "servers predicted full at");
  out +=
      "\nTime is the simulated clock's: computing and links cost what the configuration says, weights and "
      "losses are "
      "real. Share of linear = rate / (trainers x rate of one trainer)." +
      shared_text(r) +
      " Servers are predicted full at interval x servers x B / (S r) trainers, where S is what a trainer "
      "sends in an "
      "exchange, B a link's bytes/s in one direction, r a trainer's slots per second at its smallest point "
      "above one; foreground only.\n";
  out += fmt::format("\n### {} after the last sample\n\n", r.study.metric);
  out += pivot(arms, false, r.study.metric.c_str(), loss_text);
  out += fmt::format(
      "\nEvery run uses the same number of samples, each once; more trainers have fewer each. {}.\n",
      r.size.seeds.size() > 1 ? fmt::format("Mean of {} seeds (smallest to largest)", r.size.seeds.size())
                              : "One seed: differences in the last digits mean nothing");
  out += "\n### Sync gap\n\n";
  out += pivot(arms, false, "slots between two syncs of a trainer", gap_text);
  out +=
      "\nAverage = slots of all trainers / completed syncs of all trainers; then the longest; [in brackets] "
      "what r x "
      "seconds of an exchange predicts: with n servers and K trainers max(2 S / B + 3 P L + rest, K S / (n "
      "B)), "
      "without S / B + P (2 (K-1) L + poll / 2) + rest; P = pieces of an exchange, L = latency.\n";
  const std::string measured = pivot(arms, true, "examples/s, measured (share of linear)", rate_text);
  if (!measured.empty()) {
    out += "\n### Measured, with threads on this machine\n\n" + measured + "\n" +
           pivot(arms, true, r.study.metric.c_str(), loss_text) + "\n" +
           pivot(arms, true, "slots between two syncs of a trainer", gap_text);
    out +=
        "\nThe wall clock of the machine named below, which all trainers, their workers and servers share: "
        "these "
        "numbers say what the program does with real threads, and nothing about many machines.\n";
  }
  return out;
}

std::string scaling_points_table(const StudyResult& r) {
  std::string out = head({"arm", "trainers", "clock", "examples/s", "speedup", "of linear, %", r.study.metric,
                          "sync gap, mean", "longest", "predicted", "ELP", "sent per trainer, MB",
                          "of it weights, MB", "waited per trainer, s", "waited, %", "server links busy, %"});
  std::set<std::size_t> shown;
  for (const ScalingArm& arm : scaling_arms(r)) {
    for (const PointResult& p : arm.points) {
      if (!shown.insert(p.index).second) continue;
      const auto megabytes = [](const std::optional<double>& bytes) {
        return bytes ? fixed(*bytes / 1e6, 1) : std::string(kNoValue);
      };
      out += row({p.arm, std::to_string(p.trainers), p.measured ? "wall" : "simulated",
                  rounded(p.examples_per_s), number(p.speedup, 2), number(p.linear_percent, 1), loss_text(p),
                  number(p.sync_gap, 2), number(p.longest_sync_gap, 0), number(p.predicted_gap, 2),
                  rounded(p.elp), megabytes(p.bytes), megabytes(p.sync_bytes), number(p.waited_s, 1),
                  number(p.waited_percent, 1), number(p.server_percent, 1)});
    }
  }
  return out +
         "\nELP = batch x workers x trainers, the examples that are in flight at a time. Bytes are those "
         "that left "
         "a trainer, mean over them. Waited = the training thread's, for bytes and for others, "
         "evaluation included. Server links: weights sent to trainers, as a share of what the links carry.\n";
}

std::string scaling_size_text(const StudyFile& study, const Size& size) {
  const std::size_t seeds = size.seeds.size();
  return fmt::format("{} arms at up to {} numbers of trainers x {} seed{}, {} samples a run",
                     arm_count(study), (size.points.empty() ? study.scaling->points : size.points).size(),
                     seeds, seeds == 1 ? "" : "s", count(static_cast<double>(size.samples)));
}

std::string scaling_text(const StudyResult& r) {
  std::string out;
  for (const ScalingArm& arm : scaling_arms(r)) {
    out += fmt::format("  {:<24}{} examples/s:", arm.name, arm.measured ? "measured" : "simulated");
    for (const PointResult& point : arm.points)
      out += fmt::format(" {} at {};", rounded(point.examples_per_s), point.trainers);
    out += "\n";
  }
  return out;
}

}  // namespace tenon::reproduce
