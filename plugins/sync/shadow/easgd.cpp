// The trainer's end of easgd.hpp. The answer is subtracted from the current weights, so concurrent updates of
// workers are kept.
#include "easgd.hpp"

#include <tenon/error.hpp>

#include <algorithm>
#include <exception>
#include <numeric>
#include <string>

namespace tenon::sync_shadow {

ShadowEasgd::ShadowEasgd(const Options& options)
    : Shadow("shadow_easgd", options), elastic_(options.real("elastic")) {
  const std::string_view exchange = options.text("exchange");
  if (exchange == "sequential") exchange_ = Exchange::kSequential;
  if (exchange == "delta") exchange_ = Exchange::kDelta;
  const auto order = options.integers("order");
  order_.assign(order.begin(), order.end());
}

// A server waits for its trainers, so each sends kBye; a run that fails ends the servers by its failure.
ShadowEasgd::~ShadowEasgd() {
  stop_background();
  if (std::uncaught_exceptions() > 0) return;
  try {
    for (Pair& pair : pairs_) ask(pair, Ask::kBye, 0, {}, {});
  } catch (const std::exception&) {
    // The run has failed and is reported elsewhere.
  }
}

void ShadowEasgd::start(Replica& replica) {
  Shadow::start(replica);
  for (int server = 0; server < replica.servers(); ++server) {
    pairs_.emplace_back(
        [&](const char* name, Purpose purpose) { return replica.open_to_server(server, name, purpose); });
  }
  if (!takes_part()) return;
  if (pairs_.empty()) {
    fail_config(
        "sync shadow_easgd: servers hold the centre, and this run has none; set [parallel] servers = 1 or "
        "more");
  }
  check_order();
  if (!order_.empty()) turns_ = replica.open("shadow.turns", Purpose::kControl);
  center_ = &replica.create_set("center");
  replica.copy(replica.live(), *center_);
  if (exchange_ == Exchange::kDelta && !background()) elastic_force_ = &replica.create_set("elastic");
  staging_ = allocate();
}

void ShadowEasgd::check_order() {
  const std::size_t replicas = replica().replicas();
  if (order_.empty() && !stepped()) return;
  std::vector<std::int64_t> all(replicas);
  std::iota(all.begin(), all.end(), 0);
  if (order_.empty()) order_ = all;
  std::vector<std::int64_t> sorted = order_;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != all || background()) {
    fail_config("sync shadow_easgd: 'order' lists every trainer, 0 to " + std::to_string(replicas - 1) +
                ", once, and is for mode = \"foreground\" or \"stepped\"");
  }
}

void* ShadowEasgd::query(std::string_view interface_id) {
  return interface_id == SyncServer::kId ? static_cast<SyncServer*>(&server_) : Shadow::query(interface_id);
}

ElementRange ShadowEasgd::shard(std::size_t index, std::size_t server) const {
  return ring_chunk(staging_[index].elements(), staging_[index].dtype, static_cast<int>(server),
                    static_cast<int>(pairs_.size()));
}

void ShadowEasgd::ask(Pair& pair, Ask request, std::size_t index, const ElementRange& part,
                      const ElementRange& whole) {
  Header header;
  header.request = request;
  header.arena = static_cast<std::int64_t>(index);
  header.elements = part.size();
  header.begin = part.begin - whole.begin;
  header.whole = whole.size();
  header.dtype = index < staging_.size() ? static_cast<std::int64_t>(staging_[index].dtype) : 0;
  header.elastic = elastic_;
  pair.requests->send(view_of(header), kServer, kTag);
}

void ShadowEasgd::answered(Pair& pair) {
  Header header;
  pair.requests->receive(view_of(header), kServer, kTag);
}

// Trainer 0 sends the centre, from the start or from a checkpoint, before any trainer exchanges with it. A
// slow server would allocate while others train, so each trainer waits until its servers have done so.
void ShadowEasgd::begin() {
  for (std::size_t s = 0; s < pairs_.size(); ++s) {
    std::int64_t most = 0;
    for (std::size_t i = 0; i < arenas().size(); ++i)
      most = std::max(most, dtype_bytes(staging_[i].dtype, shard(i, s).size()));
    ask(pairs_[s], Ask::kRoom, 0, {0, most}, {});
  }
  for (Pair& pair : pairs_) answered(pair);
  for (std::size_t i = 0; i < arenas().size() && replica().replica() == 0; ++i) {
    const TensorView center = as_reals(center_->arena(arenas()[i]));
    for (std::size_t s = 0; s < pairs_.size(); ++s) {
      const ElementRange range = shard(i, s);
      if (range.size() == 0) continue;
      ask(pairs_[s], Ask::kSet, i, range, range);
      pairs_[s].state->send(slice(center, range.begin, range.size()), kServer, kTag);
      answered(pairs_[s]);
    }
  }
  replica().group(Purpose::kState)->barrier();
}

// Sends pieces to all servers in turn, so that none idles while trainers that began together all use another.
void ShadowEasgd::exchange() {
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    std::int64_t most = 0, done = 0;
    for (std::size_t s = 0; s < pairs_.size(); ++s) most = std::max(most, shard(i, s).size());
    while (done < most) {
      const std::int64_t piece = piece_of(staging_[i].dtype, most - done);
      for (std::size_t s = 0; s < pairs_.size(); ++s) {
        const ElementRange whole = shard(i, s);
        const std::int64_t begin = whole.begin + done, end = std::min(begin + piece, whole.end);
        if (begin < end) exchange_part(i, s, {begin, end}, whole);
      }
      done += piece;
    }
  }
  synced();
}

void ShadowEasgd::exchange_part(std::size_t index, std::size_t server, const ElementRange& range,
                                const ElementRange& whole) {
  Pair& pair = pairs_[server];
  const TensorView staged = slice(staging_[index], range.begin, range.size());
  const TensorView w = slice(weights(arenas()[index]), range.begin, range.size());
  if (exchange_ == Exchange::kDelta) {
    ask(pair, Ask::kFetch, index, range, whole);
    pair.weights->receive(staged, kServer, kTag);
    elastic(elastic_, w, staged);
    ask(pair, Ask::kAdd, index, range, whole);
    pair.weights->send(staged, kServer, kTag);
    answered(pair);
  } else {
    take(w, staged);
    ask(pair, exchange_ == Exchange::kSymmetric ? Ask::kSymmetric : Ask::kSequential, index, range, whole);
    pair.weights->send(staged, kServer, kTag);
    pair.weights->receive(staged, kServer, kTag);
  }
  arrived_ = Arrived{index, range};
  merging([&] { apply(); });
}

// After a pause the exchange may be applied already, by quiesce(), which found it half done.
void ShadowEasgd::apply() {
  if (!arrived_) return;
  const auto [index, range] = *arrived_;
  arrived_.reset();
  const TensorView staged = slice(staging_[index], range.begin, range.size());
  if (elastic_force_ != nullptr) {
    const TensorView force = as_reals(elastic_force_->arena(arenas()[index]));
    replica().device().copy(staged, slice(force, range.begin, range.size()));
    force_due_.store(1);
    return;
  }
  const TensorView w = slice(weights(arenas()[index]), range.begin, range.size());
  if (exchange_ == Exchange::kSequential) {
    pull(elastic_, staged, w);
  } else {
    subtract(staged, w);
  }
  replica().live().touch(-1);
}

void ShadowEasgd::move_by_elastic() {
  if (force_due_.exchange(0) == 0) return;
  for (const int arena : arenas()) subtract(as_reals(elastic_force_->arena(arena)), weights(arena));
  replica().live().touch(-1);
}

void ShadowEasgd::between(std::int64_t) {
  if (force_due_.load() == 0) return;
  replica().pause();
  move_by_elastic();
  replica().resume();
}

void ShadowEasgd::run_exchange(std::int64_t) {
  move_by_elastic();
  if (turns_ == nullptr) return exchange();
  const std::size_t place = std::find(order_.begin(), order_.end(), replica().replica()) - order_.begin();
  Header turn;
  turns_->barrier();  // the last replica's turn in the previous round is over
  if (place > 0) turns_->receive(view_of(turn), static_cast<int>(order_[place - 1]), kTag);
  exchange();
  if (place + 1 < order_.size()) turns_->send(view_of(turn), static_cast<int>(order_[place + 1]), kTag);
}

bool ShadowEasgd::step(Actor& self, bool going) {
  if (!going) return false;
  exchange();
  self.sleep(rest());
  return true;
}

void ShadowEasgd::settle() {
  apply();
  Communicator& group = *replica().group(Purpose::kState);
  group.barrier();  // from here on every actor is parked, and no request is open
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    const TensorView center = as_reals(center_->arena(arenas()[i]));
    for (std::size_t s = 0; s < pairs_.size() && replica().replica() == 0; ++s) {
      const ElementRange range = shard(i, s);
      if (range.size() == 0) continue;
      ask(pairs_[s], Ask::kGet, i, range, range);
      pairs_[s].state->receive(slice(center, range.begin, range.size()), kServer, kTag);
    }
    group.broadcast(center, 0);
  }
}

void ShadowEasgd::state(StateVisitor& visitor) {
  Shadow::state(visitor);
  std::int64_t due = force_due_.load();
  visitor.integer("elastic_due", due);
  if (visitor.loading()) force_due_.store(due);
}

}  // namespace tenon::sync_shadow
