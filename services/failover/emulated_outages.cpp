#include "failover/emulated_outages.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::train {

void EmulatedOutages::plan(Boundary& due) {
  due_ = !due.stop && !due.keep_nothing && failures_.due(due.slot) != nullptr;
  due.fails |= due_;
  due.acts |= due_;
}

void EmulatedOutages::at_boundary(Boundary& due) {
  if (!due_) return;
  while (!recovery_.rolls_back()) {
    const config::EmulatedFailure* failure = failures_.due(due.slot);
    if (failure == nullptr) return;
    answer(*failure, due.slot);
  }
}

void EmulatedOutages::answer(const config::EmulatedFailure& failure, std::int64_t slot) {
  const double began_s = rank_.world.clock->now();
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kRestart);
  FailedEvent record;
  record.index = static_cast<std::int64_t>(failures_.next());
  record.hour = failure.hour;
  record.slot = slot;
  record.samples = rank_.counters.samples;
  record.shards = failure.shards;
  record.lost_access_share = failures_.lose(failure.shards);
  FailureEvent event;
  event.slot = slot;
  event.samples = rank_.counters.samples;
  event.shards = failure.shards;
  const FailureDecision decision = rank_.parts.recovery->on_failure(event);
  record.action = action_name(decision.action);
  rank_.host.log(LogLevel::kWarning,
                 fmt::format("shards {} lost their rows at slot {} (emulated, hour {:.2f}): {}",
                             fmt::join(failure.shards, ", "), slot, failure.hour, record.action));
  failures_.happened();
  std::int64_t repeated = 0;
  switch (decision.action) {
    case FailureAction::kContinuePartial:
      restore(decision, failure.shards, record);
      break;
    case FailureAction::kRollBack:
      repeated = slot - recovery_.roll_back(decision, slot, record);
      break;
    default:
      fail_run(
          fmt::format("shards {} lost their rows at slot {}, and recovery policy '{}' decided '{}'; choose "
                      "one that restores, e.g. [recovery] type = \"full\" or \"cpr\"",
                      fmt::join(failure.shards, ", "), slot, rank_.parts.recovery.id(), record.action));
  }
  record.seconds = rank_.world.clock->now() - began_s;
  rank_.lines.stood_still(record.seconds);
  record.account = recovery_.account();
  if (rank_.index != 0) return;
  if (rank_.world.record.recovery_log) rank_.world.record.recovery_log->failed(record, repeated);
  if (!recovery_.rolls_back())
    rank_.lines.add(slot, Split::kTrain, "failures", static_cast<double>(failures_.next()));
  for (const auto& [name, value] : record.account) {
    if (!recovery_.rolls_back()) rank_.lines.add(slot, Split::kTrain, name, value);
  }
}

void EmulatedOutages::restore(const FailureDecision& decision, std::span<const int> shards,
                              FailedEvent& record) const {
  const FailureDomains& domains = failures_.domains();
  const RestoredRows restored = recovery_.restore_lost(
      decision, shards, true,
      [&](int parameter, std::int64_t row) {
        return std::binary_search(shards.begin(), shards.end(), shard_of_row(domains, parameter, row));
      },
      record);
  record.rows = restored.rows;
  record.bytes_read = restored.bytes;
}

}  // namespace tenon::train
