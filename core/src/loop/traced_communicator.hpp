// A communicator that watches its traffic; the transport below does all the work. It counts its thread's
// waits in the rank's time account, apart for late ranks and for bytes; shows them as spans, and the time
// that a started transfer leaves its thread free on the track "overlap"; and lets faults happen.
#pragma once

#include "graph/pass_place.hpp"
#include "loop/faults.hpp"
#include "loop/spans.hpp"
#include "loop/time_account.hpp"

#include <tenon/transport.hpp>

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tenon::train {

/// Each may be null; all outlive the communicator.
struct CommunicatorWatch {
  SpanRecorder* spans = nullptr;
  TimeAccount* account = nullptr;
  Faults* faults = nullptr;
  graph::PassPlaces* passes = nullptr;  ///< where a node's pass may wait in this communicator
};

/// `members` are world ranks; `name` becomes part of the spans' names.
std::unique_ptr<Communicator> traced(std::unique_ptr<Communicator> inner, const CommunicatorWatch& watch,
                                     std::span<const int> members, std::string_view name);

}  // namespace tenon::train
