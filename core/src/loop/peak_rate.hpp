// The largest rate of a schedule over a run, asked for in bounded time: a run may be planned for 2^63 - 1
// slots and end after a few, by a budget.
#pragma once

#include <tenon/optimizer.hpp>

#include <cstdint>

namespace tenon::train {

/// Largest rate of slots 0 ... steps - 1. Up to 2^20 slots every one is asked. Beyond, 2^16 slots at equal
/// distances, then as many between the neighbours of the largest of them, down to single slots: exact for
/// rates that rise to one peak and then fall or stay, as those of warm-up and decay; of others at least the
/// largest that was asked for.
double peak_rate(const Schedule& schedule, std::int64_t steps, double base_lr);

}  // namespace tenon::train
