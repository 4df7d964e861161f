#include "multilevel.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

namespace tenon::recovery_multilevel {
namespace {

/// Name of this policy's memory (RecoveryHost::kept).
constexpr const char* kMemory = "multilevel";

/// A policy in memory beside this one: what it would save or choose is not asked for, so it may not rely on
/// that.
void refuse_savers(Recovery& memory) {
  for (const char* interface : {SavePlaces::kId, SaveSelector::kId, RowCodec::kId}) {
    if (memory.query(interface) == nullptr) continue;
    fail_config(
        std::string("recovery multilevel: its memory policy decides about saves of its own (") + interface +
        "), which this one decides; choose a policy that keeps copies in memory, e.g. [recovery.memory] "
        "type = \"peer_memory\"");
  }
}

}  // namespace

MultiLevel::MultiLevel(const Options& options, Host& host)
    : host_(host),
      memory_(options.component<Recovery>("memory")),
      local_every_(options.integer("local_every")),
      every_(options.integer("every")),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {
  if (memory_ != nullptr) refuse_savers(*memory_);
  if (!options.has("local_folder")) return;
  folder_ = options.text("local_folder");
  if (folder_.empty()) {
    fail_config(
        "recovery multilevel: local_folder is empty; name a folder on the machine's own disk, or leave the "
        "option out");
  }
  if (local_every_ >= every_) {
    fail_config("recovery multilevel: local_every = " + std::to_string(local_every_) +
                " and every = " + std::to_string(every_) +
                "; the local folder is the cheaper level and is saved to more often: lower "
                "local_every, or leave local_folder out");
  }
  local_ = SavePlace{"local", folder_, static_cast<int>(options.integer("local_keep"))};
}

void MultiLevel::bind(RecoveryHost& host) {
  core_ = &host;
  if (memory_ != nullptr) memory_->bind(host);
}

void MultiLevel::start(const RecoveryStart& start) {
  if (memory_ != nullptr) memory_->start(start);
}

void MultiLevel::before_slot(SlotStart& slot) {
  if (memory_ != nullptr) memory_->before_slot(slot);
}

void MultiLevel::after_slot(const SlotOutcome& outcome) {
  if (memory_ != nullptr) memory_->after_slot(outcome);
}

void MultiLevel::on_evaluation(std::int64_t slot, std::string_view metric, double value) {
  if (memory_ != nullptr) memory_->on_evaluation(slot, metric, value);
}

BoundaryPlan MultiLevel::plan_boundary(const SaveMoment& moment) {
  return memory_ == nullptr ? BoundaryPlan{} : memory_->plan_boundary(moment);
}

void MultiLevel::at_boundary(const SaveMoment& moment) {
  if (memory_ != nullptr) memory_->at_boundary(moment);
}

bool MultiLevel::answers_non_finite() const {
  return memory_ != nullptr && memory_->answers_non_finite();
}

// Ranks learn of the end of a save at different slots, and a replacement knows of none: the newest that any
// rank knows of is committed everywhere.
std::int64_t MultiLevel::rejoin() {
  if (memory_ == nullptr) return -1;
  const std::int64_t copies = memory_->rejoin();
  std::int64_t committed = -1;
  for (const std::string& text : core_->gather(std::to_string(newest_committed()))) {
    std::int64_t theirs = -1;
    std::istringstream(text) >> theirs;
    committed = std::max(committed, theirs);
  }
  if (committed <= copies) return copies;
  host_.log(LogLevel::kInfo, "the checkpoint of slot " + std::to_string(committed) +
                                 " is newer than the copies in memory" +
                                 (copies < 0 ? "" : ", which are of slot " + std::to_string(copies)));
  return -1;
}

void MultiLevel::bring_back(std::int64_t slot) {
  memory_->bring_back(slot);
}

void MultiLevel::state(StateVisitor& visitor) {
  if (memory_ == nullptr) return;
  visitor.enter("memory");
  memory_->state(visitor);
  visitor.leave();
}

SavePlan MultiLevel::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps && save_at_end_;
  plan.save =
      moment.requested || last || place(moment) == kLocal || (moment.slot > 0 && moment.slot % every_ == 0);
  plan.background = background_;
  return plan;
}

int MultiLevel::place(const SaveMoment& moment) const {
  const bool last = moment.slot == moment.steps && save_at_end_;
  if (!local_ || moment.requested || last || moment.slot == 0 || moment.slot % every_ == 0) return kRunFolder;
  return moment.slot % local_every_ == 0 ? kLocal : kRunFolder;
}

std::int64_t& MultiLevel::newest_committed() {
  std::shared_ptr<void>& memory = core_->kept(kMemory);
  if (memory == nullptr) memory = std::make_shared<std::int64_t>(-1);
  return *static_cast<std::int64_t*>(memory.get());
}

void MultiLevel::on_save(const SaveResult& result) {
  if (core_ == nullptr) return;
  if (result.status == SaveStatus::kCommitted) newest_committed() = std::max(newest_committed(), result.step);
}

void MultiLevel::account(const std::function<void(std::string_view, double)>& sink) {
  if (memory_ != nullptr) memory_->account(sink);
}

std::span<const SavePlace> MultiLevel::places() const {
  if (!local_) return {};
  return {&*local_, 1};
}

void* MultiLevel::query(std::string_view interface_id) {
  if (interface_id == SavePlaces::kId) return static_cast<SavePlaces*>(this);
  return interface_id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
}

std::span<const Identity> MultiLevel::identities() const {
  static constexpr Identity kAll[] = {
      {.why = "with the shared folder alone it saves as `full`, and saving changes no weight",
       .options = "every = 2",
       .other = "type = \"full\"\nevery = 2"},
  };
  return kAll;
}

}  // namespace tenon::recovery_multilevel
