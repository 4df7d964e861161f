// Exchanges of gossip.hpp. Every wait is the communicator's, which ends at the run's deadline and names the
// late rank.
#include "gossip.hpp"

#include <tenon/optimizer.hpp>

#include <cstddef>

namespace gossip {

using tenon::Purpose;
using tenon::ReduceOp;
using tenon::Request;
using tenon::TensorView;

Gossip::~Gossip() {
  release();
}

void Gossip::release() {
  for (const Exchange& exchange : exchanges_) {
    for (const TensorView& view : {exchange.from_left, exchange.from_right}) {
      if (view.data != nullptr) replica().device().release(view.data, view.bytes());
    }
  }
  exchanges_.clear();
}

// [start]
void Gossip::start(tenon::Replica& replica) {
  release();
  SyncBase::start(replica);
  const int replicas = replica.replicas();
  if (replicas == 1) return;
  elementwise_ = &replica.device().family<tenon::Elementwise>();
  mean_ = &replica.create_set("mean");
  ring_ = replica.group(Purpose::kParameter);
  all_ = replica.group(Purpose::kStatistics);

  tenon::ParameterSet& live = replica.live();
  std::vector<bool> trained(live.arenas(), false);
  averaged_ = trained;
  for (const tenon::ParameterInfo& info : live.parameters()) {
    if (info.arena < 0) continue;  // a row table: the core handles it
    const std::size_t arena = info.arena;
    const bool buffer = info.spec.role == tenon::Role::kBuffer;
    if (!buffer && info.spec.trainable) trained[arena] = averaged_[arena] = true;
    if (buffer && tenon::dtype_is_real(info.spec.dtype)) averaged_[arena] = true;
  }
  for (int arena = 0; arena < live.arenas(); ++arena) {
    const TensorView weights = tenon::flat_reals(live.arena(arena));
    if (!trained[arena] || weights.empty()) continue;
    exchanges_.push_back({.arena = arena, .from_left = weights, .from_right = weights});
    Exchange& exchange = exchanges_.back();
    exchange.from_left.data = exchange.from_right.data = nullptr;
    exchange.from_left.data = replica.device().allocate(weights.bytes());
    if (replicas > 2) exchange.from_right.data = replica.device().allocate(weights.bytes());
  }
}
// [/start]

// [exchange]
void Gossip::after_step(const tenon::Slot& slot, const tenon::StepOutcome&) {
  if (ring_ == nullptr || (slot.t + 1) % period_ != 0) return;
  for (const Exchange& exchange : exchanges_) mix(exchange);
  replica().live().touch(-1);
  replica().sync_buffers();  // running statistics, as [sync] buffers says
}

void Gossip::mix(const Exchange& exchange) {
  const TensorView weights = tenon::flat_reals(replica().live().arena(exchange.arena));
  const int self = ring_->rank(), size = ring_->size();
  const int left = (self + size - 1) % size, right = (self + 1) % size;
  // Two messages of one arena may pass between the same two replicas; their direction distinguishes them.
  const int rightwards = 2 * exchange.arena, leftwards = 2 * exchange.arena + 1;
  const bool two_neighbours = size > 2;
  const Request from_left = ring_->start_receive(exchange.from_left, left, rightwards);
  const Request to_right = ring_->start_send(weights, right, rightwards);
  if (two_neighbours) {
    const Request from_right = ring_->start_receive(exchange.from_right, right, leftwards);
    const Request to_left = ring_->start_send(weights, left, leftwards);
    ring_->wait(from_right);
    ring_->wait(to_left);
  }
  ring_->wait(from_left);
  ring_->wait(to_right);
  elementwise_->axpy(1.0, exchange.from_left, weights);
  if (two_neighbours) elementwise_->axpy(1.0, exchange.from_right, weights);
  elementwise_->scale(weights, two_neighbours ? 1.0 / 3.0 : 0.5);
}
// [/exchange]

void Gossip::quiesce() {
  if (mean_ == nullptr) return;
  tenon::ParameterSet& live = replica().live();
  replica().copy(live, *mean_);
  for (int arena = 0; arena < mean_->arenas(); ++arena) {
    const TensorView values = tenon::flat_reals(mean_->arena(arena));
    if (values.empty()) continue;
    if (averaged_[arena]) {
      all_->all_reduce(values, ReduceOp::kSum);
      elementwise_->scale(values, 1.0 / all_->size());
    } else {
      all_->broadcast(values, 0);  // counters have no mean; frozen weights are equal anyway
    }
  }
  mean_->touch(-1);
}

tenon::ParameterSet& Gossip::evaluation_parameters() {
  return mean_ == nullptr ? replica().live() : *mean_;
}

}  // namespace gossip

TENON_PLUGIN(tenon::PluginInfo{.id = "example.gossip",
                               .version = "0.1.0",
                               .summary = "ring averaging with the neighbours",
                               .vendor = "Tenon contributors",
                               .licence = "Apache-2.0"},
             gossip::Gossip)
