#include "record/saves.hpp"

#include "base/elapsed.hpp"
#include "record/run_folder.hpp"

#include <tenon/error.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace tenon::train {
namespace {

/// Longest wait for a checkpoint that is being written; disks can be slow, but a run must end.
constexpr double kLastSaveSeconds = 600;
constexpr double kHour = 3600;

}  // namespace

HubExchange::~HubExchange() = default;

std::vector<std::string> HubExchange::gather(const std::string& text) {
  std::vector<std::string> all = saving_.exchange(rank_, text);
  if (rank_ != 0) all.clear();
  return all;
}

std::string HubExchange::broadcast(const std::string& text) {
  return saving_.exchange(rank_, rank_ == 0 ? text : std::string())[0];
}

bool HubExchange::any(bool mine) {
  const PhaseScope part(account_, Phase::kWait);
  for (const std::string& text : training_.exchange(rank_, mine ? "1" : "0")) {
    if (text == "1") return true;
  }
  return false;
}

Saves::Saves(const RankContext& rank, TimeAccount& account, SpanRecorder& spans, const RunShape& shape)
    : rank_(rank),
      account_(account),
      spans_(spans),
      shape_(shape),
      selector_(rank.parts.recovery.offered<SaveSelector>()),
      codec_(rank.parts.recovery.offered<RowCodec>()),
      places_(rank.parts.recovery.offered<SavePlaces>()),
      exchange_(rank.index, *rank.world.links.training_hub, *rank.world.links.saving_hub, &account) {}

std::int64_t Saves::bytes_of_all_ranks() const {
  std::int64_t mine = 0, all = 0;
  for (const StateEntry& entry : rank_.state.entries()) {
    if (entry.written) mine += entry.bytes();
  }
  for (const std::string& text : rank_.world.links.end_hub->exchange(rank_.index, std::to_string(mine)))
    all += std::stoll(text);
  return all;
}

void Saves::start() {
  if (rank_.emulated != nullptr) state_bytes_ = bytes_of_all_ranks();
  if (rank_.parts.recovery->keep() == 0) return;
  Device* device = rank_.parts.device.get();
  saver_ = std::make_unique<AsyncSaver>(*rank_.world.record.store, rank_.index,
                                        static_cast<int>(rank_.world.settings.parallel.trainers()), exchange_,
                                        [device](const TensorView& from, std::span<std::byte> to) {
                                          TensorView host = from;
                                          host.space = MemorySpace::kHost;
                                          host.data = to.data();
                                          device->copy(from, host);
                                        });
}

void Saves::ask(Boundary& due) {
  can_save_ = rank_.parts.recovery->keep() > 0 && due.first_time;
  due.moment = {due.slot, rank_.world.settings.run.steps, rank_.counters.samples, rank_.lines.wall_s(),
                last_save_s_};
  if (rank_.emulated != nullptr) {
    due.moment.seconds = rank_.emulated->hour(due.slot) * kHour;
    due.moment.same_clock = true;
  }
  if (rank_.index == 0 && can_save_ && due.slot < rank_.world.settings.run.steps &&
      rank_.parts.recovery->save_due(due.moment))
    rank_.world.links.control->request(kControlSave, "the recovery policy's timer");
}

void Saves::plan(Boundary& due) {
  plan_ = {};
  place_ = kRunFolder;
  stops_ = due.stop;
  // At slot 0 there is nothing to lose, but increments need a base.
  if (!can_save_ && (rank_.parts.recovery->keep() == 0 || due.slot > 0)) return;
  due.moment.requested = (due.asked & kControlSave) != 0;
  plan_ = rank_.parts.recovery->plan_save(due.moment);
  place_ = planned_place(due);
  if (due.stop) keep_all(due);
  if (due.moment.requested && !plan_.save) force(due);
  due.acts |= plan_.save;
}

int Saves::planned_place(const Boundary& due) const {
  if (!plan_.save || places_ == nullptr) return kRunFolder;
  const int place = rank_.parts.recovery.guarded(*places_)->place(due.moment);
  const int count = rank_.world.record.places->count();
  if (place < kRunFolder || place >= count) {
    fail_plugin(
        fmt::format("recovery '{}' saves slot {} in place {}; it has {} beside the run's folder, which is {}",
                    rank_.parts.recovery.id(), due.slot, place, count, kRunFolder));
  }
  return place;
}

void Saves::force(Boundary& due) {
  plan_ = {};
  place_ = kRunFolder;
  plan_.save = due.moment.forced = true;
}

/// A run that is stopped early and resumed must end in the bits of one that was not stopped.
void Saves::keep_all(Boundary& due) {
  const bool cut_short = due.slot < rank_.world.settings.run.steps;
  if (cut_short && !(plan_.save && plan_.consistent && place_ == kRunFolder)) force(due);
}

void Saves::at_boundary(Boundary& due) {
  if (!due.keep_nothing) save_planned(due);
  if (!due.fails) return;
  // The answer to the failure reads checkpoints.
  const double began_s = rank_.world.clock->now();
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kSave);
  await();
  rank_.lines.stood_still(rank_.world.clock->now() - began_s);
}

void Saves::save_planned(Boundary& due) {
  if (due.stop && !stops_ && can_save_) keep_all(due);
  if (!plan_.save) return;
  std::optional<StopRequest::Saving> saving;
  if (due.stop) saving.emplace(rank_.world.survival.stop);
  save(due.moment, due.stop);
}

std::vector<std::int64_t> Saves::unfinished() const {
  std::vector<std::int64_t> slots;
  for (const SavedEvent& save : handed_over_) slots.push_back(save.slot);
  return slots;
}

void Saves::save(const SaveMoment& moment, bool last) {
  const auto begin = std::chrono::steady_clock::now();
  const PhaseScope part(&account_, Phase::kSave);
  const WallTimeScope entry(rank_.wall_time(), WallTimeBreakdown::Entry::kSave);
  const SpanScope span(&spans_, "save", "copy");
  // Policies count on the run's clock, which may be simulated.
  const double began_s = rank_.world.clock->now();
  // Lines of this slot must not be lost when the checkpoint survives a crash and they do not.
  if (rank_.index == 0) rank_.world.record.metrics->sync();
  if (last) saver_->wait(kLastSaveSeconds);
  // A place is there because it is quick to write; a checkpoint that lasts longer is not skipped for it.
  if (place_ == kRunFolder && writing_to_ != kRunFolder) {
    exchange_.any(false);  // every rank has handed its copy over: waiting cannot hold one back
    saver_->wait(kLastSaveSeconds);
  }
  const bool waits = last || !plan_.background || rank_.emulated != nullptr;
  SavedEvent event;
  event.slot = moment.slot;
  event.samples = rank_.counters.samples;
  event.plain_bytes = state_bytes_;
  event.place = rank_.world.record.places->name(place_);
  event.free = moment.slot == 0 || moment.slot == rank_.world.settings.run.steps;
  if (saver_->ready(moment.slot)) {
    hand_over(std::move(plan_), moment, event);
  } else {
    rank_.host.log(LogLevel::kWarning,
                   fmt::format("checkpoint of slot {}{} skipped: the previous one is still being written",
                               moment.slot, rank_.world.record.places->where(place_)));
  }
  event.stall_s = base::seconds_since(begin);
  handed_over_.push_back(event);
  // In an emulated job a save takes no time on this machine's disk, so that none is ever skipped.
  if (waits) {
    exchange_.any(false);  // every rank has handed its copy over: waiting cannot hold one back
    saver_->wait(kLastSaveSeconds);
    handed_over_.back().stall_s = base::seconds_since(begin);
  }
  take_results();
  last_save_s_ = rank_.world.clock->now() - began_s;
  rank_.lines.stood_still(base::seconds_since(begin));
}

/// All ranks know how every earlier save ended, and so the same base.
void Saves::hand_over(SavePlan plan, const SaveMoment& moment, SavedEvent& event) {
  take_results();
  if (selector_ != nullptr) rank_.parts.recovery.guarded(*selector_)->select(moment, plan);
  if (place_ != kRunFolder) plan.everything = plan.consistent = true;
  if (plan.base_slot == kNewestBase) {
    plan.base_slot = newest_committed_;
    if (newest_committed_ < 0) plan.everything = plan.consistent = true;
  }
  if (plan.everything) plan.base_slot = -1;
  if (plan.encoding != "plain" && codec_ == nullptr) {
    fail_plugin(fmt::format("recovery '{}' asks for rows encoded as '{}', but offers no {}",
                            rank_.parts.recovery.id(), plan.encoding, RowCodec::kId));
  }
  const auto encode = [&](TensorView rows, std::vector<std::byte>& out) {
    rank_.parts.recovery.guarded(*codec_)->encode(plan.encoding, rows, out);
  };
  rank_.lines.note();
  buffers_.collect(rank_.state, shape_, plan, encode);
  // Rows in memory are those of the checkpoint, to the bit.
  const bool exact = plan.consistent && plan.encoding == "plain";
  newest_exact_ = exact ? moment.slot : -1;
  if (exact) {
    const std::uint64_t attempt = folder_number(rank_.world.record.folder.path);
    for (KeptRows* const rows : rank_.state.kept_rows()) rows->mark(moment.slot, attempt);
  }
  SaveRequest request;
  request.step = moment.slot;
  request.timeline = rank_.world.start.timeline;
  request.base = plan.base_slot;
  request.consistent = plan.consistent;
  request.items = buffers_.items();
  request.meta = buffers_.meta();
  saver_->use(rank_.world.record.places->at(place_));
  saver_->submit(request);
  writing_to_ = place_;
  buffers_.release_tables();
  if (spans_.wanted()) handed_over_s_ = spans_.now();
  if (rank_.emulated != nullptr) rank_.emulated->saved(plan);
  event.complete = plan.everything;
  event.consistent = plan.consistent;
  event.base_slot = plan.base_slot;
  event.encoded = plan.encoding != "plain";
}

void Saves::await() {
  if (saver_ == nullptr) return;
  exchange_.any(false);  // every rank has handed its copy over: waiting cannot hold one back
  saver_->wait(kLastSaveSeconds);
  take_results();
}

void Saves::take_results() {
  if (saver_ == nullptr) return;
  for (const SaveResult& saved : saver_->take_results()) {
    rank_.parts.recovery->on_save(saved);
    const std::string place(place_of(saved.step));
    const std::string where = place.empty() ? "" : " in " + place;
    log(saved);
    if (heard_)
      heard_(saved.step, saved.status == SaveStatus::kCommitted, rank_.world.record.places->index(place));
    switch (saved.status) {
      case SaveStatus::kCommitted:
        if (place.empty()) newest_committed_ = saved.step;
        for (KeptRows* const rows : rank_.state.kept_rows()) rows->committed(saved.step);
        if (place.empty()) error_.clear();
        rank_.host.log(
            LogLevel::kInfo,
            fmt::format(
                "checkpoint of slot {} saved{}: {} bytes, copy {:.3f} s, write {:.3f} s, commit {:.3f} s",
                saved.step, where, saved.bytes, saved.copy_s, saved.write_s, saved.commit_s));
        if (spans_.wanted() && !rank_.world.clock->simulated())
          spans_.add({"save", "write", handed_over_s_, handed_over_s_ + saved.write_s + saved.commit_s});
        rank_.lines.add(saved.step, Split::kTrain, "checkpoint_s",
                        saved.copy_s + saved.write_s + saved.commit_s);
        break;
      case SaveStatus::kSkipped:
        rank_.lines.add(saved.step, Split::kTrain, "checkpoint_skipped", 1);
        break;
      case SaveStatus::kAborted:
        report_aborted(saved, where);
        rank_.lines.add(saved.step, Split::kTrain, "checkpoint_failed", 1);
        break;
    }
  }
}

std::string_view Saves::place_of(std::int64_t slot) const {
  const auto event = std::ranges::find(handed_over_, slot, &SavedEvent::slot);
  return event == handed_over_.end() ? std::string_view() : event->place;
}

/// Where a place beside the run's folder is full or gone, that folder serves: the run ends as one without it.
void Saves::report_aborted(const SaveResult& saved, const std::string& where) {
  const std::string text =
      fmt::format("checkpoint of slot {} could not be saved{}: {}", saved.step, where, saved.error);
  rank_.host.log(LogLevel::kError, text);
  if (where.empty()) error_ = text;
}

void Saves::log(const SaveResult& result) {
  const auto event = std::find_if(handed_over_.begin(), handed_over_.end(),
                                  [&](const SavedEvent& save) { return save.slot == result.step; });
  if (event == handed_over_.end()) return;
  if (rank_.index == 0 && rank_.world.record.recovery_log)
    rank_.world.record.recovery_log->saved(*event, result);
  handed_over_.erase(handed_over_.begin(), event + 1);
}

/// The store knows which of the saves that were under way when the run was interrupted are whole.
void Saves::report(std::span<const std::int64_t> slots) {
  const std::vector<std::int64_t> whole = rank_.world.record.places->generations();
  for (const std::int64_t slot : slots) {
    SaveResult result;
    result.step = slot;
    const bool there = std::find(whole.begin(), whole.end(), slot) != whole.end();
    result.status = there ? SaveStatus::kCommitted : SaveStatus::kAborted;
    if (!there) result.error = "a rank died while it was being written";
    rank_.parts.recovery->on_save(result);
    if (!there) rank_.lines.add(slot, Split::kTrain, "checkpoint_failed", 1);
  }
}

}  // namespace tenon::train
