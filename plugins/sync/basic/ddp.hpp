// Syncs `none` and `ddp` (contract sync/1): replicas that never communicate, and distributed data parallel.
#pragma once

#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_mean.hpp>
#include <tenon/sync.hpp>
#include <tenon/sync_extra.hpp>

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

namespace tenon::sync_basic {

/// Sync `none` (contract sync/1): replicas never communicate. One replica trains plainly; several train
/// independently from equal initial weights on different samples, the lower bound for every strategy that
/// saves communication.
class None final : public SyncBase, private IdentitiesOf<None> {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "none", .summary = "replicas never communicate", .capabilities = TENON_CAP_HOGWILD};
  static constexpr Identity kIdentities[] = {
      {.why = "replicas whose first round comes after the end never communicate",
       .options = "",
       .other = "type = 'local_sgd'\ninterval = 1000000000"},
  };
  explicit None(const Options&) {}
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : SyncBase::query(id);
  }
};

/// The mean gradient of all replicas in a dtype of two bytes: half the bytes of f32. Each gradient is divided
/// by K in its own dtype and rounded once, so the transferred sum is already the mean and stays in the range
/// of f16 if the gradients do; every hop rounds once more (docs/reductions.md).
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
    const TensorView narrow = narrow_[bucket.index];
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

/// Sync `ddp` (contract sync/1): distributed data parallel. Every update uses the mean gradient of all
/// replicas; each bucket is summed while backward still computes the next one. It keeps no state and sends 2
/// (K-1)/K S bytes per replica and step for S bytes of gradients (ring all-reduce).
class Ddp final : public SyncBase, private BucketSizes, private MeanUser, private IdentitiesOf<Ddp> {
 public:
  static constexpr auto kWires = option::choice<std::optional<DType>>(
      {{"gradient", std::nullopt}, {"bf16", DType::kBF16}, {"f16", DType::kF16}});
  static constexpr const char* kWeights[] = {"replica", "count", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::text("communication", "\"gradient\"")
          .one_of(kWires)
          .doc_text("dtype in which gradients are sent and summed: their own, or a 2-byte one"),
      option::real("bucket_mb", "25")
          .between(0, 1e6)
          .in_unit("MiB")
          .doc_text("size at which a bucket is closed, the first already at 1; 0: one bucket per parameter"),
      option::text("weigh_by", "\"replica\"")
          .one_of(kWeights)
          .doc_text(
              "weights of the replicas in the mean: equal, or by the number of targets that each counted"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "ddp", .summary = "all-reduce of gradients, overlapped with backward", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "one replica has nobody to communicate with",
       .options = "",
       .other = "type = 'none'",
       .given = "parallel.ranks = 1"},
      {.why = "sums of two gradients do not depend on their bucket",
       .options = "bucket_mb = 0.0",
       .other = "type = 'ddp'",
       .given = "parallel.ranks = 2"},
  };
  explicit Ddp(const Options& options)
      : bucket_bytes_(static_cast<std::int64_t>(options.real("bucket_mb") * 1024 * 1024)),
        wire_(options.choice("communication", kWires)),
        by_count_(options.text("weigh_by") == "count") {}

  void start(Replica& replica) override {
    SyncBase::start(replica);
    if (by_count_) elementwise_ = &replica.device().family<Elementwise>();
    if (reducer_ == nullptr) {
      if (wire_)
        narrow_mean_.start(replica, *wire_);
      else
        mean_.start(replica);
      return;
    }
    if (wire_) {
      fail_config(
          "sync ddp: communication does not apply to gradients that a strategy around it compresses; leave "
          "out communication, or the compression");
    }
    std::vector<MeanPart> parts;
    for (const Bucket& bucket : replica.buckets())
      parts.push_back({bucket.arena, bucket.begin, bucket.gradients});
    reducer_->prepare(replica, Purpose::kGradient, parts);
  }
  GradientGroup gradient_group() const override { return GradientGroup::kAllReplicas; }
  void on_gradients_ready(const Bucket& bucket) override {
    if (by_count_) weigh(bucket);
    if (reducer_ != nullptr)
      reducer_->add(static_cast<std::size_t>(bucket.index), replica().gradient_scale());
    else if (wire_)
      narrow_mean_.add(bucket);
    else
      mean_.add(bucket);
  }
  void finish_gradients() override {
    if (reducer_ != nullptr)
      reducer_->finish();
    else if (wire_)
      narrow_mean_.finish();
    else
      mean_.finish();
  }
  void* query(std::string_view id) override {
    if (id == BucketSizes::kId) return static_cast<BucketSizes*>(this);
    if (id == ComponentIdentities::kId) return static_cast<ComponentIdentities*>(this);
    return id == MeanUser::kId ? static_cast<MeanUser*>(this) : SyncBase::query(id);
  }

 private:
  std::int64_t first_bucket_bytes() const override {
    return std::min<std::int64_t>(std::int64_t{1} << 20, bucket_bytes_);
  }
  std::int64_t bucket_bytes() const override { return bucket_bytes_; }
  void take_means_by(MeanReducer& reducer) override { reducer_ = &reducer; }

  /// g *= n K / N, so that the mean over K replicas is that over all N targets. The replicas exchange their n
  /// before the first bucket is sent; equal n leave the bits unchanged.
  void weigh(const Bucket& bucket) {
    if (bucket.index == 0) {
      weight_ = 1;
      Communicator* group = replica().group(Purpose::kStatistics);
      if (group == nullptr || group->size() == 1) return;
      double total = replica().gradient_count();
      TensorView view;
      view.data = &total;
      view.dtype = DType::kF64;
      view.shape = Shape{1};
      group->all_reduce(view, ReduceOp::kSum);
      weight_ = total > 0 ? replica().gradient_count() * group->size() / total : 1;
    }
    if (weight_ != 1) elementwise_->scale(flat_reals(bucket.gradients), weight_);
  }

  std::int64_t bucket_bytes_;
  std::optional<DType> wire_;  ///< dtype of gradients in transfer; absent: their own
  bool by_count_;
  double weight_ = 1;  ///< of this replica in this slot
  Elementwise* elementwise_ = nullptr;
  GradientMean mean_;
  NarrowMean narrow_mean_;
  MeanReducer* reducer_ = nullptr;
};

}  // namespace tenon::sync_basic
