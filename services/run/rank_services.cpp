#include "run/rank_services.hpp"

#include <tenon/error.hpp>

namespace tenon::train {
namespace {

/// Why the run cannot go on from what its ranks hold in memory; "" if it can.
std::string unrecoverable_reason(const World& world, const Trainer& trainer) {
  if (trainer.mesh().all() != nullptr) return "parts of one model depend on each other";
  if (!trainer.shares_weights()) return "its replicas differ";
  if (!trainer.weights().created_sets().empty()) return "its sync strategy keeps tensors of each replica";
  if (trainer.workers().size() > 1 || world.settings.parallel.servers > 0 || trainer.requests() != nullptr)
    return "its ranks are not at one slot";
  if (world.settings.emulate) return "its failures are emulated";
  return "";
}

}  // namespace

// The policy hears which run it is in before anything else asks it.
RankServices::RankServices(World& world, int rank, Trainer& trainer, Progress& progress) {
  const config::CoreSettings& settings = world.settings;
  if (settings.emulate) {
    if (settings.parallel.servers > 0)
      fail_config("[emulate]: what servers hold cannot be rolled back; set parallel.servers = 0");
    emulated_ = std::make_unique<EmulatedFailures>(*settings.emulate, settings.run.steps,
                                                   trainer.weights().live().parameters());
    emulated_->start_with(world.start.next_failure);
  }
  Instruments& with = trainer.instruments();
  const RankContext context{world,
                            rank,
                            world.start.epoch,
                            with.host,
                            trainer.parts(),
                            trainer.weights(),
                            trainer.state(),
                            trainer.counters(),
                            trainer.lines(),
                            emulated_.get()};
  actions_ = std::make_unique<RecoveryActions>(context);
  phases_ = std::make_unique<RecoveryPhases>(
      context, RecoveryPhases::Sources{*actions_, with.account, with.spans, progress, with.watch,
                                       trainer.mesh().all()});
  saves_ = std::make_unique<Saves>(context, with.account, with.spans, trainer.shape());
  survivor_ = std::make_unique<Survivor>(
      context, Survivor::Sources{trainer.updater(), with.faults, *saves_, *actions_, *phases_, progress,
                                 unrecoverable_reason(world, trainer)});
  repetition_ = std::make_unique<Repetition>(
      context,
      Repetition::Shape{trainer.requests() != nullptr, trainer.rows().active(),
                        trainer.mesh().all() != nullptr, trainer.workers().size()},
      *trainer.workers().front(), progress);
  all_ = {&trainer.lines(), saves_.get(), survivor_.get(), phases_.get(), repetition_.get()};
  if (emulated_ == nullptr) return;
  outages_ = std::make_unique<EmulatedOutages>(context, *actions_);
  all_.push_back(outages_.get());
}

}  // namespace tenon::train
