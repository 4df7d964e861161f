#include "loop/instruments.hpp"

namespace tenon::train {

Instruments::Instruments(const HostSpec& spec, const FaultSpec& disturbed, PassWatch& passes)
    : gate(*spec.clock, spec.deadline_s),
      host(spec, gate),
      watched(passes, host),
      spans(*spec.clock),
      account(*spec.clock),
      faults(disturbed),
      watch{&spans, &account, &faults},
      layer_watch{&spans, &account, &faults, &watched.places()} {}

void Instruments::open_log(const std::string& folder) {
  log = std::make_unique<RankLog>(folder, host.rank(), log_level_from_environment());
  host.set_log(log.get());
}

}  // namespace tenon::train
