// Sends a worker's lookups and gradients to the owners of rows ([parallel] rows = "request"): one request per
// owner and forward, one message of gradients per owner and slot. Rows of the own replica take no message.
#pragma once

#include "loop/row_server.hpp"
#include "loop/traced_communicator.hpp"

#include <vector>

namespace tenon::train {

/// One thread at a time.
class RowClient final : public RowService {
 public:
  RowClient(RowServer& server, int worker) : server_(server), worker_(worker) {}

  int offer(std::string_view node, std::span<const std::string> tables,
            const RowLookupHandler& handler) override {
    return server_.offer(node, tables, handler);
  }
  void ask(int node, std::span<const RowAsk> asks) override;

  /// The worker's lookups are of this slot from here on, whose first sample has this position.
  void begin_slot(std::int64_t slot, std::int64_t position) { place_ = {slot, position}; }
  /// Opens this worker's ends.
  void open(const CommunicatorWatch& watch);
  /// Sends rows (unique and ascending, of any owner) on their way and applies the own ones; owners apply them
  /// with this context. Does not wait for them. The rows may change on return.
  void update(const UpdateContext& context, std::span<const RowGradient> rows);
  /// Returns when every owner has applied what was sent.
  void flush();
  /// The last call: asks no more.
  void bye();

 private:
  struct Owner {
    RowHeader lookup, update, flush;
    std::vector<std::byte> gradients;
    Request sent[2];
    bool sending = false;  ///< gradients
    Request asked[3];
    RowPair pair;  ///< last: it may still read the above, and goes first
  };
  /// fn(owner, state) for every other replica, the next one first, so that not all begin with the same.
  template <typename Fn>
  void each_owner(Fn&& fn);
  void pack(const UpdateContext& context, std::span<const RowGradient> rows, int owner, Owner& to);
  static void finish_sending(Owner& owner);

  RowServer& server_;
  int worker_;
  RowHeader::Place place_ = {-1, 0};
  std::vector<Owner> owners_;  ///< by replica
};

/// The host of one worker's layers.
class WorkerHost final : public Host {
 public:
  WorkerHost(Host& host, RowService* rows) : host_(host), rows_(rows) {}
  void log(LogLevel level, std::string_view message) override { host_.log(level, message); }
  int rank() const override { return host_.rank(); }
  int world_size() const override { return host_.world_size(); }
  double now() const override { return host_.now(); }
  std::unique_ptr<Actor> spawn(std::string_view name, std::function<void(Actor&)> loop) override {
    return host_.spawn(name, std::move(loop));
  }
  double deadline() const override { return host_.deadline(); }
  void* query(std::string_view interface_id) override {
    return interface_id == RowService::kId ? rows_ : host_.query(interface_id);
  }

 private:
  Host& host_;
  RowService* rows_;
};

}  // namespace tenon::train
