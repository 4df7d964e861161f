// Sync `diloco` (Douillard et al. 2023): replicas train alone for a round; then one all-reduce of the way
// back to the anchor, g = mean(anchor - x), a step of an outer optimizer on the anchor, and all go on from
// there.
#pragma once

#include "outer.hpp"
#include "rounds.hpp"

#include <tenon/plugin.hpp>

namespace tenon::sync_local {

/// What DiLoCo and PALSGD do when replicas meet.
class Anchored : public Centered {
 public:
  Anchored(const char* name, const Options& options) : Centered(name, "anchor", options), outer_(options) {}
  void start(Replica& replica) override;
  void state(StateVisitor& visitor) override {
    Centered::state(visitor);
    outer_.state(visitor);
  }

 protected:
  void meet() override;

 private:
  Outer outer_;
};

class Diloco final : public Anchored {
 public:
  static constexpr OptionSpec kOptions[] = {interval_option("100", "slots of a round; the paper: 500"),
                                            kWarmup,
                                            kDrift,
                                            kOuter,
                                            kOuterLr,
                                            kOuterMomentum,
                                            kOuterBetas,
                                            kOuterEps};
  static constexpr ComponentInfo kInfo{.id = "diloco",
                                       .summary = "rounds of local updates, an outer optimizer on their mean",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Diloco(const Options& options) : Anchored("diloco", options) {}
};

}  // namespace tenon::sync_local
