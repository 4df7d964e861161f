// State of every trainer where all of them stand still: a wrapper of the strategy under test that observes in
// quiesce. It can also set replicas apart at the start, so that exchanges move something without any
// training.
#pragma once

#include "world.hpp"

namespace tenon::sync_test {

struct Boundary {
  std::int64_t slot = 0;
  Weights live, evaluated, live_buffers, evaluated_buffers;
};
struct Boundaries {
  std::map<int, std::vector<Boundary>> replicas;
  /// Sum of an element over all replicas' weights, and the centre's if there is one.
  Weights total(std::size_t at, bool center) const {
    const Boundary& first = replicas.at(0)[at];
    Weights sum(first.live.size());
    for (std::size_t i = 0; i < sum.size(); ++i) {
      if (center) sum[i] = first.evaluated[i];
      for (const auto& [replica, seen] : replicas) sum[i] += seen[at].live[i];
    }
    return sum;
  }
};
inline std::mutex boundaries_mutex;
inline Boundaries boundaries;

class AtBoundaries final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory(),
                                            option::boolean("apart", "false")};
  static constexpr ComponentInfo kInfo{.id = "at_boundaries",
                                       .summary = "records weights where trainers stand still",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOGWILD | TENON_CAP_COLLECTIVE};
  explicit AtBoundaries(const Options& options)
      : SyncDecorator(options.component<Sync>("inner")), apart_(options.boolean("apart")) {}
  void start(Replica& replica) override {
    if (apart_) {
      for (const ParameterInfo& info : replica.live().parameters()) {
        const TensorView view = replica.live().tensor(info.index);
        for (std::int64_t i = 0; i < view.elements() && view.dtype == DType::kF64; ++i)
          view.as<double>()[i] += 0.1 * (replica.replica() + 1) * static_cast<double>(i % 7);
      }
      replica.live().touch(-1);
    }
    SyncDecorator::start(replica);
    look();
  }
  void quiesce() override {
    SyncDecorator::quiesce();
    look();
  }

 private:
  void look() {
    Boundary seen;
    seen.slot = replica().slot();
    seen.live = trained(replica().live());
    seen.evaluated = trained(evaluation_parameters());
    seen.live_buffers = elements_of(replica().live(), Role::kBuffer);
    seen.evaluated_buffers = elements_of(evaluation_parameters(), Role::kBuffer);
    const std::lock_guard lock(boundaries_mutex);
    boundaries.replicas[replica().replica()].push_back(std::move(seen));
  }
  bool apart_;
};

TENON_STATIC_PLUGIN(looking, PluginInfo{.id = "test.boundaries", .version = "1.0.0", .summary = "looks on"},
                    AtBoundaries)

/// Trains `strategy` within at_boundaries.
inline Outcome train_looking(const std::string& strategy, World world, bool apart = false,
                             const std::string& folder = {}, bool resume = false) {
  boundaries.replicas.clear();
  world.watched = false;
  return train("{type = 'at_boundaries', apart = " + std::string(apart ? "true" : "false") +
                   ", inner = " + strategy + "}",
               world, folder, resume, &looking);
}

inline const std::vector<std::string> kSimulated = {"transport.clock.type=simulated",
                                                    "transport.clock.compute_seconds=0.01",
                                                    "transport.link.latency=1e-4", "run.eval_every=10"};
inline std::vector<std::string> simulated(std::vector<std::string> more = {}) {
  more.insert(more.begin(), kSimulated.begin(), kSimulated.end());
  return more;
}

}  // namespace tenon::sync_test
