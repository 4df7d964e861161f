// Small interfaces of strategies beside `sync/1`, reached through Sync::query: bucket sizes, means over the
// replicas of gradients and of pseudo-gradients (differences from an anchor), and server ranks.
#pragma once

#include <tenon/host.hpp>
#include <tenon/sync.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <string_view>

TENON_ABI_BEGIN

/// A strategy that sets the size of buckets ("tenon.sync.buckets/1"). Asked before `start`, when the
/// gradients are split; without it the first closes at 1 MiB and the others at 25 MiB.
class BucketSizes {
 public:
  static constexpr const char* kId = "tenon.sync.buckets/1";
  virtual ~BucketSizes();
  /// A bucket ends after the parameter with which it reaches this many bytes; 0 = one parameter each.
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
/// strategy and table, if a row table is copied to every replica, since nothing would make the copies equal
/// again.
void refuse_copied_tables(Replica& replica, std::string_view strategy);

/// Computes means over the replicas in another way than an all-reduce of the data, e.g. compressed. State
/// that it keeps between two means of a part (error feedback) is in units of the mean loss.
class MeanReducer {
 public:
  virtual ~MeanReducer();
  /// Names all parts, and how their bytes are counted; no memory is allocated later. Called once, in
  /// Sync::start.
  virtual void prepare(Replica& replica, Purpose purpose, std::span<const MeanPart> parts) = 0;
  /// Begins with a part; does not wait. scale: factor from its data to units of the mean loss
  /// (Replica::gradient_scale() for gradients, 1 for differences of weights). All replicas in the same order.
  virtual void add(std::size_t part, double scale) = 0;
  /// On return the parts that were added hold their mean, the same bits on every replica.
  virtual void finish() = 0;
};

/// A strategy whose replicas exchange means of gradients, or of differences of weights, and let a reducer
/// compute them ("tenon.sync.means/1"). Means of other data (weights, statistics) it computes itself.
class MeanUser {
 public:
  static constexpr const char* kId = "tenon.sync.means/1";
  virtual ~MeanUser();
  /// Called before `start`; the reducer outlives the strategy's use of it.
  virtual void take_means_by(MeanReducer& reducer) = 0;
};

/// A server rank as a strategy sees it; for the length of SyncServer::serve.
class ServerNode {
 public:
  virtual ~ServerNode();
  virtual int server() const = 0;   ///< 0 ... servers() - 1
  virtual int servers() const = 0;  ///< of the run
  /// World ranks 0 ... trainers() - 1 hold one part of a replica each: rank t holds part t % parts() of
  /// replica t / parts().
  virtual int trainers() const = 0;
  virtual int parts() const = 0;
  /// Host of this rank: actors run beside serve(), one per trainer where several are served at once.
  virtual Host& host() = 0;
  /// Opens this server's end of the communicator that trainer `trainer` opens by Replica::open_to_server
  /// under the same name and purpose; members: trainer, server. A wait for a message of a trainer that is
  /// silent ends after a day, or when the run fails.
  virtual std::unique_ptr<Communicator> open(int trainer, std::string_view name, Purpose purpose) = 0;
};

/// Offered by Sync::query(SyncServer::kId). The component is made on server ranks as on others, but there it
/// gets no call except these.
class SyncServer {
 public:
  static constexpr const char* kId = "tenon.sync.server/1";
  virtual ~SyncServer();
  /// Returns why this strategy, as configured, places nothing on servers; "" if it does.
  virtual std::string_view declines() const = 0;
  /// Serves until every trainer has said that it sends no more requests, in the strategy's own protocol.
  /// Trainers connect while they are built (Sync::start), also in a run that is only checked.
  virtual void serve(ServerNode& node) = 0;
};

TENON_ABI_END
