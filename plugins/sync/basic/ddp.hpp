// Sync `ddp` (contract sync/1): distributed data parallel. Every update uses the mean gradient of all
// replicas; each bucket is summed while backward still computes the next one. It keeps no state and sends 2
// (K-1)/K S bytes per replica and step for S bytes of gradients (ring all-reduce).
#pragma once

#include <tenon/gradient_mean.hpp>
#include <tenon/plugin.hpp>

namespace tenon::sync_basic {

class Ddp final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "ddp",
                                       .summary = "all-reduce of gradients, overlapped with backward",
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Ddp(const Options&) {}

  void start(Replica& replica) override {
    SyncBase::start(replica);
    mean_.start(replica);
  }
  GradientGroup gradient_group() const override { return GradientGroup::kAllReplicas; }
  void on_gradients_ready(const Bucket& bucket) override { mean_.add(bucket); }
  void finish_gradients() override { mean_.finish(); }
  void on_membership(const Membership&) override { mean_.join(replica()); }

 private:
  GradientMean mean_;
};

}  // namespace tenon::sync_basic
