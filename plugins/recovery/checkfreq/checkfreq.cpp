// Profiles slots, then saves, then adapts the interval.
#include "checkfreq.hpp"

namespace tenon::recovery_checkfreq {

CheckFreq::CheckFreq(const Options& options)
    : frequency_(options.real("max_overhead")),
      profile_(options.integer("profile")),
      keep_(static_cast<int>(options.integer("keep"))),
      save_at_end_(options.boolean("save_at_end")) {}

SavePlan CheckFreq::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  plan.save = moment.requested || (moment.slot == moment.steps && save_at_end_);
  if (plan.save) asked_ = false;
  return plan;
}

bool CheckFreq::save_due(const SaveMoment& moment) {
  if (asked_) return false;
  if (!began_) began_ = Moment{moment.slot, moment.seconds};
  if (!saved_) {
    // Slots before any save measure the time of a plain slot.
    const std::int64_t slots = moment.slot - began_->slot;
    if (slots < profile_) return false;
    iteration_ = (moment.seconds - began_->seconds) / static_cast<double>(slots);
  } else {
    const std::int64_t slots = moment.slot - saved_->slot;
    if (frequency_.steps() == 0 || slots < frequency_.steps()) return false;
    frequency_.measured(moment.seconds - saved_->seconds, slots);
  }
  saved_ = Moment{moment.slot, moment.seconds};
  asked_ = true;
  return true;
}

void CheckFreq::on_save(const SaveResult& result) {
  if (result.status != SaveStatus::kCommitted || frequency_.steps() > 0 || !saved_) return;
  frequency_.profiled({.iteration = iteration_,
                       .overhead = result.copy_s,
                       .full = result.copy_s + result.write_s + result.commit_s});
}

}  // namespace tenon::recovery_checkfreq
