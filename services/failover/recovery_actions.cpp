#include "failover/recovery_actions.hpp"

#include "failover/snapshot.hpp"
#include "run/state_io.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <limits>
#include <optional>
#include <utility>

namespace tenon::train {
namespace {

constexpr std::int64_t kAnySlot = std::numeric_limits<std::int64_t>::max();

std::int64_t number_of(const std::string& text) {
  std::int64_t value = -1;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

/// Samples that a checkpoint's run had seen; 0 where it does not say.
std::int64_t samples_of(const CheckpointReader& reader) {
  const std::string* text = reader.meta("rank0/core/samples");
  return text == nullptr ? 0 : std::max<std::int64_t>(0, number_of(*text));
}

}  // namespace

std::string_view action_name(FailureAction action) {
  switch (action) {
    case FailureAction::kContinuePartial:
      return "continue_partial";
    case FailureAction::kRollBack:
      return "roll_back";
    case FailureAction::kAbort:
      break;
  }
  return "abort";
}

FailureDomains RecoveryActions::domains() const {
  if (rank_.emulated != nullptr) return rank_.emulated->domains();
  return {static_cast<int>(rank_.world.settings.parallel.trainers()), false};
}

void RecoveryActions::report_restored(int shard, std::int64_t slot, std::int64_t samples) const {
  RestoredShard restored;
  restored.shard = shard;
  restored.checkpoint_slot = slot;
  restored.checkpoint_samples = samples;
  restored.samples_now = rank_.counters.samples;
  rank_.parts.recovery->on_restored(restored);
}

void RecoveryActions::add_decoders(CheckpointReader& reader) const {
  auto* const codec = rank_.parts.recovery.offered<RowCodec>();
  if (codec == nullptr) return;
  add_row_decoders(reader, [this, codec] { return rank_.parts.recovery.guarded(*codec); });
}

std::map<std::string, double> RecoveryActions::account() const {
  std::map<std::string, double> values;
  rank_.parts.recovery->account(
      [&](std::string_view name, double value) { values.insert_or_assign(std::string(name), value); });
  return values;
}

RecoveryActions::Agreed RecoveryActions::next_checkpoint(std::vector<RejectedGeneration> rejected,
                                                         bool consistent_only, std::int64_t newest) const {
  RunRecord& record = rank_.world.record;
  const PlacedPoint point = record.places->recover(consistent_only, newest);
  rejected.insert(rejected.end(), point.rejected.begin(), point.rejected.end());
  for (const RejectedGeneration& bad : rejected) {
    const std::string text = rejected_text(bad, "is not believed");
    rank_.host.log(LogLevel::kError, text);
    if (!rank_.world.request.quiet) std::fprintf(stderr, "tenon: warning: %s\n", text.c_str());
  }
  record.count_fallbacks(rejected, point.step, rank_.world.settings.recovery.fallbacks);
  return {point.step, point.place};
}

/// The one that the policy names, unless it is damaged.
RecoveryActions::Agreed RecoveryActions::chosen_checkpoint(std::int64_t slot, bool consistent_only) const {
  CheckpointPlaces& places = *rank_.world.record.places;
  const int place = places.place_of(slot);
  try {
    places.at(place).verify(slot);
    return {slot, place};
  } catch (const FileError&) {
    throw;  // it says nothing about the content
  } catch (const Error& error) {
    return next_checkpoint(places.at(place).distrust(slot, error.what()), consistent_only, slot);
  }
}

RecoveryActions::Agreed RecoveryActions::shared(const Agreed& found) const {
  const std::string mine = rank_.index == 0 ? fmt::format("{} {}", found.slot, found.place) : "";
  const std::string all = rank_.world.links.end_hub->exchange(rank_.index, mine)[0];
  const std::size_t space = std::min(all.find(' '), all.size() - 1);
  return {number_of(all), static_cast<int>(number_of(all.substr(space + 1)))};
}

RecoveryActions::Agreed RecoveryActions::agreed_checkpoint(const FailureDecision& decision,
                                                           bool consistent_only) const {
  Agreed found;
  if (rank_.index == 0)
    found = decision.from_slot >= 0 ? chosen_checkpoint(decision.from_slot, consistent_only)
                                    : next_checkpoint({}, consistent_only, kAnySlot);
  return shared(found);
}

void RecoveryActions::fall_back(std::int64_t slot, const std::string& reason) {
  StartPoint& start = rank_.world.start;
  // Read before the exchange: another rank of this process may be first to write it.
  StartPoint::RollBack target;
  target.epoch = rank_.epoch + 1;
  target.faults_from = start.faults_from;
  target.timeline = start.timeline + 1;  // that of an older one is no later
  target.wall_s = start.restored_wall_s;
  target.next_failure = start.next_failure;
  target.in_place_of = slot;
  Agreed found;
  if (rank_.index == 0) {
    const bool mixed = rank_.epoch == start.first_epoch && start.mixed;
    RunRecord& record = rank_.world.record;
    // Another place may have the same slot, in other bytes.
    found = next_checkpoint(record.places->at(start.restored_place).distrust(slot, reason), !mixed, slot);
    if (rank_.epoch == start.first_epoch) record.begins_at(std::max<std::int64_t>(0, found.slot));
  }
  const Agreed next = shared(found);
  target.slot = next.slot;
  target.place = next.place;
  if (rank_.world.place.survives) rank_.world.survival.forget();
  rolls_back_ = true;
  start.roll_back(target);
}

/// `holds`: this rank has rows of the lost domains. Collective.
RestoredRows RecoveryActions::restore_lost(const FailureDecision& decision, std::span<const int> shards,
                                           bool holds, const RankState::IsLost& is_lost,
                                           FailedEvent& record) const {
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kLoad);
  const Agreed agreed = agreed_checkpoint(decision, false);
  std::optional<CheckpointReader> reader;
  if (agreed.slot >= 0) {
    reader.emplace(rank_.world.record.places->at(agreed.place).open(agreed.slot));
    add_decoders(*reader);
  }
  RestoredRows restored;
  if (holds)
    restored =
        rank_.state.restore_rows(reader ? &*reader : nullptr, is_lost, rank_.world.settings.run.seed_init);
  record.from_slot = std::max<std::int64_t>(0, agreed.slot);
  record.from_samples = reader ? samples_of(*reader) : 0;
  for (const int shard : shards) report_restored(shard, record.from_slot, record.from_samples);
  return restored;
}

/// The rank ends here and is built again at the returned slot. What happened since goes from the metrics.
std::int64_t RecoveryActions::roll_back(const FailureDecision& decision, std::int64_t slot,
                                        FailedEvent& record, bool asked) {
  const Agreed agreed = agreed_checkpoint(decision, true);
  std::int64_t timeline = rank_.world.start.timeline + 1;
  if (agreed.slot >= 0) {
    const CheckpointReader reader = rank_.world.record.places->at(agreed.place).open(agreed.slot);
    record.from_samples = samples_of(reader);
    timeline = std::max(timeline, reader.timeline() + 1);
  }
  record.from_slot = std::max<std::int64_t>(0, agreed.slot);
  if (WallTimeBreakdown* mine = rank_.wall_time()) mine->back_to(record.from_slot);
  if (rank_.world.place.survives) rank_.world.survival.forget();
  rolls_back_ = true;
  StartPoint::RollBack target;
  target.epoch = rank_.epoch + 1;
  target.slot = agreed.slot;
  target.place = agreed.place;
  // Emulated failures come before the slot, deaths in it.
  target.faults_from = record.dead.empty() ? slot : slot + 1;
  target.timeline = timeline;
  target.wall_s = rank_.lines.wall_s();
  target.next_failure = rank_.emulated != nullptr ? rank_.emulated->next() : rank_.world.start.next_failure;
  target.asked = asked;
  rank_.world.start.roll_back(target);
  return record.from_slot;
}

// Asks the policy without a failure. What the policy noted of it is taken back, or a run that is continued
// would differ from an uninterrupted one.
bool RecoveryActions::continues_mixed() const {
  HeldComponents before = held_recovery(rank_.state);
  FailureEvent everything;
  for (int r = 0; r < rank_.world.settings.parallel.trainers(); ++r) everything.dead.push_back(r);
  for (int s = 0; s < domains().shards; ++s) everything.shards.push_back(s);
  const FailureDecision decision = rank_.parts.recovery->on_failure(everything);
  give_back_recovery(rank_.state, std::move(before));
  return decision.action == FailureAction::kContinuePartial;
}

/// A run that is continued from rows of several moments has lost some of all shards.
void RecoveryActions::account_resumed(const CheckpointReader& reader) const {
  if (!reader.consistent()) {
    for (int shard = 0; shard < domains().shards; ++shard)
      report_restored(shard, reader.step(), rank_.counters.samples);
    rank_.host.log(LogLevel::kWarning,
                   fmt::format("checkpoint of slot {} holds rows of several slots; the run continues from "
                               "it, as recovery policy '{}' handles failures",
                               reader.step(), rank_.parts.recovery.id()));
  }
  if (rank_.index == 0 && rank_.world.record.recovery_log)
    rank_.world.record.recovery_log->resumed(reader.step(), rank_.counters.samples, reader.consistent(),
                                             account());
}

void RecoveryActions::end(std::string_view status) const {
  const std::int64_t slot = rank_.counters.slot;
  const auto counted = account();
  for (const auto& [name, value] : counted) rank_.lines.add(slot, Split::kTrain, name, value);
  if (!rank_.world.record.recovery_log) return;
  RecoveryLog& log = *rank_.world.record.recovery_log;
  log.ended(std::string(status), slot,
            rank_.emulated == nullptr ? std::vector<double>() : rank_.emulated->access_shares(), counted,
            rank_.world.survival.wall_time.split());
  if (rank_.emulated != nullptr && slot > 0) {
    rank_.lines.add(slot, Split::kTrain, "emulated_overhead",
                    log.charges().total() / rank_.emulated->hour(slot));
  }
}

}  // namespace tenon::train
