// Sync `ddp` (contract sync/1): distributed data parallel. Every update uses the mean gradient of all
// replicas; each bucket is summed while backward still computes the next one. It keeps no state and sends 2
// (K-1)/K S bytes per replica and step for S bytes of gradients (ring all-reduce).
#pragma once

#include <tenon/operators.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sync.hpp>

#include <vector>

namespace tenon::sync_basic {

class Ddp final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "ddp",
                                       .summary = "all-reduce of gradients, overlapped with backward",
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
  explicit Ddp(const Options&) {}

  void start(Replica& replica) override;
  GradientGroup gradient_group() const override { return GradientGroup::kAllReplicas; }
  void on_gradients_ready(const Bucket& bucket) override;
  /// Waits for every bucket, then g = (g_0 + ... + g_{K-1}) * (1/K): the sum in the transport's fixed order,
  /// one rounding for the factor (none when K is a power of two).
  void finish_gradients() override;
  void on_membership(const Membership& membership) override;

 private:
  struct Transfer {
    Request request;
    TensorView gradients;
  };

  Communicator* group_ = nullptr;  // null with one replica
  Elementwise* elementwise_ = nullptr;
  std::vector<Transfer> transfers_;  // started in this slot; room for all buckets is reserved
};

}  // namespace tenon::sync_basic
