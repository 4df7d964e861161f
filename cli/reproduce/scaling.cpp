// Arithmetic of scaling.hpp.
#include "reproduce/scaling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace tenon::reproduce {
namespace {

/// A number of the resolved configuration, "inf" among them.
double configured(const ab::RunRecord& run, const char* key, double absent) {
  const auto found = run.config.find(key);
  if (found == run.config.end()) return absent;
  try {
    return std::stod(found->second);
  } catch (const std::logic_error&) {
    return absent;
  }
}

bool configured_as(const ab::RunRecord& run, const char* key, const char* text) {
  const auto found = run.config.find(key);
  return found != run.config.end() && found->second == "\"" + std::string(text) + "\"";
}

double syncs_of(const ab::RunRecord& run) {
  const auto found = run.distributions.find("sync_gap");
  return found == run.distributions.end() ? 0 : found->second.count;
}

/// Values of one quantity over the seeds.
class Mean {
 public:
  void add(std::optional<double> value) {
    if (!value || !std::isfinite(*value)) return;
    low_ = std::min(low_, *value);
    high_ = std::max(high_, *value);
    sum_ += *value;
    ++n_;
  }
  std::optional<double> mean() const {
    return n_ == 0 ? std::nullopt : std::optional(sum_ / static_cast<double>(n_));
  }
  std::optional<double> most() const { return n_ == 0 ? std::nullopt : std::optional(high_); }
  std::optional<MeanAndRange> spread() const {
    if (n_ == 0) return std::nullopt;
    return MeanAndRange{n_, sum_ / static_cast<double>(n_), low_, high_};
  }

 private:
  std::size_t n_ = 0;
  double sum_ = 0;
  double low_ = std::numeric_limits<double>::infinity(), high_ = -low_;
};

PointResult point_of(const StudyResult& r, std::size_t index) {
  const StudyArm& what = r.study.arms[index];
  PointResult out;
  out.index = index;
  out.arm = what.of;
  out.title = what.title;
  out.trainers = what.trainers;
  out.measured = r.study.scaling->is_measured(what.of);
  Mean rate, loss, gap, longest, predicted, elp, bytes, sync_bytes, waited, waited_share, server;
  for (const RunResult& each : r.arms[index].runs) {
    loss.add(each.value);
    if (!each.record || (each.status != "completed" && each.status != "diverged")) continue;
    const ab::RunRecord& run = *each.record;
    const ExchangeModel model = exchange_model(run);
    rate.add(examples_per_second(run));
    gap.add(average_sync_gap(run));
    predicted.add(predicted_gap(model));
    if (const auto found = run.distributions.find("sync_gap"); syncs_of(run) > 0)
      longest.add(found->second.most);
    elp.add(configured(run, "data.batch", 0) * configured(run, "parallel.workers", 1) * model.trainers);
    double sent = 0;
    for (const auto& entry : run.rank_bytes) sent += entry.second;
    bytes.add(sent);
    sync_bytes.add(ab::bytes_of(run.rank_bytes, "parameter"));
    if (run.exposed_comm_s && run.late_s) {
      waited.add(*run.exposed_comm_s + *run.late_s);
      waited_share.add(100 * (*run.exposed_comm_s + *run.late_s) / run.wall_s);
    }
    const double from_servers = ab::bytes_of(run.bytes_by_purpose, "servers.parameter");
    if (model.servers > 0 && from_servers > 0 && std::isfinite(model.bandwidth))
      server.add(100 * from_servers / (model.servers * model.bandwidth * run.wall_s));
  }
  out.examples_per_s = rate.mean();
  out.loss = loss.spread();
  out.sync_gap = gap.mean();
  out.longest_sync_gap = longest.most();
  out.predicted_gap = predicted.mean();
  out.elp = elp.mean();
  out.bytes = bytes.mean();
  out.sync_bytes = sync_bytes.mean();
  out.waited_s = waited.mean();
  out.waited_percent = waited_share.mean();
  out.server_percent = server.mean();
  return out;
}

void add_speedups(ScalingArm& arm) {
  const auto one = std::find_if(arm.points.begin(), arm.points.end(),
                                [](const PointResult& point) { return point.trainers == 1; });
  if (one == arm.points.end() || !one->examples_per_s) return;
  const double alone = *one->examples_per_s;
  for (PointResult& point : arm.points) {
    if (!point.examples_per_s) continue;
    point.speedup = *point.examples_per_s / alone;
    point.linear_percent = 100 * *point.speedup / static_cast<double>(point.trainers);
  }
}

/// Evaluated at the smallest number of trainers above one, whose pace servers do not limit yet.
std::optional<double> saturation_of(const StudyResult& r, const ScalingArm& arm) {
  for (const PointResult& point : arm.points) {
    if (point.trainers < 2 || point.measured) continue;
    for (const RunResult& run : r.arms[point.index].runs)
      if (run.record && run.status == "completed") return predicted_saturation(exchange_model(*run.record));
  }
  return std::nullopt;
}

}  // namespace

std::optional<double> predicted_gap(const ExchangeModel& m) {
  if (m.foreground) return m.interval;
  if (!std::isfinite(m.bandwidth) || m.bandwidth <= 0 || m.bytes <= 0) return std::nullopt;
  const double one_way = m.bytes / m.bandwidth;
  if (m.servers > 0) {
    const double own = 2 * one_way + 3 * m.pieces * m.latency + m.rest;
    return m.slots_per_s * std::max(own, m.trainers * one_way / m.servers);
  }
  const double per_piece = 2 * (m.trainers - 1) * m.latency + m.poll / 2;
  return m.slots_per_s * (one_way + m.pieces * per_piece + m.rest);
}

std::optional<double> predicted_saturation(const ExchangeModel& m) {
  if (!m.foreground || m.servers < 1 || !std::isfinite(m.bandwidth) || m.bytes <= 0 || m.slots_per_s <= 0)
    return std::nullopt;
  return m.interval * m.servers * m.bandwidth / (m.bytes * m.slots_per_s);
}

std::optional<double> examples_per_second(const ab::RunRecord& run) {
  const auto found = run.series.find("train/loss");
  if (found == run.series.end() || found->second.size() < 2) return std::nullopt;
  const ab::MetricPoint &first = found->second.front(), &last = found->second.back();
  if (last.wall_s <= first.wall_s) return std::nullopt;
  return (last.samples - first.samples) / (last.wall_s - first.wall_s);
}

std::optional<double> average_sync_gap(const ab::RunRecord& run) {
  const double syncs = syncs_of(run);
  if (syncs < 1) return std::nullopt;
  return run.steps * configured(run, "parallel.ranks", 1) / syncs;
}

ExchangeModel exchange_model(const ab::RunRecord& run) {
  ExchangeModel out;
  out.foreground = configured_as(run, "sync.mode", "foreground");
  out.trainers = configured(run, "parallel.ranks", 1);
  out.servers = configured(run, "parallel.servers", 0);
  out.interval = configured(run, "sync.interval", 0);
  out.bandwidth = configured(run, "transport.link.bandwidth", std::numeric_limits<double>::infinity());
  out.latency = configured(run, "transport.link.latency", 0);
  out.rest = configured(run, "sync.rest", 0);
  out.poll = configured(run, "sync.poll", 0);
  const double syncs = syncs_of(run);
  if (syncs > 0) out.bytes = ab::bytes_of(run.rank_bytes, "parameter") * out.trainers / syncs;
  // A ring sends 2 (K-1) / K of the weights; servers receive them whole, at least one piece each.
  const double weights =
      out.servers > 0 || out.trainers < 2 ? out.bytes : out.bytes * out.trainers / (2 * (out.trainers - 1));
  const double piece = configured(run, "sync.piece", 0);
  out.pieces = std::max({piece > 0 ? std::ceil(weights / piece) : 1.0, out.servers, 1.0});
  const double slot = out.trainers * configured(run, "data.batch", 0) * configured(run, "run.accumulate", 1);
  if (const auto rate = examples_per_second(run); rate && slot > 0) out.slots_per_s = *rate / slot;
  return out;
}

std::vector<ScalingArm> scaling_arms(const StudyResult& r) {
  std::vector<ScalingArm> out;
  std::optional<PointResult> alone;
  for (std::size_t a = 0; a < r.study.arms.size(); ++a) {
    const StudyArm& what = r.study.arms[a];
    if (what.of == r.study.scaling->alone) {
      alone = point_of(r, a);
      continue;
    }
    if (out.empty() || out.back().name != what.of)
      out.push_back({what.of, what.title, r.study.scaling->is_measured(what.of), {}, {}});
    out.back().points.push_back(point_of(r, a));
  }
  for (ScalingArm& arm : out) {
    if (alone && !arm.measured) {
      arm.points.insert(arm.points.begin(), *alone);
      arm.points.front().shared = true;
    }
    add_speedups(arm);
    if (!arm.measured) arm.saturates_at = saturation_of(r, arm);
  }
  return out;
}

}  // namespace tenon::reproduce
