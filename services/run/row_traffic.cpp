#include "run/row_traffic.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

std::unique_ptr<RowTraffic> RowTraffic::make(World& world, RankHost& host, int replica) {
  const config::ParallelSettings& parallel = world.settings.parallel;
  if (!parallel.rows_on_request || parallel.ranks == 1) return nullptr;
  if (parallel.ranks_per_replica() > 1) {
    fail_config(
        "parallel.rows = \"request\": ranks of one mesh would see updates of rows in different orders; "
        "leave parallel.grid empty, or set parallel.rows = \"step\"");
  }
  return std::unique_ptr<RowTraffic>(new RowTraffic(world, host, replica));
}

RowTraffic::RowTraffic(World& world, RankHost& host, int replica) {
  const config::ParallelSettings& parallel = world.settings.parallel;
  RowServerSpec spec;
  spec.host = host.spec();
  spec.host.log = nullptr;  // there is none yet
  spec.replica = replica;
  spec.epoch = world.start.epoch;
  for (int r = 0; r < parallel.ranks; ++r) spec.peers.push_back(r);
  spec.workers = static_cast<int>(parallel.workers);
  spec.transport = world.links.transport.get();
  server_ = std::make_unique<RowServer>(spec);
  for (int w = 0; w < spec.workers; ++w) {
    clients_.push_back(std::make_unique<RowClient>(*server_, w));
    hosts_.push_back(std::make_unique<WorkerHost>(host, clients_.back().get()));
  }
}

void RowTraffic::open(RankReplica& weights, Updater& updater, Parts& parts, bool sharded, bool shared) {
  if (!sharded) {
    fail_config(
        "parallel.rows = \"request\": the model has no row table that is sharded over the replicas (for "
        "embedding_bag: placement = \"rows\" or \"tables\"); leave parallel.rows out");
  }
  if (shared) {
    fail_config(fmt::format(
        "parallel.rows = \"request\" is for replicas that update alone, but sync strategy '{}' makes all of "
        "them apply one gradient in each slot; set parallel.rows = \"step\"",
        parts.sync.id()));
  }
  if (!parts.optimizer.declares(TENON_CAP_HOGWILD)) {
    fail_config(fmt::format(
        "parallel.rows = \"request\" needs an optimizer that tolerates concurrent writers, since several "
        "replicas update one table; '{}' does not declare 'hogwild'",
        parts.optimizer.id()));
  }
  server_->open(weights.live(), updater);
}

void RowTraffic::start(RankReplica& weights, const CommunicatorWatch& watch) {
  still_ = weights.open("rows.still", Purpose::kControl);
  server_->start();
  for (const auto& client : clients_) client->open(watch);
  still_->barrier();
}

void RowTraffic::settle() {
  for (const auto& client : clients_) client->flush();
  still_->barrier();
}

void RowTraffic::end() {
  for (const auto& client : clients_) client->bye();
  server_->stop();
}

void RowTraffic::close() {
  still_.reset();
  clients_.clear();
  server_.reset();
}

}  // namespace tenon::train
