// What a rank does for rows that replicas ask each other for (row_server.hpp): who may, from when to when,
// and the moments at which nobody does.
#include "train/rank.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {

bool Rank::asks_for_rows() const {
  return world_.settings.parallel.rows_on_request && world_.settings.parallel.ranks > 1;
}

void Rank::make_row_clients() {
  const config::ParallelSettings& parallel = world_.settings.parallel;
  if (parallel.ranks_per_replica() > 1) {
    fail_config(
        "parallel.rows = \"request\": ranks of one model grid would see updates of rows in different orders; "
        "leave parallel.grid empty, or set parallel.rows = \"step\"");
  }
  RowServerSpec spec;
  spec.host = host_.spec();
  spec.host.log = nullptr;  // there is none yet
  spec.replica = replica_;
  spec.epoch = epoch_;
  for (int r = 0; r < parallel.ranks; ++r) spec.peers.push_back(r);
  spec.workers = static_cast<int>(parallel.workers);
  spec.transport = world_.transport.get();
  row_server_ = std::make_unique<RowServer>(spec);
  for (int w = 0; w < spec.workers; ++w) {
    row_clients_.push_back(std::make_unique<RowClient>(*row_server_, w));
    worker_hosts_.push_back(std::make_unique<WorkerHost>(host_, row_clients_.back().get()));
  }
}

void Rank::open_rows(bool shared) {
  if (!rows_->cut()) {
    fail_config(
        "parallel.rows = \"request\": the model has no row table that is cut over the replicas (for "
        "embedding_bag: placement = \"rows\" or \"tables\"); leave parallel.rows out");
  }
  if (shared) {
    fail_config(fmt::format(
        "parallel.rows = \"request\" is for replicas that update alone, but sync strategy '{}' makes all of "
        "them apply one gradient in each slot; set parallel.rows = \"step\"",
        parts_->sync.id()));
  }
  if (!parts_->optimizer.declares(TENON_CAP_HOGWILD)) {
    fail_config(fmt::format(
        "parallel.rows = \"request\" needs an optimizer that tolerates concurrent writers, since several "
        "replicas update one table; '{}' does not declare 'hogwild'",
        parts_->optimizer.id()));
  }
  row_server_->open(weights_->live(), *updater_);
}

// All begin together, so that a resumed run and one that went on over this boundary see the same of each
// other.
void Rank::start_rows() {
  if (row_server_ == nullptr) return;
  still_ = weights_->open("rows.still", Purpose::kControl);
  row_server_->start();
  for (const auto& client : row_clients_) client->open(layer_watch_);
  still_->barrier();
}

void Rank::settle_rows() {
  if (row_server_ == nullptr) return;
  for (const auto& client : row_clients_) client->flush();
  still_->barrier();
  report_accesses();
}

// Behind the last boundary nobody asks any more, so every goodbye is on its way.
void Rank::end_rows() {
  if (row_server_ == nullptr) return;
  for (const auto& client : row_clients_) client->bye();
  row_server_->stop();
}

void Rank::report_accesses() {
  if (row_server_ == nullptr) return;
  row_server_->take_accesses([&](const RowGradient& rows) {
    parts_->recovery->on_accesses(rows.parameter, rows.ids, rows.counts);
    if (emulated_ != nullptr) emulated_->accessed(rows.parameter, rows.ids, rows.counts);
    observers_->accesses(rows);
  });
}

}  // namespace tenon::train
