// Saving at a slot boundary, what became of earlier saves, and the end of a rank: hashes and sums.
#include "train/rank.hpp"
#include "train/weights_hash.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace tenon::train {
namespace {

/// Longest wait for a checkpoint that is being written; disks can be slow, but a run must end.
constexpr double kLastSaveSeconds = 600;

}  // namespace

void Rank::save(SavePlan plan, const SaveMoment& moment, bool last) {
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  const PartScope part(&account_, TimePart::kSave);
  const LedgerScope entry(ledger(), OverheadLedger::Entry::kSave);
  const SpanScope span(&spans_, "save", "copy");
  const double began_s = world_.clock->now();  // policies count on the run's clock, which may be simulated
  // Lines of this slot must not be lost when the checkpoint survives a crash and they do not.
  if (rank_ == 0) world_.metrics->sync();
  if (last) saver_->wait(kLastSaveSeconds);
  const bool waits = last || !plan.background || emulated_ != nullptr;
  SavedEvent event;
  event.slot = moment.slot;
  event.samples = counters_.samples;
  event.plain_bytes = state_bytes_;
  event.free = moment.slot == 0 || moment.slot == world_.settings.run.steps;
  if (saver_->ready(moment.slot)) {
    hand_over(std::move(plan), moment, event);
  } else {
    host_.log(
        LogLevel::kWarning,
        fmt::format("checkpoint of slot {} skipped: the previous one is still being written", moment.slot));
  }
  event.stall_s = since();
  handed_over_.push_back(event);
  // In an emulated job a save takes no time on this machine's disk, so that none is ever skipped.
  if (waits) {
    exchange_->any(false);  // every rank has handed its copy over: waiting cannot hold one back
    saver_->wait(kLastSaveSeconds);
    handed_over_.back().stall_s = since();
  }
  take_save_results();
  stall_s_ += since();
  last_save_s_ = world_.clock->now() - began_s;
}

/// All ranks know how every earlier save ended, and so the same base.
void Rank::hand_over(SavePlan plan, const SaveMoment& moment, SavedEvent& event) {
  take_save_results();
  if (selector_ != nullptr) parts_->recovery.guarded(*selector_)->select(moment, plan);
  if (plan.base_slot == kNewestBase) {
    plan.base_slot = newest_committed_;
    if (newest_committed_ < 0) plan.everything = plan.consistent = true;
  }
  if (plan.everything) plan.base_slot = -1;
  if (plan.encoding != "plain" && codec_ == nullptr) {
    fail_plugin(fmt::format("recovery '{}' asks for rows encoded as '{}', but offers no {}",
                            parts_->recovery.id(), plan.encoding, RowCodec::kId));
  }
  const auto encode = [&](TensorView rows, std::vector<std::byte>& out) {
    parts_->recovery.guarded(*codec_)->encode(plan.encoding, rows, out);
  };
  lines_.note();
  save_buffers_.collect(*state_, shape(), plan, encode);
  SaveRequest request;
  request.step = moment.slot;
  request.timeline = world_.timeline;
  request.base = plan.base_slot;
  request.consistent = plan.consistent;
  request.items = save_buffers_.items();
  request.meta = save_buffers_.meta();
  saver_->submit(request);
  save_buffers_.release_tables();
  if (spans_.wanted()) handed_over_s_ = spans_.now();
  if (emulated_ != nullptr) emulated_->saved(plan);
  event.complete = plan.everything;
  event.consistent = plan.consistent;
  event.base_slot = plan.base_slot;
  event.encoded = plan.encoding != "plain";
}

void Rank::await_saves() {
  if (saver_ == nullptr) return;
  exchange_->any(false);  // every rank has handed its copy over: waiting cannot hold one back
  saver_->wait(kLastSaveSeconds);
  take_save_results();
}

void Rank::take_save_results() {
  if (saver_ == nullptr) return;
  for (const SaveResult& saved : saver_->take_results()) {
    if (outcomes_ != nullptr) parts_->recovery.guarded(*outcomes_)->on_save(saved);
    log_save(saved);
    switch (saved.status) {
      case SaveStatus::kCommitted:
        newest_committed_ = saved.step;
        save_error_.clear();
        host_.log(LogLevel::kInfo,
                  fmt::format(
                      "checkpoint of slot {} saved: {} bytes, copy {:.3f} s, write {:.3f} s, commit {:.3f} s",
                      saved.step, saved.bytes, saved.copy_s, saved.write_s, saved.commit_s));
        if (spans_.wanted() && !world_.clock->simulated())
          spans_.add({"save", "write", handed_over_s_, handed_over_s_ + saved.write_s + saved.commit_s});
        lines_.add(saved.step, Split::kTrain, "checkpoint_s", saved.copy_s + saved.write_s + saved.commit_s);
        break;
      case SaveStatus::kSkipped:
        lines_.add(saved.step, Split::kTrain, "checkpoint_skipped", 1);
        break;
      case SaveStatus::kAborted:
        save_error_ = fmt::format("checkpoint of slot {} could not be saved: {}", saved.step, saved.error);
        host_.log(LogLevel::kError, save_error_);
        lines_.add(saved.step, Split::kTrain, "checkpoint_failed", 1);
        break;
    }
  }
}

void Rank::log_save(const SaveResult& result) {
  const auto event = std::find_if(handed_over_.begin(), handed_over_.end(),
                                  [&](const SavedEvent& save) { return save.slot == result.step; });
  if (event == handed_over_.end()) return;
  if (rank_ == 0 && world_.recovery_log) world_.recovery_log->saved(*event, result);
  handed_over_.erase(handed_over_.begin(), event + 1);
}

void Rank::record_progress() {
  RunResult& result = world_.result;
  result.steps = counters_.slot;
  result.samples = counters_.samples;
  result.tokens = counters_.tokens;
  result.wall_s = lines_.wall_s();
  result.stall_s = stall_s_ - lines_.actors_idle_s();  // the world adds what the rank's threads waited
}

std::map<std::string, double> Rank::wall_split() const {
  using Entry = OverheadLedger::Entry;
  OverheadLedger& mine = world_.survival.ledger;
  mine.enter(mine.current());
  return {{"start_s", mine.seconds(Entry::kStart)},     {"work_s", mine.seconds(Entry::kWork)},
          {"save_s", mine.seconds(Entry::kSave)},       {"load_s", mine.seconds(Entry::kLoad)},
          {"restart_s", mine.seconds(Entry::kRestart)}, {"repeat_s", mine.seconds(Entry::kRepeat)}};
}

void Rank::log_recovery(std::string_view status) {
  const auto account = recovery_account();
  for (const auto& [name, value] : account) lines_.add(counters_.slot, Split::kTrain, name, value);
  if (!world_.recovery_log) return;
  RecoveryLog& log = *world_.recovery_log;
  log.ended(std::string(status), counters_.slot,
            emulated_ == nullptr ? std::vector<double>() : emulated_->access_shares(), account, wall_split());
  if (emulated_ != nullptr && counters_.slot > 0) {
    lines_.add(counters_.slot, Split::kTrain, "emulated_overhead",
               log.charges().total() / emulated_->hour(counters_.slot));
  }
}

void Rank::finish() {
  {
    const PartScope part(&account_, TimePart::kSave);
    const LedgerScope entry(ledger(), OverheadLedger::Entry::kSave);
    await_saves();
  }
  // Hashes: every rank's digests to rank 0; weights of the evaluation set of replica 0.
  if (stands_still_) gate_.take_over();
  std::optional<HeldPause> pause(gate_);
  if (std::exchange(stands_still_, false)) gate_.resume();
  parts_->sync->quiesce();
  const auto times = world_.end_hub->exchange(rank_, rank_time_text(lines_.time_so_far(row_server_.get())));
  const auto recorded = world_.end_hub->exchange(rank_, distributions_.text());
  const auto all = world_.end_hub->exchange(rank_, state_->digests());
  record_repetition();
  SetLayout layout{grid_.get(), world_.settings.parallel.grid, nullptr, replica_};
  if (rows_->cut()) layout.replicas = weights_->group(Purpose::kState);
  const std::string weights = logical_digests(evaluated(), *parts_->device, layout);
  const auto all_weights = world_.end_hub->exchange(rank_, weights);
  pause.reset();
  const std::string_view status = world_.stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  if (rank_ != 0) return observers_->finish(status, save_error_);
  StateHasher state_hash;
  for (const std::string& digests : all) state_hash.merge(digests);
  StateHasher weights_hash;
  for (const std::string& digests : all_weights) {
    if (!digests.empty()) weights_hash.merge(digests);
  }

  void* const gathered = parts_->precision->query(PrecisionMetrics::kId);
  if (gathered != nullptr) {
    auto& source = *static_cast<PrecisionMetrics*>(gathered);
    parts_->precision.guarded(source)->metrics([this](std::string_view name, double value) {
      lines_.add(counters_.slot, Split::kTrain, name, value);
    });
  }
  log_recovery(status);
  record_progress();
  RunResult& result = world_.result;
  result.state_hash = state_hash.hex();
  result.weights_hash = weights_hash.hex();
  if (world_.transport) {
    for (const std::string& text : times) result.communication.push_back(read_rank_time(text));
    if (const std::string slow = slow_rank_text(result.communication); !slow.empty())
      host_.log(LogLevel::kWarning, slow);
  }
  for (const std::string& text : recorded) merge_distributions(result.distributions, text);
  for (const auto& worker : workers_) {
    for (const auto& [format, count] : worker->operands()) result.quantized_operands[format] += count;
  }
  if (!save_error_.empty()) {
    result.error = save_error_ +
                   "; training went on, but the newest checkpoint is older than the end. Make room, then "
                   "continue with --resume";
    result.exit_status = 1;
  }
  observers_->finish(status, result.error);
}

}  // namespace tenon::train
