// For authors of transports whose ranks are processes, over rings of frames or over a library: which worlds
// they refuse.
#pragma once

#include <tenon/transport.hpp>

#include <string_view>

TENON_ABI_BEGIN

/// Refuses, with Error(kConfig) in the words of `name`, worlds that a transport of processes cannot serve: a
/// simulated clock, a link model, no deadline, and ranks or a rank that the rendezvous does not know.
void check_process_world(const WorldSpec& world, std::string_view name);

TENON_ABI_END
