#include "train/emulated_outages.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::train {

void EmulatedOutages::plan(Boundary& due) {
  due_ = !due.stop && !due.keep_nothing && from_.failures->due(due.slot) != nullptr;
  due.fails |= due_;
  due.acts |= due_;
}

void EmulatedOutages::at_boundary(Boundary& due) {
  if (!due_) return;
  while (!from_.recovery->rolls_back()) {
    const EmulatedFailure* failure = from_.failures->due(due.slot);
    if (failure == nullptr) return;
    answer(*failure, due.slot);
  }
}

void EmulatedOutages::answer(const EmulatedFailure& failure, std::int64_t slot) {
  const double began_s = world_.clock->now();
  const LedgerScope entry(world_.ledger(from_.rank), OverheadLedger::Entry::kRestart);
  from_.saves->await();
  FailedEvent record;
  record.index = static_cast<std::int64_t>(from_.failures->next());
  record.hour = failure.hour;
  record.slot = slot;
  record.samples = from_.counters->samples;
  record.shards = failure.shards;
  record.lost_access_share = from_.failures->lose(failure.shards);
  FailureEvent event;
  event.slot = slot;
  event.samples = from_.counters->samples;
  event.shards = failure.shards;
  const FailureDecision decision = from_.parts->recovery->on_failure(event);
  record.action = action_name(decision.action);
  from_.host->log(LogLevel::kWarning,
                  fmt::format("shards {} lost their rows at slot {} (emulated, hour {:.2f}): {}",
                              fmt::join(failure.shards, ", "), slot, failure.hour, record.action));
  from_.failures->happened();
  std::int64_t repeated = 0;
  switch (decision.action) {
    case FailureAction::kContinuePartial:
      restore(decision, failure.shards, record);
      break;
    case FailureAction::kRollBack:
      repeated = slot - from_.recovery->roll_back(decision, slot, record);
      break;
    default:
      fail_run(fmt::format(
          "shards {} lost their rows at slot {}, and recovery policy '{}' answers with '{}'; choose one that "
          "restores, e.g. [recovery] type = \"full\" or \"cpr\"",
          fmt::join(failure.shards, ", "), slot, from_.parts->recovery.id(), record.action));
  }
  record.seconds = world_.clock->now() - began_s;
  from_.lines->stood_still(record.seconds);
  record.account = from_.recovery->account();
  if (from_.rank != 0) return;
  if (world_.recovery_log) world_.recovery_log->failed(record, repeated);
  if (!from_.recovery->rolls_back())
    from_.lines->add(slot, Split::kTrain, "failures", static_cast<double>(from_.failures->next()));
  for (const auto& [name, value] : record.account) {
    if (!from_.recovery->rolls_back()) from_.lines->add(slot, Split::kTrain, name, value);
  }
}

void EmulatedOutages::restore(const FailureDecision& decision, std::span<const int> shards,
                              FailedEvent& record) const {
  const FailureDomains& domains = from_.failures->domains();
  const RestoredRows restored = from_.recovery->restore_lost(
      decision, shards, true,
      [&](int parameter, std::int64_t row) {
        return std::binary_search(shards.begin(), shards.end(), shard_of_row(domains, parameter, row));
      },
      record);
  record.rows = restored.rows;
  record.bytes_read = restored.bytes;
}

}  // namespace tenon::train
