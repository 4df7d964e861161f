// Small interfaces of strategies beside `sync/1`, reached through Sync::query: where gradients are cut into
// buckets, and who takes the mean over the replicas of gradients and of ways back to an anchor.
#pragma once

#include <tenon/sync.hpp>

TENON_ABI_BEGIN

/// A strategy that says how large buckets are ("tenon.sync.buckets/1"). Asked before `start`, when the
/// gradients are cut; without it the first closes at 1 MiB and the others at 25 MiB.
class BucketSizes {
 public:
  static constexpr const char* kId = "tenon.sync.buckets/1";
  virtual ~BucketSizes();
  /// A bucket is closed behind the parameter with which it reaches this many bytes; 0 = one parameter each.
  virtual std::int64_t first_bucket_bytes() const = 0;
  virtual std::int64_t bucket_bytes() const = 0;
};

/// Elements [begin, begin + data.elements()) of arena `arena` (of gradients, or of live): whole parameters
/// and the padding between them.
struct MeanPart {
  int arena = 0;
  std::int64_t begin = 0;
  TensorView data;  ///< where the mean is wanted, in place
};

/// For strategies whose replicas update their weights alone: throws Error(kConfig), with the names of
/// strategy and table, if a row table is copied to every replica, since nothing would bring the copies
/// together again.
void refuse_copied_tables(Replica& replica, std::string_view strategy);

/// Takes means over the replicas in another way than an all-reduce of the data, e.g. compressed. What it
/// keeps between two means of a part (error feedback) it keeps in units of the mean loss.
class MeanReducer {
 public:
  virtual ~MeanReducer();
  /// Names all parts that will ever come, and how their bytes are counted; no memory is taken after it.
  /// Called once, in Sync::start.
  virtual void prepare(Replica& replica, Purpose purpose, std::span<const MeanPart> parts) = 0;
  /// Begins with a part; does not wait. scale: factor from its data to units of the mean loss
  /// (Replica::gradient_scale() for gradients, 1 for differences of weights). All replicas in the same order.
  virtual void add(std::size_t part, double scale) = 0;
  /// On return the parts that were added hold their mean, the same bits on every replica.
  virtual void finish() = 0;
};

/// A strategy whose replicas exchange means of gradients, or of differences of weights, and let another take
/// them ("tenon.sync.means/1"). What is no such thing (weights, statistics) it keeps to itself.
class MeanUser {
 public:
  static constexpr const char* kId = "tenon.sync.means/1";
  virtual ~MeanUser();
  /// Before `start`; the reducer outlives the strategy's use of it.
  virtual void take_means_by(MeanReducer& reducer) = 0;
};

TENON_ABI_END
