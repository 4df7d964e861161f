// The part of a strategy that runs on ranks with the role `server` ([parallel] servers): central copies that
// every trainer reaches, e.g. the centre of elastic averaging. A server has no model, data or optimizer,
// saves nothing and takes no part in slots and votes: what must survive a run, trainers fetch and save.
#pragma once

#include <tenon/host.hpp>
#include <tenon/transport.hpp>

#include <memory>
#include <string_view>

TENON_ABI_BEGIN

/// A server rank as a strategy sees it; for the length of SyncServer::serve.
class ServerNode {
 public:
  virtual ~ServerNode();
  virtual int server() const = 0;   ///< 0 ... servers() - 1
  virtual int servers() const = 0;  ///< of the run
  /// World ranks 0 ... trainers() - 1 hold a part of a replica each: rank t holds part t % parts() of replica
  /// t / parts().
  virtual int trainers() const = 0;
  virtual int parts() const = 0;
  /// Of this rank: actors run beside serve(), one per trainer where several are served at once.
  virtual Host& host() = 0;
  /// This server's end of what trainer `trainer` opened by Replica::open_to_server under the same name and
  /// purpose; members: trainer, server. A wait for a message of a trainer that is silent ends after a day, or
  /// when the run fails.
  virtual std::unique_ptr<Communicator> open(int trainer, std::string_view name, Purpose purpose) = 0;
};

/// Offered by Sync::query(SyncServer::kId). The component is made on server ranks as on others, but there it
/// gets no call except these.
class SyncServer {
 public:
  static constexpr const char* kId = "tenon.sync.server/1";
  virtual ~SyncServer();
  /// Why this strategy, as it is configured, places nothing on servers; "" if it does.
  virtual std::string_view declines() const = 0;
  /// Serves until every trainer has said that it will ask no more; how, is between the two parts of the
  /// strategy. Trainers come here while they are built (Sync::start), also in a run that is only checked.
  virtual void serve(ServerNode& node) = 0;
};

TENON_ABI_END
