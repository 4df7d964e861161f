// How a rank ends: hashes of the weights and the state, seconds of all ranks, and the summary of the run.
#include "train/rank.hpp"
#include "train/weights_hash.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tenon::train {

void Rank::record_progress() {
  RunResult& result = world_.result;
  result.steps = counters_.slot;
  result.samples = counters_.samples;
  result.tokens = counters_.tokens;
  result.wall_s = lines_.wall_s();
  result.stall_s =
      lines_.stall_s() - lines_.actors_idle_s();  // the world adds what the rank's threads waited
}

/// In place of finish(): nothing of this rank is the run's result.
void Rank::leave() {
  if (OverheadLedger* mine = ledger()) mine->enter(OverheadLedger::Entry::kRestart);
  if (rank_ == 0) record_progress();
  observers_->finish("rolled back", "");
}

void Rank::finish() {
  {
    const PartScope part(&account_, TimePart::kSave);
    const LedgerScope entry(ledger(), OverheadLedger::Entry::kSave);
    saves_->await();
  }
  // Hashes: every rank's digests to rank 0; weights of the evaluation set of replica 0.
  if (stands_still_) gate_.take_over();
  std::optional<HeldPause> pause(gate_);
  if (std::exchange(stands_still_, false)) gate_.resume();
  parts_->sync->quiesce();
  const auto times = world_.end_hub->exchange(
      rank_, rank_time_text(lines_.time_so_far(requests_ != nullptr ? &requests_->server() : nullptr)));
  const auto recorded = world_.end_hub->exchange(rank_, distributions_.text());
  const auto all = world_.end_hub->exchange(rank_, state_->digests());
  repetition_->record();
  SetLayout layout{mesh_->all(), world_.settings.parallel.grid, nullptr, replica_};
  if (rows_->cut()) layout.replicas = weights_->group(Purpose::kState);
  const std::string weights = logical_digests(evaluated(), *parts_->device, layout);
  const auto all_weights = world_.end_hub->exchange(rank_, weights);
  pause.reset();
  const std::string_view status = world_.stop_reason() == StopReason::kSignal ? "interrupted" : "completed";
  if (rank_ != 0) return observers_->finish(status, saves_->error());
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
  recovery_->end(status);
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
  if (!saves_->error().empty()) {
    result.error = saves_->error() +
                   "; training went on, but the newest checkpoint is older than the end. Make room, then "
                   "continue with --resume";
    result.exit_status = 1;
  }
  observers_->finish(status, result.error);
}

}  // namespace tenon::train
