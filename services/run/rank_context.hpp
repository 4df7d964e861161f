// Objects that the services of a rank share.
#pragma once

#include "clock/emulated_failures.hpp"
#include "loop/parts.hpp"
#include "loop/rank_host.hpp"
#include "loop/replica.hpp"
#include "record/metric_lines.hpp"
#include "run/rank_state.hpp"
#include "run/world.hpp"

#include <cstdint>

namespace tenon::train {

/// Outlives the services.
struct RankContext {
  World& world;
  int index = 0;            ///< of the rank
  std::uint32_t epoch = 0;  ///< World::epoch when it was built
  RankHost& host;
  Parts& parts;
  RankReplica& weights;
  RankState& state;
  Counters& counters;
  MetricLines& lines;
  EmulatedFailures* emulated = nullptr;  ///< null without [emulate]

  WallTimeBreakdown* wall_time() const { return world.wall_time(index); }
};

}  // namespace tenon::train
