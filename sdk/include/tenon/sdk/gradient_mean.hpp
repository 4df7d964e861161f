// For authors of strategies: the mean gradient of all replicas, each bucket summed while backward still
// computes the next one. Sends 2 (K-1)/K S bytes per replica and slot for S bytes of gradients (ring
// all-reduce), keeps no state.
#pragma once

#include <tenon/ops/elementwise.hpp>
#include <tenon/sync.hpp>

#include <vector>

TENON_ABI_BEGIN

class GradientMean {
 public:
  /// Allocates room for all buckets; steady slots allocate nothing.
  void start(Replica& replica) {
    elementwise_ = &replica.device().family<Elementwise>();
    transfers_.reserve(replica.buckets().size());
    group_ = replica.group(Purpose::kGradient);
  }
  void add(const Bucket& bucket) {
    if (group_ == nullptr || group_->size() == 1) return;
    transfers_.push_back({group_->start_all_reduce(bucket.gradients, ReduceOp::kSum), bucket.gradients});
  }
  /// Waits for every bucket, then g = (g_0 + ... + g_{K-1}) * (1/K): the sum in the transport's fixed order,
  /// one rounding for the factor (none when K is a power of two).
  void finish() {
    if (transfers_.empty()) return;
    // A request is waited for once, even if a wait throws and the core later continues without a lost rank.
    struct Forget {
      std::vector<Transfer>& transfers;
      ~Forget() { transfers.clear(); }
    } forget{transfers_};
    const double factor = 1.0 / group_->size();
    for (const Transfer& transfer : transfers_) {
      group_->wait(transfer.request);
      elementwise_->scale(transfer.gradients, factor);  // while later buckets are still on their way
    }
  }

 private:
  struct Transfer {
    Request request;
    TensorView gradients;
  };

  Communicator* group_ = nullptr;  ///< null with one replica
  Elementwise* elementwise_ = nullptr;
  std::vector<Transfer> transfers_;  ///< started in this slot
};

TENON_ABI_END
