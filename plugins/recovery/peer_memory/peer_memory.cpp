// Recovery `peer_memory`: times of copies and saves, and the answer to failures.
#include "peer_memory.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <string>

namespace tenon::recovery_peer_memory {

PeerMemory::PeerMemory(const Options& options, Host& host)
    : host_(host),
      count_(static_cast<int>(options.integer("copies"))),
      copy_every_(options.integer("copy_every")),
      every_(options.integer("every")),
      keep_(static_cast<int>(options.integer("keep"))),
      background_(options.boolean("async")),
      save_at_end_(options.boolean("save_at_end")) {}

void PeerMemory::bind(RecoveryHost& host) {
  core_ = &host;
  const RecoveryContext& run = host.run();
  if (run.ranks > 1 && count_ > run.ranks) {
    fail_config("recovery peer_memory: copies = " + std::to_string(count_) + ", but there are " +
                std::to_string(run.ranks) + " ranks; each copy needs a rank of its own");
  }
  placement_.emplace(run.ranks, std::min(count_, run.ranks));
  if (run.servers > 0) {
    fail_config(
        "recovery 'peer_memory' keeps copies of ranks in the memory of other ranks, and what servers hold is "
        "in none of them; set parallel.servers = 0");
  }
  if (run.ranks == 1) return;
  if (!run.outlives) {
    host_.log(LogLevel::kWarning,
              "copies in the memory of other ranks are of use where ranks outlive each other: start them "
              "with tenon launch --restarts R. None are made");
    return;
  }
  std::vector<std::vector<int>> holders;
  for (int rank = 0; rank < run.ranks; ++rank) holders.push_back(placement_->holders(rank));
  copies_ = std::make_unique<PeerCopies>(host, std::move(holders));
}

void PeerMemory::start(const RecoveryStart& start) {
  if (start.from_memory) copy(start.slot);
}

BoundaryPlan PeerMemory::plan_boundary(const SaveMoment& moment) {
  BoundaryPlan plan;
  plan.acts = copies_ != nullptr && moment.slot % copy_every_ == 0;
  return plan;
}

void PeerMemory::copy(std::int64_t slot) {
  const double began_s = host_.now();
  copies_->exchange(slot);
  core_->report("memory_copy_s", host_.now() - began_s);
}

SavePlan PeerMemory::plan_save(const SaveMoment& moment) {
  SavePlan plan;
  const bool last = moment.slot == moment.steps && save_at_end_;
  plan.save = (moment.slot > 0 && moment.slot % every_ == 0) || moment.requested || last;
  plan.background = background_;
  return plan;
}

void PeerMemory::account(const std::function<void(std::string_view, double)>& sink) {
  sink("copies", count_);
  if (placement_->machines() < 2) return;
  // Probability that no checkpoint is needed when two ranks die together, all pairs equally likely.
  sink("two_deaths_outlived", recovery_probability(placement_->machines(), count_, 2));
}

}  // namespace tenon::recovery_peer_memory
