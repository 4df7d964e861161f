// Triggers of exchanges (shadow.hpp).
#include "shadow.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sync_extra.hpp>

#include <algorithm>
#include <string>

namespace tenon::sync_shadow {

Shadow::Shadow(const char* name, const Options& options)
    : name_(name),
      interval_(options.integer("interval")),
      rest_(options.real("rest")),
      piece_(options.integer("piece")) {
  mode_ = options.choice("mode", kModes);
  if (piece_ > 0 && piece_ < kLeastPiece) {
    fail_config("sync " + std::string(name_) + ": 'piece' is " + std::to_string(piece_) +
                " bytes; expected 0, or at least " + std::to_string(kLeastPiece) +
                ": each piece is a transfer of its own, for which the next one waits");
  }
  locked_ =
      background() && options.text("merge_lock") == "per_shard";  // otherwise workers stand still anyway
  const auto at = options.integers("at");
  at_.assign(at.begin(), at.end());
  std::sort(at_.begin(), at_.end());
  if (!at_.empty() && background()) {
    fail_config("sync " + std::string(name_) +
                ": 'at' scripts exchanges, but mode = \"shadow\" makes as many as it can; leave it out, or "
                "take mode = \"foreground\" or \"stepped\"");
  }
}

std::int64_t Shadow::piece_of(DType dtype, std::int64_t left) const {
  if (!in_pieces()) return left;
  return std::clamp(piece_ / dtype_bytes(dtype, 1), std::int64_t{1}, left);
}

Shadow::~Shadow() {
  for (const TensorView& view : allocated_) replica().device().release(view.data, view.bytes());
}

void Shadow::start(Replica& replica) {
  SyncBase::start(replica);
  elementwise_ = &replica.device().family<Elementwise>();
  threads_ = parallel_threads();
  arenas_ = trained_arenas(replica.live());
  refuse_copied_tables(replica, name_);
  active_ = takes_part();
}

std::vector<TensorView> Shadow::allocate() {
  std::vector<TensorView> views;
  for (const int arena : arenas_) {
    TensorView view = weights(arena);
    view.data = replica().device().allocate(view.bytes());
    views.push_back(view);
    allocated_.push_back(view);
    elementwise_->fill(view, 0);
  }
  return views;
}

std::int64_t Shadow::first_round() const {
  if (background()) return 0;
  return at_.empty() ? interval_ : at_.front();
}

bool Shadow::due(std::int64_t done) const {
  if (at_.empty()) return done % interval_ == 0;
  return std::binary_search(at_.begin(), at_.end(), done);
}

void Shadow::after_step(const Slot& slot, const StepOutcome& outcome) {
  if (outcome.applied) updates_.fetch_add(1, std::memory_order_relaxed);
  if (!active_) return;
  if (!begun_.exchange(true)) {
    begin();
    if (background()) {
      actor_ = replica().host().spawn("shadow", [this](Actor& self) {
        set_parallel_threads(threads_);
        while (step(self, self.checkpoint())) {
        }
      });
    }
  }
  if (background()) return;
  if (due(slot.t + 1)) return fire(slot.t);
  between(slot.t);
}

void Shadow::fire(std::int64_t slot) {
  if (stepped()) {
    // The actor starts inside a replica that may not be paused, so nothing holds other workers back.
    std::thread::id nobody{};
    if (!stepper_.compare_exchange_strong(nobody, std::this_thread::get_id()) &&
        nobody != std::this_thread::get_id()) {
      fail_config("sync " + std::string(name_) +
                  ": mode = \"stepped\" is for one worker; set [parallel] workers = 1");
    }
    replica().host().spawn("shadow", [&](Actor&) { run_exchange(slot); })->stop();
    return;
  }
  replica().pause();
  try {
    run_exchange(slot);
  } catch (...) {
    replica().resume();
    throw;
  }
  replica().resume();
}

void Shadow::synced() {
  const std::int64_t updates = updates_.load(std::memory_order_relaxed);
  const std::int64_t gap = updates - synced_at_;
  synced_at_ = updates;
  ++syncs_;
  record_metric(replica().host(), "sync_gap", static_cast<double>(gap));
}

void Shadow::quiesce() {
  if (!active_ || !begun_.load()) return;
  settle();
  average_buffers();
  evaluated().touch(-1);
}

// Each trainer keeps its own live statistics: trainers do not synchronise, and evaluation must not change
// them.
void Shadow::average_buffers() {
  Communicator& group = *replica().group(Purpose::kState);
  for (const ParameterInfo& info : replica().live().parameters()) {
    const TensorView buffer = evaluated().tensor(info.index);
    if (info.spec.role != Role::kBuffer || buffer.empty()) continue;
    replica().device().copy(replica().live().tensor(info.index), buffer);
    if (dtype_is_real(buffer.dtype)) {
      group.all_reduce(buffer, ReduceOp::kSum);
      elementwise_->scale(buffer, 1.0 / group.size());
    } else {
      group.broadcast(buffer, 0);
    }
  }
}

ParameterSet& Shadow::evaluation_parameters() {
  return active_ ? evaluated() : replica().live();
}

void Shadow::state(StateVisitor& visitor) {
  std::int64_t updates = updates_.load();
  visitor.integer("updates", updates);
  if (visitor.loading()) updates_.store(updates);
  visitor.integer("synced_at", synced_at_);
  visitor.integer("syncs", syncs_);
  if (visitor.loading()) begun_.store(false);
}

}  // namespace tenon::sync_shadow
