// Rows that the replicas of a run ask each other for ([parallel] rows = "request"), as one rank takes part
// (row_server.hpp): who may, from when to when, and the moments at which nobody does.
#pragma once

#include "train/parts.hpp"
#include "train/rank_host.hpp"
#include "train/replica.hpp"
#include "train/row_client.hpp"
#include "train/row_server.hpp"
#include "train/update.hpp"
#include "train/world.hpp"

#include <functional>
#include <memory>
#include <vector>

namespace tenon::train {

class RowTraffic {
 public:
  /// Null unless the run asks for it. Throws Error(kConfig) for ranks of a model grid.
  static std::unique_ptr<RowTraffic> make(World& world, RankHost& host, int replica);

  /// What the executor of `worker` asks with; both outlive it.
  Host& host(std::size_t worker) { return *hosts_[worker]; }
  RowClient& client(std::size_t worker) { return *clients_[worker]; }
  RowServer& server() { return *server_; }

  /// Once weights exist: refuses what rows on request cannot serve. `cut`: some table is sharded over the
  /// replicas; `shared`: replicas hold equal weights.
  void open(RankReplica& weights, Updater& updater, Parts& parts, bool cut, bool shared);
  /// All begin together, so that a resumed run and one that went on over this boundary see the same of each
  /// other.
  void start(RankReplica& weights, const CommunicatorWatch& watch);
  /// After this no request is under way and none is made: all workers of all replicas stand still.
  void settle();
  /// Before workers go on: nobody updates rows that others still evaluate or save.
  void wait_for_all() { still_->barrier(); }
  /// After the last boundary no more requests come, so every goodbye is under way.
  void end();
  /// Before the executors end, whose layers answer. The hosts stay.
  void close();

 private:
  RowTraffic(World& world, RankHost& host, int replica);

  std::vector<std::unique_ptr<WorkerHost>> hosts_;  ///< of layers, by worker
  std::unique_ptr<RowServer> server_;
  std::vector<std::unique_ptr<RowClient>> clients_;  ///< by worker
  std::unique_ptr<Communicator> still_;              ///< all replicas, at boundaries
};

}  // namespace tenon::train
