// Where rows travel in step, all replicas are in one slot, so their samples are read here and nobody is
// asked: a rank's rows are read by the lookups of all of them, and its copies updated by the gradients of all
// of them. Where rows travel on request, each replica has a slot of its own: a lookup says which, and the
// owner foresees the next ones from there.
#include "run/prefetch.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <utility>

namespace tenon::train {

class Prefetch::Board final : public LookupWatch {
 public:
  Board(const RankContext& rank, std::int64_t slot_samples)
      : clock_(*rank.host.spec().clock),
        deadline_s_(rank.host.deadline()),
        slots_(rank.world.settings.tables.prefetch),
        steps_(rank.world.settings.run.steps),
        slot_samples_(slot_samples),
        sync_(rank.parts.sync),
        own_(rank.weights.replica()),
        here_(rank.counters.slot - 1),
        replicas_(rank.weights.replicas()) {}

  // LookupWatch
  void looks_up(int replica, std::int64_t slot, std::int64_t position) override {
    const std::lock_guard lock(mutex_);
    Progress& other = replicas_.at(replica);
    if (slot <= other.slot) return;
    other.slot = slot;
    other.position = position;
    changed_.notify(clock_, clock_.now());
  }

  void begins(std::int64_t slot, std::int64_t position) {
    const std::lock_guard lock(mutex_);
    // A run that goes back does so with all of its replicas.
    if (slot <= replicas_[own_].slot) std::fill(replicas_.begin(), replicas_.end(), Progress{});
    replicas_[own_].slot = here_ = slot;
    replicas_[own_].position = position;
    held_ = false;
    changed_.notify(clock_, clock_.now());
  }

  void hold() {
    std::unique_lock lock(mutex_);
    held_ = true;
    const WaitDeadline deadline(deadline_s_);
    while (busy_) {
      std::string why;
      if (changed_.wait(lock, clock_, deadline, "the hint that is on its way", &why) !=
          ClockEvent::Outcome::kLate)
        continue;
      throw DeadlineError(
          fmt::format("tables.prefetch: the rows of a slot to come were not fetched within "
                      "{} s{}{}; lower tables.prefetch, or raise run.deadline",
                      deadline_s_, why.empty() ? "" : ": ", why));
    }
  }

  void end() {
    const std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify(clock_, clock_.now());
  }

  /// For the actor: waits for the next slot to tell of. Nothing at the end.
  std::optional<Hint> next(const Actor& actor) {
    std::unique_lock lock(mutex_);
    while (!ending_ && !actor.stopping()) {
      if (!held_) {
        if (const std::optional<Hint> hint = choose()) {
          busy_ = true;
          return hint;
        }
      }
      // The limit of one wait: a slot may take longer, and a failed run ends it.
      std::string why;
      const auto outcome =
          changed_.wait(lock, clock_, WaitDeadline(deadline_s_), "a slot to fetch rows for", &why);
      if (outcome == ClockEvent::Outcome::kLate && clock_.simulated()) throw DeadlineError(why);
    }
    return std::nullopt;
  }
  void rest() {
    const std::lock_guard lock(mutex_);
    busy_ = false;
    changed_.notify(clock_, clock_.now());
  }

  /// The slot's number in this replica's count; nothing once the slot has begun, when a hint is of no use.
  std::optional<std::int64_t> ahead(const Hint& hint) {
    const std::lock_guard lock(mutex_);
    const std::int64_t distance = hint.slot - replicas_[hint.replica].slot;
    if (ending_ || distance <= 0) return std::nullopt;
    return here_ + distance;
  }

 private:
  struct Progress {
    std::int64_t slot = -1, position = 0;      ///< the newest that began
    std::int64_t next = 0, next_position = 0;  ///< the first that was not told of
  };

  /// The replicas take turns.
  std::optional<Hint> choose() {
    for (std::size_t i = 0; i < replicas_.size(); ++i) {
      const int replica = (own_ + turn_ + static_cast<int>(i)) % static_cast<int>(replicas_.size());
      if (std::optional<Hint> hint = next_of(replica)) {
        turn_ = replica + 1 - own_ + static_cast<int>(replicas_.size());
        return hint;
      }
    }
    return std::nullopt;
  }

  std::optional<Hint> next_of(int replica) {
    Progress& at = replicas_[replica];
    if (at.slot < 0) return std::nullopt;
    if (at.next <= at.slot) {
      at.next = at.slot;
      at.next_position = at.position;
    }
    while (at.next <= at.slot + slots_ && at.next < steps_) {
      const Hint hint{replica, at.next, at.next_position};
      const SlotPlan plan = sync_->plan({at.next, replica, 0});
      const bool trains = plan.kind == SlotKind::kGrad;
      ++at.next;
      if (trains || plan.consumes_data) at.next_position += slot_samples_;
      if (trains && hint.slot > at.slot) return hint;
    }
    return std::nullopt;
  }

  Clock& clock_;
  const double deadline_s_;
  const std::int64_t slots_, steps_, slot_samples_;
  const Part<Sync>& sync_;
  const int own_;
  std::mutex mutex_;  ///< guards what follows
  ClockEvent changed_;
  std::int64_t here_;               ///< newest slot of this replica that began
  std::vector<Progress> replicas_;  ///< one that says nothing has slot -1
  int turn_ = 0;
  bool held_ = false, busy_ = false, ending_ = false;
};

namespace {

std::vector<RowsAhead*> tables_ahead(const Trainer& trainer, int parameter) {
  std::vector<RowsAhead*> all;
  const auto add = [&](RowTable* table) {
    if (table == nullptr) return;
    if (auto* const ahead = static_cast<RowsAhead*>(table->query(RowsAhead::kId))) all.push_back(ahead);
  };
  add(trainer.weights().live().table(parameter));
  for (const Updater::TableState& state : trainer.updater().table_state()) {
    if (state.parameter == parameter) add(state.table.get());
  }
  return all;
}

}  // namespace

std::string Prefetch::idle_reason(const config::CoreSettings& settings, const Trainer& trainer) {
  if (settings.tables.prefetch == 0) return "";
  const auto idle = [&](const std::string& why) {
    return fmt::format("tables.prefetch = {} does nothing: {}", settings.tables.prefetch, why);
  };
  if (trainer.on_policy() != nullptr)
    return idle(fmt::format("data.{} draws its samples from the model, so the next batch is not known",
                            trainer.parts().dataset.id()));
  const std::vector<int> foreseen = trainer.workers().front()->executor().foreseen_tables();
  if (foreseen.empty())
    return idle(
        "the model has no layer that reads row tables by the data alone and tells of it "
        "(tenon.layer.lookups/1)");
  if (std::ranges::all_of(foreseen, [&](int table) { return tables_ahead(trainer, table).empty(); }))
    return idle(
        "no row table that the data alone selects rows of lies in a tier that fetches rows ahead; "
        "place one there ([[tables.place]]), or leave prefetch out");
  return "";
}

Prefetch::Prefetch(const RankContext& rank, Trainer& trainer)
    : rank_(rank), trainer_(trainer), gate_(*rank.host.spec().clock, rank.host.deadline()) {}

Prefetch::~Prefetch() {
  if (board_ != nullptr) board_->end();
}

void Prefetch::start() {
  const config::CoreSettings& settings = rank_.world.settings;
  if (settings.tables.prefetch == 0 || !idle_reason(settings, trainer_).empty()) return;
  Executor& executor = trainer_.workers().front()->executor();
  told_.resize(executor.parameters().size());
  for (const int parameter : executor.foreseen_tables())
    told_[parameter] = {rank_.weights.live().table(parameter), tables_ahead(trainer_, parameter), {}};
  if (trainer_.requests() == nullptr && trainer_.rows().active()) {
    replicas_.resize(rank_.weights.replicas());
    std::iota(replicas_.begin(), replicas_.end(), 0);
  }
  const std::vector<DataField>& declared = rank_.parts.dataset->info().fields;
  const std::span<const TensorView> inputs = executor.inputs();
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    TensorView field = inputs[i];
    field.dtype = declared.at(i).dtype;
    field.space = MemorySpace::kHost;
    memory_.emplace_back(field.bytes());
    field.data = memory_.back().data();
    fields_.push_back(field);
  }
  board_ = std::make_shared<Board>(rank_, trainer_.slot_samples());
  if (trainer_.requests() != nullptr) trainer_.requests()->server().set_watch(board_);
  host_ = std::make_unique<RankHost>(rank_.host.spec(), gate_);
  actor_ = host_->spawn("rows ahead", [this](Actor& actor) { run(actor); });
}

void Prefetch::before_slot(std::int64_t slot) {
  if (board_ == nullptr) return;
  host_->set_slot(slot);
  board_->begins(slot, rank_.counters.position);
}

void Prefetch::hold() {
  if (board_ != nullptr) board_->hold();
}

void Prefetch::end() {
  if (board_ == nullptr) return;
  board_->end();
  actor_->stop();
}

void Prefetch::run(Actor& actor) {
  struct Rest {
    ~Rest() { board.rest(); }
    Board& board;
  };
  set_parallel_threads(1);
  while (const std::optional<Hint> hint = board_->next(actor)) {
    const Rest rest{*board_};
    collect(*hint);
    tell(*hint);
  }
}

/// The owned rows of all micro-batches.
void Prefetch::collect(const Hint& hint) {
  for (Told& told : told_) told.ids.clear();
  const Worker& worker = *trainer_.workers().front();
  for (std::int64_t micro = 0; micro < rank_.world.settings.run.accumulate; ++micro) {
    const BatchRequest own = worker.request(hint.position, micro);
    const auto read_of = [&](int replica) {
      if (!board_->ahead(hint)) return;
      const std::int64_t distance = replica - rank_.weights.replica();
      read({own.split, own.first + distance * own.count, own.count});
    };
    for (const int replica : replicas_) read_of(replica);
    if (replicas_.empty()) read_of(hint.replica);
  }
  for (Told& told : told_) {
    std::sort(told.ids.begin(), told.ids.end());
    told.ids.erase(std::unique(told.ids.begin(), told.ids.end()), told.ids.end());
  }
}

void Prefetch::read(const BatchRequest& request) {
  rank_.parts.dataset->read(request, fields_);
  trainer_.workers().front()->executor().row_lookups(
      fields_, [&](int parameter, std::span<const std::int64_t> ids) {
        Told& told = told_[parameter];
        if (told.ahead.empty()) return;
        const std::int64_t first = told.table->owned_first(), last = told.table->owned_last();
        for (const std::int64_t id : ids) {
          if (id >= first && id < last) told.ids.push_back(id);
        }
      });
}

void Prefetch::tell(const Hint& hint) {
  for (const Told& told : told_) {
    if (told.ids.empty()) continue;
    for (RowsAhead* const table : told.ahead) {
      const std::optional<std::int64_t> slot = board_->ahead(hint);
      if (!slot) return;
      table->ahead(*slot, told.ids);
    }
  }
}

}  // namespace tenon::train
