// One rank's part in row requests between replicas ([parallel] rows = "request"): checks that the run allows
// them, starts and ends them, and stops them at slot boundaries. The protocol is in row_server.hpp.
#pragma once

#include "loop/parts.hpp"
#include "loop/rank_host.hpp"
#include "loop/replica.hpp"
#include "loop/row_client.hpp"
#include "loop/row_server.hpp"
#include "loop/update.hpp"
#include "run/world.hpp"

#include <memory>
#include <vector>

namespace tenon::train {

class RowTraffic {
 public:
  /// Null unless the run asks for it. Throws Error(kConfig) for ranks of a mesh.
  static std::unique_ptr<RowTraffic> make(World& world, RankHost& host, int replica);

  /// The host and the client of one worker. Both outlive its executor.
  Host& host(std::size_t worker) { return *hosts_[worker]; }
  RowClient& client(std::size_t worker) { return *clients_[worker]; }
  RowServer& server() { return *server_; }

  /// Once weights exist: refuses what rows on request cannot serve. `sharded`: some table is sharded over the
  /// replicas; `shared`: replicas hold equal weights.
  void open(RankReplica& weights, Updater& updater, Parts& parts, bool sharded, bool shared);
  /// All begin together, so that a resumed run and one that went on over this boundary see the same of each
  /// other.
  void start(RankReplica& weights, const CommunicatorWatch& watch);
  /// After this no request is under way and none is made: all workers of all replicas stand still.
  void settle();
  /// Collective, before workers go on: until every replica has evaluated and saved, no row may change.
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
