// Sync `ddp` (contract sync/1): distributed data parallel. Every update uses the mean gradient of all
// replicas; each bucket is summed while backward still computes the next one. It keeps no state and sends 2
// (K-1)/K S bytes per replica and step for S bytes of gradients (ring all-reduce).
#pragma once

#include "narrow_mean.hpp"

#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/gradient_mean.hpp>
#include <tenon/sync_extra.hpp>

#include <algorithm>
#include <optional>
#include <vector>

namespace tenon::sync_basic {

class Ddp final : public SyncBase, private BucketSizes, private MeanUser {
 public:
  static constexpr auto kWires = option::choice<std::optional<DType>>(
      {{"gradient", std::nullopt}, {"bf16", DType::kBF16}, {"f16", DType::kF16}});
  static constexpr const char* kWeights[] = {"replica", "count", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::text("communication", "\"gradient\"")
          .one_of(kWires)
          .doc_text("dtype in which gradients travel and are summed: their own, or one of two bytes"),
      option::real("bucket_mb", "25")
          .between(0, 1e6)
          .in_unit("MiB")
          .doc_text("size at which a bucket is closed, the first already at 1; 0: one bucket per parameter"),
      option::text("weigh_by", "\"replica\"")
          .one_of(kWeights)
          .doc_text("what replicas weigh in the mean: the same, or by the targets that each counted"),
  };
  static constexpr ComponentInfo kInfo{.id = "ddp",
                                       .summary = "all-reduce of gradients, overlapped with backward",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_DETERMINISTIC | TENON_CAP_COLLECTIVE};
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
          "sync ddp: communication: gradients that are compressed around it do not travel in a dtype of its "
          "choice; leave out communication, or the compression");
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
