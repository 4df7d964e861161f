// Recovery `peer_memory`: when, and where to.
#include "peer_memory.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <string>

namespace tenon::recovery_peer_memory {

PeerMemory::PeerMemory(const Options& options)
    : copies_(static_cast<int>(options.integer("copies"))),
      copy_every_(options.integer("copy_every")),
      every_(options.integer("every")),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {}

void PeerMemory::bind(const RecoveryContext& context) {
  if (context.ranks > 1 && copies_ > context.ranks) {
    fail_config("recovery peer_memory: copies = " + std::to_string(copies_) + ", but there are " +
                std::to_string(context.ranks) + " ranks; each copy needs a rank of its own");
  }
  placement_.emplace(context.ranks, std::min(copies_, context.ranks));
}

SavePlan PeerMemory::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps && save_at_end_;
  plan.save = (moment.slot > 0 && moment.slot % every_ == 0) || moment.requested || last;
  plan.background = background_;
  return plan;
}

void PeerMemory::account(const std::function<void(std::string_view, double)>& sink) {
  sink("copies", copies_);
  if (placement_->machines() < 2) return;
  // That no checkpoint is needed when two ranks die together, any two alike.
  sink("two_deaths_outlived", recovery_probability(placement_->machines(), copies_, 2));
}

void* PeerMemory::query(std::string_view interface_id) {
  return interface_id == MemoryCopies::kId ? static_cast<MemoryCopies*>(this) : nullptr;
}

}  // namespace tenon::recovery_peer_memory
