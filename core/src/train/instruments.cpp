#include "train/instruments.hpp"

#include <vector>

namespace tenon::train {
namespace {

HostSpec host_spec(World& world, int rank, int replica) {
  HostSpec spec;
  spec.rank = rank;
  spec.world_size = static_cast<int>(world.settings.parallel.world());
  spec.replica = replica;
  spec.deadline_s = world.settings.run.deadline;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  return spec;
}

FaultSpec fault_spec(World& world, int rank) {
  static const std::vector<config::FaultSettings> kNone;  // of an attempt that is continued
  FaultSpec spec;
  const bool continued = world.request.resume && world.place.generation == 0;
  spec.faults = continued ? &kNone : &world.settings.faults;
  spec.first_slot = world.start.faults_from;
  spec.rank = rank;
  spec.clock = world.clock.get();
  spec.control = world.links.control.get();
  spec.deadline_s = world.settings.run.deadline;
  spec.own_process = world.links.transport && world.links.transport->local_ranks().size() == 1 &&
                     world.settings.parallel.world() > 1;
  return spec;
}

}  // namespace

Instruments::Instruments(World& world, int rank, int replica)
    : gate(*world.clock, world.settings.run.deadline),
      host(host_spec(world, rank, replica), gate),
      watched(*world.pass_watch, host),
      spans(*world.clock),
      account(*world.clock),
      faults(fault_spec(world, rank)),
      watch{&spans, &account, &faults},
      layer_watch{&spans, &account, &faults, &watched.places()} {}

void Instruments::open_log(const std::string& folder) {
  log = std::make_unique<RankLog>(folder, host.rank(), log_level_from_environment());
  host.set_log(log.get());
}

}  // namespace tenon::train
