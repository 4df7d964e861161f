// The rounds of averaging.hpp. The running actor owns phase_; a worker that holds the pause may take it over,
// because then the actor is at a checkpoint or before a merge, and rereads it when it continues.
#include "averaging.hpp"

#include <tenon/error.hpp>

#include <algorithm>

namespace tenon::sync_shadow {

void Averaging::start(Replica& replica) {
  Shadow::start(replica);
  if (!takes_part()) return;
  votes_ = replica.open("shadow.votes", Purpose::kControl);
  group_ = replica.open("shadow.mean", Purpose::kParameter);
  means_ = allocate();
  for (const TensorView& mean : means_) {
    for (std::int64_t at = 0; at < mean.elements();) {
      const std::int64_t size = piece_of(mean.dtype, mean.elements() - at);
      pieces_.push_back(slice(mean, at, size));
      at += size;
    }
  }
  transfers_.reserve(pieces_.size());
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
  received_ = 0;
  start_transfers();
  phase_ = Phase::kSent;
}

// If all pieces were started, they would be in the link's queue together, and no other transfer could pass
// between them.
void Averaging::start_transfers() {
  const std::size_t end = in_pieces() ? std::min(received_ + 1, pieces_.size()) : pieces_.size();
  while (transfers_.size() < end)
    transfers_.push_back(group_->start_all_reduce(pieces_[transfers_.size()], ReduceOp::kSum));
}

void Averaging::receive_piece() {
  group_->wait(transfers_[received_]);
  elementwise().scale(pieces_[received_], 1.0 / group_->size());
  ++received_;
  start_transfers();
}

void Averaging::receive() {
  while (received_ < pieces_.size()) receive_piece();
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

void Averaging::run_exchange(std::int64_t) {
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
      while (received_ < pieces_.size()) {
        if (!group_->done(transfers_[received_])) {
          wait();
          return true;
        }
        receive_piece();
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

// A trainer that is ahead has finished the round that another is still in, and may have asked for the next
// one. That request can stay, since a vote carries no weights. A round that was agreed on is completed.
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
