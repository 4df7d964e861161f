// For authors of transports whose ranks are processes, over rings of frames or over a library: the check for
// unsupported worlds.
#pragma once

#include <tenon/transport.hpp>

#include <string_view>

TENON_ABI_BEGIN

/// Throws Error(kConfig), with `name` in its text, for worlds that a transport of processes cannot serve: a
/// simulated clock, a link model, no deadline, and ranks or a rank unknown to the rendezvous.
void check_process_world(const WorldSpec& world, std::string_view name);

TENON_ABI_END
