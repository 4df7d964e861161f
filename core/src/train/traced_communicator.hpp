// A communicator that times what goes through it: the thread's time inside calls on the track
// "communication", and the time that a started transfer leaves its thread free on the track "overlap". The
// transport below does all the work.
#pragma once

#include "train/spans.hpp"

#include <tenon/transport.hpp>

#include <memory>
#include <string>
#include <vector>

namespace tenon::train {

/// Returns `inner` itself while nobody wants spans. `name` becomes part of the spans' names.
std::unique_ptr<Communicator> traced(std::unique_ptr<Communicator> inner, SpanRecorder* recorder,
                                     std::string_view name);

}  // namespace tenon::train
