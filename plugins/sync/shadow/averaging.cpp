// The rounds of averaging.hpp. phase_ is the actor's while it runs; a worker that holds the pause may take it
// over, because then the actor stands at a checkpoint or before a merge, and looks again when it goes on.
#include "averaging.hpp"

#include <tenon/error.hpp>

namespace tenon::sync_shadow {

void Averaging::start(Replica& replica) {
  Shadow::start(replica);
  if (!takes_part()) return;
  votes_ = replica.open("shadow.votes", Purpose::kControl);
  group_ = replica.open("shadow.mean", Purpose::kParameter);
  means_ = allocate();
  transfers_.reserve(means_.size());
}

void Averaging::begin() {
  phase_ = Phase::kIdle;
}

void Averaging::ask_to_stop(bool stop) {
  stop_ = stop ? 1 : 0;
  vote_ = votes_->start_all_reduce({&stop_, Shape{1}, DType::kI32}, ReduceOp::kMin);
  phase_ = Phase::kAsked;
}

bool Averaging::all_want_to_stop() {
  votes_->wait(vote_);
  phase_ = stop_ != 0 ? Phase::kIdle : Phase::kAgreed;
  return stop_ != 0;
}

void Averaging::send() {
  transfers_.clear();
  for (std::size_t i = 0; i < arenas().size(); ++i) {
    take(weights(arenas()[i]), means_[i]);
    if (!snapshots_.empty()) replica().device().copy(means_[i], snapshots_[i]);
  }
  for (const TensorView& mean : means_) transfers_.push_back(group_->start_all_reduce(mean, ReduceOp::kSum));
  phase_ = Phase::kSent;
}

void Averaging::receive() {
  for (std::size_t i = 0; i < means_.size(); ++i) {
    group_->wait(transfers_[i]);
    elementwise().scale(means_[i], 1.0 / group_->size());
  }
  transfers_.clear();
  phase_ = Phase::kArrived;
}

void Averaging::merge_all() {
  for (std::size_t i = 0; i < means_.size(); ++i) merge(i);
  replica().live().touch(-1);
  phase_ = Phase::kIdle;
  ++round_;
  synced();
}

void Averaging::complete() {
  if (phase_ == Phase::kAgreed) send();
  if (phase_ == Phase::kSent) receive();
  if (phase_ == Phase::kArrived) merge_all();
}

void Averaging::meet(std::int64_t) {
  phase_ = Phase::kAgreed;
  complete();
  replica().sync_buffers();
}

bool Averaging::step(Actor& self, bool going) {
  const auto wait = [&] { self.sleep(poll_); };
  const auto as_long_as = [&](Phase phase, auto&& act) {
    merging([&] {
      if (phase_ == phase) act();
    });
  };
  switch (phase_) {
    case Phase::kIdle:
      ask_to_stop(!going);
      break;
    case Phase::kAsked:
      if (!votes_->done(vote_)) {
        wait();
      } else if (all_want_to_stop()) {
        return false;
      }
      break;
    case Phase::kAgreed:
      as_long_as(Phase::kAgreed, [&] { send(); });
      break;
    case Phase::kSent:
      for (const Request transfer : transfers_) {
        if (group_->done(transfer)) continue;
        wait();
        return true;
      }
      receive();
      break;
    case Phase::kArrived:
      as_long_as(Phase::kArrived, [&] { merge_all(); });
      self.sleep(rest());
      break;
  }
  return true;
}

// A trainer that is ahead has finished the round in which another still is, and may have asked for the next
// one; that can stay as it is, for a wish carries no weights. A round that was agreed on takes place.
void Averaging::settle() {
  Communicator& group = *replica().group(Purpose::kState);
  std::int64_t front = round_ * kPhases + static_cast<std::int64_t>(phase_);
  group.all_reduce({&front, Shape{1}, DType::kI64}, ReduceOp::kMax);
  const bool agreed =
      front / kPhases == round_ && front % kPhases >= static_cast<std::int64_t>(Phase::kAgreed);
  if (phase_ == Phase::kAsked && agreed) static_cast<void>(all_want_to_stop());
  complete();
  publish();
}

}  // namespace tenon::sync_shadow
