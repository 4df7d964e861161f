// The slot: forward and backward of each micro-batch, agreement, clipping, update. Order and names follow
// docs/step.md.
#include "loop/worker.hpp"

#include "base/elapsed.hpp"

#include <tenon/error.hpp>
#include <tenon/ops/reduce.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>
#include <utility>

namespace tenon::train {
namespace {

/// PyTorch's guard against a norm of zero, kept so that clipped runs can be compared digit by digit.
constexpr double kClipEpsilon = 1e-6;
constexpr std::string_view kCompute = "compute";

const LossValue& trained_loss(const Executor& executor) {
  for (const LossValue& loss : executor.losses()) {
    if (loss.metric == "loss") return loss;
  }
  fail_run("the graph has no trained loss");
}

}  // namespace

Worker::Worker(const WorkerShared& shared, std::unique_ptr<Executor> executor, int index, RowClient* requests)
    : shared_(shared),
      executor_(std::move(executor)),
      requests_(requests),
      reader_(shared.parts, *executor_),
      scaler_(shared.parts.precision.offered<LossScaler>()),
      // With several workers others write to the weights meanwhile.
      cost_({&shared.settings, shared.with.host.rank(), &shared.clock, &shared.control, &shared.with.spans}),
      optimizer_(fmt::format("optimizer.{}", shared.parts.optimizer.id())),
      place_(shared.with.host.query(graph::PassPlaces::kId)),
      watch_(shared.workers == 1 ? &shared.observers : nullptr, shared.replica, *executor_),
      witness_(shared.parts, shared.replica, shared.updater, *executor_) {
  if (index == 0) {
    gradients_ = &shared_.replica.gradients();
  } else {
    own_gradients_ = make_parameter_set(fmt::format("gradients{}", index), executor_->parameters(),
                                        *shared_.parts.device, SetContents::kGradients);
    gradients_ = own_gradients_.get();
  }
  if (index == 0)
    flips_.emplace(shared_.with.faults, shared_.replica, *gradients_, shared_.updater, *executor_);
  open_ = shared_.replica.bucket_plan().parameters;
  // Only the first worker reports buckets: Hogwild workers of one replica do not average gradients with
  // others.
  if (shared_.workers == 1) {
    for (const ParameterInfo& info : gradients_->parameters())
      elements_ += gradients_->tensor(info.index).elements();
    ready_ = [this](int parameter) {
      const BucketPlan& plan = shared_.replica.bucket_plan();
      elements_done_ += gradients_->tensor(parameter).elements();
      --open_[plan.bucket_of[parameter]];
      while (next_bucket_ < open_.size() && open_[next_bucket_] == 0) {
        cost_.backward_until(static_cast<double>(elements_done_) / static_cast<double>(elements_));
        shared_.parts.sync->on_gradients_ready(plan.buckets[next_bucket_]);
        ++next_bucket_;
      }
    };
  }
}

BatchRequest Worker::request(std::int64_t position, std::int64_t micro) const {
  const std::int64_t batch = shared_.parts.dataset->batch();
  return {Split::kTrain, position + micro * micro_stride() + shared_.replica.replica() * batch, batch};
}

void Worker::read_batch(std::int64_t position, std::int64_t micro) {
  phase_ = "reading data";
  const SpanScope span(&shared_.with.spans, "data", "read");
  const PhaseScope part(&shared_.with.account, Phase::kData);
  const BatchRequest wanted = request(position, micro);
  reader_.read(wanted);
  last_run_.first_sample = wanted.first;
}

void Worker::forward_ahead(ParameterSet& weights, std::int64_t slot, std::int64_t micro,
                           std::int64_t position) {
  const BatchRequest wanted = request(position, micro);
  reader_.read(wanted);
  SiteStates sites(*executor_, *shared_.parts.device);
  sites.keep();
  executor_->forward(weights, {.slot = slot,
                               .micro = static_cast<int>(micro),
                               .micros = static_cast<int>(shared_.settings.run.accumulate),
                               .first_sample = wanted.first});
  sites.put_back();
}

TensorView Worker::foresee(ParameterSet& weights, std::int64_t slot, std::int64_t micro,
                           std::int64_t position, std::string_view value) {
  forward_ahead(weights, slot, micro, position);
  return foreseen_.read(*shared_.parts.device, executor_->value(value));
}

std::pair<double, double> Worker::foresee_loss(ParameterSet& weights, std::int64_t slot,
                                               std::int64_t position) {
  const auto before = executor_->quantized_operands();
  forward_ahead(weights, slot, 0, position);
  foreseen_operands_ = executor_->quantized_operands();
  for (auto& [format, count] : foreseen_operands_) {
    for (const auto& [name, earlier] : before)
      if (name == format) count -= earlier;
  }
  const LossValue& loss = trained_loss(*executor_);
  return {loss.sum, loss.count};
}

std::int64_t Worker::micro_stride() const {
  return shared_.parts.dataset->batch() * shared_.replica.replicas();
}

// The witness looks last: a bit that was turned over is what the nodes after it read.
void Worker::probe_outputs(bool observed) {
  const bool flips = flips_ && flips_->wants_outputs();
  const bool wanted = observed || flips || witness_.active();
  if (wanted) {
    executor_->probe_outputs([this, observed, flips](std::string_view node, std::string_view type, int output,
                                                     const TensorView& value) {
      if (flips && !value.empty()) flips_->output(node, output, value);
      if (observed) watch_.output(node, type, output, value);
      witness_.output(node, output, value);
    });
  } else if (probed_) {
    executor_->probe_outputs({});
  }
  probed_ = wanted;
}

/// The first micro-batch once more, before it counts. Its gradients are not reported.
void Worker::compute_ahead(double loss_scale) {
  const SpanScope span(&shared_.with.spans, kCompute, "repeat");
  phase_ = "the repetition of a slot";
  repeat_->begin();
  executor_->forward(shared_.replica.live(), last_run_);
  const double counted =
      std::max(1.0, trained_loss(*executor_).count) * static_cast<double>(last_run_.micros);
  executor_->backward(shared_.replica.live(), *gradients_, loss_scale / counted, true, {});
  repeat_->first_done();
  repeated_operands_ = repeat_->operands();
}

void Worker::compare_with_ahead(bool last) {
  repeated_ = {last_run_.slot, repeat_->second_done()};
  repeat_.reset();
  if (!last || !ready_) return;
  for (const ParameterInfo& info : executor_->parameters())
    if (!gradients_->tensor(info.index).empty()) ready_(info.index);
}

std::vector<std::pair<std::string, std::int64_t>> Worker::operands() const {
  auto all = executor_->quantized_operands();
  for (auto& [format, count] : all) {
    for (const auto* const ahead : {&repeated_operands_, &foreseen_operands_}) {
      for (const auto& [name, extra] : *ahead)
        if (name == format) count -= extra;
    }
  }
  return all;
}

void Worker::accumulate(std::int64_t t, std::int64_t position, double loss_scale, SlotResult& result) {
  const std::int64_t micros = shared_.settings.run.accumulate;
  double counted = 1;  // targets of the slot
  open_ = shared_.replica.bucket_plan().parameters;
  next_bucket_ = 0;
  elements_done_ = 0;
  last_run_.slot = t;
  last_run_.micros = static_cast<int>(micros);
  slot_position_ = position;
  if (requests_ != nullptr) requests_->begin_slot(t, position);
  for (std::int64_t a = 0; a < micros; ++a) {
    read_batch(position, a);
    last_run_.micro = static_cast<int>(a);
    const bool repeats = a == 0 && repeat_;
    if (repeats) {
      compute_ahead(loss_scale);
      read_batch(position, a);
    }
    if (a == 0) watch_.begin_forward();
    witness_.inputs(a);
    probe_outputs(a == 0 && watch_.wants_outputs());
    {
      const SpanScope span(&shared_.with.spans, kCompute, "forward");
      const PhaseScope entered(&shared_.with.account, Phase::kForward);
      phase_ = "forward";
      shared_.with.faults.at(config::FaultSettings::Phase::kForward);
      cost_.begin_piece();
      executor_->forward(shared_.replica.live(), last_run_);
      cost_.forward();
    }
    if (probed_) executor_->probe_outputs({});
    const LossValue& loss = trained_loss(*executor_);
    result.loss_sum += loss.sum;
    result.loss_count += loss.count;
    if (a == 0) {
      result.first_loss_sum = loss.sum;
      result.first_loss_count = loss.count;
    }
    // A seed needs the slot's count before its last micro-batches are read: the first one's is used for all,
    // and the sum so far is corrected before it is read.
    if (a == 0) counted = std::max(1.0, loss.count) * static_cast<double>(micros);
    const bool last = a + 1 == micros;
    if (last) {
      const double assumed = std::exchange(counted, std::max(1.0, result.loss_count));
      if (a > 0 && assumed != counted) executor_->scale_gradients(*gradients_, assumed / counted);
      if (shared_.workers == 1) {
        shared_.replica.set_gradient_scale(1 / loss_scale);
        shared_.replica.set_gradient_count(result.loss_count);
      }
    }
    const SpanScope span(&shared_.with.spans, kCompute, "backward");
    const PhaseScope entered(&shared_.with.account, Phase::kBackward);
    phase_ = "backward";
    if (last) shared_.with.faults.at(config::FaultSettings::Phase::kBackward);
    cost_.begin_piece();
    executor_->backward(shared_.replica.live(), *gradients_, loss_scale / counted, a == 0,
                        last && !repeats ? ready_ : ParameterReady());
    if (repeats) compare_with_ahead(last);
    cost_.backward_done();
    if (a == 0) watch_.end_backward();
  }
  result.micros = micros;
}

bool Worker::update(const Slot& slot, const SlotPlan& plan, double loss_scale, SlotResult& result,
                    const std::function<std::int64_t()>& next_update) {
  Parts& parts = shared_.parts;
  // Replicas that share an update must agree without a message: the norm is the same on all, a loss is not.
  const bool alone = parts.sync->gradient_group() == GradientGroup::kReplica;
  std::span<const RowGradient> rows = executor_->row_gradients();
  if (shared_.rows.active()) rows = shared_.rows.run(rows);
  if (flips_) flips_->gradients();
  witness_.gradients(*gradients_, rows);
  Communicator* owners =
      shared_.rows.sharded() && !alone ? shared_.replica.group(Purpose::kStatistics) : nullptr;
  const double unscale = 1 / loss_scale;
  result.gradient_norm = shared_.updater.gradient_norm(*gradients_, rows, shared_.mesh, owners) * unscale;
  const double loss = result.loss_sum / std::max(1.0, result.loss_count);

  BackwardStats stats;
  stats.slot = slot.t;
  stats.found_non_finite = !std::isfinite(result.gradient_norm);
  stats.loss = loss;
  stats.gradient_norm = result.gradient_norm;
  const bool policy_applies = parts.precision->after_backward(stats);
  if (shared_.settings.run.stop_on_nan && !shared_.answered) {
    if (!std::isfinite(loss)) fail_non_finite(slot.t, "loss", loss);
    if (stats.found_non_finite && !answers_overflow(loss_scale))
      fail_non_finite(slot.t, "gradient norm", result.gradient_norm);
  }
  bool apply = policy_applies && !stats.found_non_finite && (!alone || std::isfinite(loss));
  if (shared_.votes) {
    phase_ = "the vote on the update";
    const PhaseScope part(&shared_.with.account, Phase::kWait);
    apply = shared_.control.commit(shared_.with.host.rank(), slot.t, apply);
  }
  if (!apply) return false;
  phase_ = "update";
  shared_.with.faults.at(config::FaultSettings::Phase::kUpdate);

  const double clip = shared_.settings.run.clip;
  UpdateContext context;
  context.lr = slot.lr * plan.lr_scale;
  context.count = next_update();
  context.gradient_scale = unscale;
  if (clip > 0) context.gradient_scale *= std::min(1.0, clip / (result.gradient_norm + kClipEpsilon));
  context.device = parts.device.get();
  watch_.before_update();
  cost_.begin_piece();
  {
    const SpanScope span(&shared_.with.spans, kCompute, "optimizer");
    const PhaseScope entered(&shared_.with.account, Phase::kOptimizer);
    if (requests_ != nullptr) requests_->update(context, std::exchange(rows, {}));
    const graph::PassScope pass(place_, optimizer_, graph::PassKind::kUpdate);
    shared_.updater.apply(context, *gradients_, rows);
  }
  cost_.update();  // its declared time has a span of its own
  watch_.after_update(unscale);
  executor_->publish(shared_.replica.live());
  if (flips_) flips_->updated();
  witness_.updated(rows);
  result.rows = rows;
  return true;
}

// A policy that scales the loss answers overflow itself, also when its scale has come down to 1; no other
// policy does.
bool Worker::answers_overflow(double loss_scale) const {
  if (scaler_ != nullptr) return shared_.parts.precision.guarded(*scaler_)->answers_overflow();
  return loss_scale != 1.0;
}

SlotResult Worker::run(std::int64_t t, std::int64_t position, double rate_scale,
                       const std::function<std::int64_t()>& next_update) {
  const auto begin = std::chrono::steady_clock::now();
  Parts& parts = shared_.parts;
  SlotResult result;
  phase_ = "the start of a slot";
  const PhaseScope part(&shared_.with.account, Phase::kCompute);
  shared_.with.faults.begin_slot(t);
  cost_.begin_slot(t);
  watch_.begin_slot(t);
  witness_.begin_slot(t);
  Slot slot{t, shared_.replica.replica(), 0};
  const double base_lr = parts.optimizer->base_lr();
  slot.lr = parts.schedule->rate({t, shared_.settings.run.steps, base_lr}) * rate_scale;
  const SlotPlan plan = parts.sync->plan(slot);
  result.kind = plan.kind;
  result.lr = slot.lr * plan.lr_scale;
  if (shared_.rows.active()) require_equal_plans(slot, plan);
  if (plan.kind == SlotKind::kGrad) {
    const double loss_scale = parts.precision->loss_scale();
    if (scaler_ != nullptr) result.loss_scale = loss_scale;
    accumulate(t, position, loss_scale, result);
    phase_ = "the end of the gradient exchange";
    parts.sync->finish_gradients();
    result.applied = update(slot, plan, loss_scale, result, next_update);
  } else if (plan.consumes_data) {
    result.micros = shared_.settings.run.accumulate;
  }
  phase_ = "the sync round after the update";
  if (plan.kind == SlotKind::kMix) cost_.mix_begins();
  parts.sync->after_step(slot,
                         {plan.kind, result.applied, result.loss_sum / std::max(1.0, result.loss_count)});
  if (plan.kind == SlotKind::kMix) cost_.mix_ends();
  const bool alone = parts.sync->gradient_group() == GradientGroup::kReplica;
  if (plan.kind == SlotKind::kMix || (alone && shared_.replica.replicas() > 1)) witness_.round();
  result.seconds = base::seconds_since(begin);
  return result;
}

// Rows of a table are read and updated by messages between all replicas, so either all take part or none.
void Worker::require_equal_plans(const Slot& slot, const SlotPlan& plan) const {
  for (int other = 0; other < shared_.replica.replicas(); ++other) {
    const bool trains = shared_.parts.sync->plan({slot.t, other, slot.lr}).kind == SlotKind::kGrad;
    if (trains == (plan.kind == SlotKind::kGrad)) continue;
    fail_config(fmt::format(
        "slot {}: sync strategy '{}' lets replica {} compute gradients and replica {} not, but the model has "
        "row tables, which replicas read and update together in each slot; choose a strategy whose replicas "
        "take the same slots, or set parallel.rows = \"request\"",
        slot.t, shared_.parts.sync.id(), trains ? other : slot.replica, trains ? slot.replica : other));
  }
}

void Worker::require_equal_plans() const {
  constexpr std::int64_t kSlots = 1000;
  if (!shared_.rows.active()) return;
  for (std::int64_t t = 0; t < std::min(kSlots, shared_.settings.run.steps); ++t) {
    const Slot slot{t, shared_.replica.replica(), 0};
    require_equal_plans(slot, shared_.parts.sync->plan(slot));
  }
}

std::string Worker::non_finite_data() {
  for (int micro = 0; micro < last_run_.micros; ++micro) {
    if (last_run_.micros > 1) read_batch(slot_position_, micro);
    last_run_.micro = micro;
    if (std::string found = reader_.non_finite(last_run_.first_sample); !found.empty()) return found;
  }
  return "";
}

void Worker::let_others_report() const {
  constexpr std::chrono::milliseconds kAtMost{2000}, kNap{5};
  const auto until = std::chrono::steady_clock::now() + kAtMost;
  while (!shared_.control.failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(kNap);
}

void Worker::fail_non_finite(std::int64_t t, const char* what, double value) {
  const char* found = std::isnan(value) ? "NaN" : "infinite";
  if (const std::string data = non_finite_data(); !data.empty()) {
    fail_run(
        fmt::format("{} is {} at step {} because the data is: {}. Fix the data: no learning rate helps; to "
                    "skip such updates and continue, set run.on_nan = \"continue\"",
                    what, found, t, data));
  }
  std::string place = executor_->find_non_finite(shared_.replica.live(), last_run_);
  if (place.empty() && shared_.replica.replicas() > 1) let_others_report();
  if (place.empty()) {
    ReduceOps& reduce = shared_.parts.device->family<ReduceOps>();
    for (const ParameterInfo& info : gradients_->parameters()) {
      const TensorView gradient = gradients_->tensor(info.index);
      if (gradient.empty() || !dtype_is_real(gradient.dtype)) continue;
      const std::int64_t at = reduce.first_non_finite(gradient);
      if (at >= 0) {
        place = fmt::format("gradient of '{}', element {}", info.spec.name, at);
        break;
      }
    }
  }
  if (place.empty()) {
    place = shared_.rows.sharded()
                ? "not found: layers that read tables of other replicas cannot be repeated alone"
                : "none: it came from another replica";
  }
  fail_run(
      fmt::format("{} is {} at step {}; first non-finite tensor: {}. Lower optimizer.lr or set run.clip; to "
                  "skip such updates and continue, set run.on_nan = \"continue\"",
                  what, found, t, place));
}

}  // namespace tenon::train
