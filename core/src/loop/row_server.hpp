// A replica's rows where others read and update them on request ([parallel] rows = "request"): one actor per
// worker of every other replica answers its lookups and applies its gradients, at once and in the order of
// arrival. Several threads work on the same tables, this replica's workers among them: a table has a lock,
// held for reading or updating rows and never while waiting.
#pragma once

#include "loop/rank_host.hpp"
#include "loop/replica.hpp"
#include "loop/row_protocol.hpp"
#include "loop/update.hpp"

#include <tenon/row_service.hpp>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace tenon::train {

struct RowServerSpec {
  HostSpec host;  ///< of the rank
  int replica = 0;
  std::vector<int> peers;  ///< world ranks by replica
  int workers = 1;         ///< of each replica
  Transport* transport = nullptr;
  std::uint32_t epoch = 0;
};

/// Hears where other replicas are.
class LookupWatch {
 public:
  virtual ~LookupWatch() = default;
  /// A lookup of `replica` came, in its slot `slot`, whose first sample has this position. Any thread.
  virtual void looks_up(int replica, std::int64_t slot, std::int64_t position) = 0;
};

class RowServer {
 public:
  /// A table that is sharded over the replicas; messages of gradients have tables in this order.
  struct Table {
    int parameter = 0;
    std::string name;
    std::int64_t width = 0;
    DType dtype = DType::kF32;
    std::vector<std::int64_t> offsets;  ///< first row of each replica
    std::size_t row_bytes() const { return dtype_bytes(dtype, width); }
  };

  explicit RowServer(const RowServerSpec& spec);
  ~RowServer();

  const RowServerSpec& spec() const { return spec_; }
  std::span<const Table> tables() const { return tables_; }

  /// While executors are built: equal nodes of several workers get one number, and the first answers.
  int offer(std::string_view node, std::span<const std::string> tables, const RowLookupHandler& handler);
  /// Once weights exist. Throws Error(kConfig) for a sharded table that no node answers for.
  void open(ParameterSet& live, Updater& updater);
  /// Sets where actors log from now on.
  void set_log(RankLog* log) { host_.set_log(log); }
  /// Before start(): who hears of lookups.
  void set_watch(std::shared_ptr<LookupWatch> watch) { watch_ = std::move(watch); }
  /// Serves from here on. The other replicas open their ends (RowClient::open) at the same time.
  void start();
  /// Returns when every client has said goodbye. Rethrows an error that ended an actor.
  void stop();
  /// After stop(): the seconds that the actors waited for requests and for their bytes, which delays no
  /// worker. By the purpose that the transport counts them under.
  LinkCounts waits(Purpose purpose) const;

  /// Answers the request of a node for this replica's rows. Any thread.
  void answer(int node, std::span<const std::byte> request, std::span<std::byte> answer) const;
  /// Applies the optimizer to rows that this replica owns, unique and ascending. Any thread.
  void update(const UpdateContext& context, std::size_t table, const RowGradient& rows);
  /// Rows updated since the last call: table by table of each update, in the order of updates. Views are
  /// valid during the call of `body`.
  void take_accesses(const std::function<void(const RowGradient&)>& body);

 private:
  /// Reads whole rows while others may update them.
  class Guarded;
  struct Node {
    std::string name;
    std::vector<std::string> names;
    const RowLookupHandler* handler = nullptr;
    std::string plugin, component;  ///< of the layer that answers
    std::vector<const RowTable*> tables;
  };
  struct Accesses {
    struct Part {
      int parameter;
      std::size_t rows;
    };
    std::vector<Part> parts;
    std::vector<std::int64_t> ids;
    std::vector<std::uint32_t> counts;
  };
  /// State of one actor.
  struct Session {
    int client = 0, worker = 0;  ///< replica, and worker of it
    std::vector<std::byte> request, reply, gradients;
    RowPair pair;  ///< last: it may still use the above, and goes first
  };

  void serve(Session& session);
  void look_up(Session& session, const RowHeader& header);
  void apply(Session& session, const RowHeader& header);

  RowServerSpec spec_;
  PauseGate gate_;  ///< of the actors alone: pauses of the replica do not stop them, others still ask
  RankHost host_;
  std::vector<Table> tables_;
  std::vector<std::unique_ptr<Guarded>> guarded_;  ///< by table
  std::vector<Node> nodes_;
  Updater* updater_ = nullptr;
  std::shared_ptr<LookupWatch> watch_;  ///< null: none
  std::mutex accesses_mutex_;
  Accesses accesses_, taken_;
  std::deque<Session> sessions_;
  std::vector<std::unique_ptr<Actor>> actors_;
};

}  // namespace tenon::train
