// The mean gradient of all replicas in a dtype of two bytes: half the bytes of f32. Each gradient is divided
// by K in its own dtype and rounded once, so the transferred sum is already the mean and stays in the range
// of f16 if the gradients do; every hop rounds once more (docs/reductions.md).
#pragma once

#include <tenon/ops/elementwise.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/sync.hpp>

#include <memory>
#include <vector>

namespace tenon::sync_basic {

class NarrowMean {
 public:
  NarrowMean() = default;
  NarrowMean(const NarrowMean&) = delete;
  NarrowMean& operator=(const NarrowMean&) = delete;
  ~NarrowMean() {
    group_.reset();  // once it is closed, no peer reads pending buffers
    if (memory_ != nullptr) device_->release(memory_, bytes_);
  }

  /// Allocates memory for all buckets. Gradients of two bytes or less are sent unchanged.
  void start(Replica& replica, DType wire) {
    device_ = &replica.device();
    elementwise_ = &device_->family<Elementwise>();
    if (replica.replicas() == 1) return;
    group_ = replica.open("ddp.narrow", Purpose::kGradient);
    const auto buckets = replica.buckets();
    const auto room = [wire](const Bucket& bucket) {
      TensorView narrow = flat_reals(bucket.gradients);
      if (dtype_bits(narrow.dtype) <= 16) return std::size_t{0};
      narrow.dtype = wire;
      return (static_cast<std::size_t>(narrow.bytes()) + 63) / 64 * 64;
    };
    for (const Bucket& bucket : buckets) bytes_ += room(bucket);
    if (bytes_ > 0) memory_ = device_->allocate(bytes_);
    auto* free = static_cast<std::byte*>(memory_);
    for (const Bucket& bucket : buckets) {
      TensorView narrow = flat_reals(bucket.gradients);
      narrow.dtype = wire;
      narrow.data = room(bucket) > 0 ? free : nullptr;
      free += room(bucket);
      narrow_.push_back(narrow);
    }
    transfers_.reserve(narrow_.size());
  }

  void add(const Bucket& bucket) {
    if (group_ == nullptr) return;
    const TensorView gradients = flat_reals(bucket.gradients);
    const TensorView narrow = narrow_[static_cast<std::size_t>(bucket.index)];
    elementwise_->scale(gradients, 1.0 / group_->size());
    if (narrow.data != nullptr) elementwise_->convert(gradients, narrow);
    const TensorView sent = narrow.data != nullptr ? narrow : gradients;
    transfers_.push_back({group_->start_all_reduce(sent, ReduceOp::kSum), narrow, gradients});
  }
  void finish() {
    struct Forget {  // each request is waited for once, even if a wait throws
      std::vector<Transfer>& transfers;
      ~Forget() { transfers.clear(); }
    } forget{transfers_};
    for (const Transfer& transfer : transfers_) {
      group_->wait(transfer.request);
      if (transfer.narrow.data != nullptr) elementwise_->convert(transfer.narrow, transfer.gradients);
    }
  }

 private:
  struct Transfer {
    Request request;
    TensorView narrow, gradients;
  };

  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::unique_ptr<Communicator> group_;  ///< null with one replica
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<TensorView> narrow_;  ///< by bucket; without data if the gradients themselves are sent
  std::vector<Transfer> transfers_;
};

}  // namespace tenon::sync_basic
