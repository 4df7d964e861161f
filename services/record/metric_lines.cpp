// Lines of training every `log_every` slots, and what they are computed from.
#include "record/metric_lines.hpp"

#include <algorithm>

namespace tenon::train {

void MetricLines::start() {
  begun_s_ = logged_at_s_ = world_.clock->now();
  logged_samples_ = counters_.samples;
  logged_tokens_ = counters_.tokens;
}

void MetricLines::start_times() {
  account_.start();
  for (int p = 0; world_.links.transport && p < kPurposes; ++p)
    earlier_transfer_s_ += world_.links.transport->counts(rank_, static_cast<Purpose>(p)).transfer_seconds;
}

void MetricLines::after_slot(std::int64_t slot, const SlotResult& result) {
  const std::int64_t done = slot + 1;
  if (done % world_.settings.run.log_every != 0 && done != world_.settings.run.steps) return;
  LineCounts& lines = counters_.lines;
  double pair[2] = {lines.loss_sum, lines.loss_count};
  // Joining the replicas' losses costs a message, which only strategies that talk in every slot anyway shall
  // pay.
  if (from_.shared) {
    if (Communicator* group = from_.weights->group(Purpose::kStatistics)) {
      TensorView view;
      view.data = pair;
      view.dtype = DType::kF64;
      view.shape = Shape{2};
      group->all_reduce(view, ReduceOp::kSum);
    }
  }
  if (pair[1] > 0) add(done, Split::kTrain, "loss", pair[0] / pair[1]);
  add(done, Split::kTrain, "lr", result.lr);
  times(done);
  trained(done);
  distributions_.means([&](std::string_view name, double mean) { add(done, Split::kTrain, name, mean); });
  if (result.kind == SlotKind::kGrad) add(done, Split::kTrain, "grad_norm", result.gradient_norm);
  if (result.loss_scale) add(done, Split::kTrain, "loss_scale", *result.loss_scale);
  const double seconds = world_.clock->now() - logged_at_s_;
  if (seconds > 0) {
    add(done, Split::kTrain, "samples_per_s",
        static_cast<double>(counters_.samples - logged_samples_) / seconds);
    add(done, Split::kTrain, "tokens_per_s",
        static_cast<double>(counters_.tokens - logged_tokens_) / seconds);
  }
  if (lines.skipped_updates > 0)
    add(done, Split::kTrain, "skipped_updates", static_cast<double>(lines.skipped_updates));
  lines.loss_sum = lines.loss_count = 0;
  logged_samples_ = counters_.samples;
  logged_tokens_ = counters_.tokens;
  logged_at_s_ = world_.clock->now();
}

/// Seconds of rank 0 since the last line; the other ranks' are in summary.json.
void MetricLines::times(std::int64_t done) {
  // With several workers, the first one's thread is accounted for.
  if (rank_ != 0 || !world_.links.transport || !account_.mine()) return;
  const RankTime now = account_.read();
  add(done, Split::kTrain, "compute_s", now.compute_s - logged_time_.compute_s);
  add(done, Split::kTrain, "exposed_comm_s", now.exposed_s - logged_time_.exposed_s);
  add(done, Split::kTrain, "late_s", now.late_s - logged_time_.late_s);
  logged_time_ = now;
}

/// Plans are pure, so rank 0 knows those of the other replicas.
void MetricLines::count_planned_samples(std::int64_t done) {
  LineCounts& lines = counters_.lines;
  const std::int64_t samples = from_.slot_samples / from_.weights->replicas();
  for (; lines.planned_slots < done; ++lines.planned_slots) {
    lines.planned_samples += from_.slot_samples;
    for (int replica = 0; replica < from_.weights->replicas(); ++replica)
      if (from_.parts->sync->plan({lines.planned_slots, replica, 0}).kind == SlotKind::kGrad)
        lines.trained_samples += samples;
  }
}

/// Samples of all replicas that made a gradient, once a slot of some replica did not.
void MetricLines::trained(std::int64_t done) {
  if (rank_ != 0) return;
  count_planned_samples(done);
  const LineCounts& lines = counters_.lines;
  // Slots of several workers end out of order: a line of an earlier one would have the later one's samples.
  if (lines.planned_slots > done || lines.trained_samples == lines.planned_samples) return;
  add(done, Split::kTrain, "samples_trained", static_cast<double>(lines.trained_samples));
}

void MetricLines::write(std::int64_t step, Split split, std::string_view set, std::string_view name,
                        double value) {
  if (rank_ != 0) return;
  Metric line;
  line.step = step;
  line.split = split;
  line.set = set;
  line.name = name;
  line.value = value;
  line.wall_s = wall_s();
  line.samples = counters_.samples;
  line.tokens = counters_.tokens;
  line.bytes_sent = bytes_sent();
  world_.record.metrics->append(line);
  name_.assign(split_name(line)).append("/").append(name);
  world_.record.result.metrics[name_] = value;
  from_.observers->metric(line);
}

RankTime MetricLines::time_so_far(const RowServer* rows) {
  RankTime time = account_.read();
  double transfer_s = -earlier_transfer_s_;
  actors_idle_s_ = 0;
  for (int p = 0; world_.links.transport && p < kPurposes; ++p) {
    const auto purpose = static_cast<Purpose>(p);
    LinkCounts counts = world_.links.transport->counts(rank_, purpose);
    const LinkCounts actors = rows == nullptr ? LinkCounts{} : rows->waits(purpose);
    counts.late_seconds -= actors.late_seconds;
    counts.blocked_seconds -= actors.blocked_seconds;
    counts.transfer_seconds -= actors.transfer_seconds;
    actors_idle_s_ += actors.blocked_seconds;
    transfer_s += counts.transfer_seconds;
    if (counts.operations > 0) time.purposes[std::string(purpose_name(purpose))] = counts;
  }
  time.overlapped_s = std::max(0.0, transfer_s - time.exposed_s);
  return time;
}

void MetricLines::note() {
  if (rank_ == 0) {
    counters_.lines.bytes_sent = static_cast<std::int64_t>(bytes_sent());
    count_planned_samples(counters_.slot);  // the next run may deal other numbers of samples
  }
  counters_.lines.recorded = distributions_.window();
}

// Bytes sent until here are not counted again: the beginning of the run sent them, too. Bytes of slots that a
// roll-back undid count, as their seconds do.
void MetricLines::take() {
  distributions_.set_window(counters_.lines.recorded);
  if (rank_ == 0 && epoch_ == world_.start.first_epoch)
    world_.start.earlier_bytes =
        static_cast<std::uint64_t>(counters_.lines.bytes_sent) - world_.links.bytes_sent();
}

double MetricLines::wall_s() const {
  return counters_.wall_s + world_.clock->now() - begun_s_;
}

}  // namespace tenon::train
