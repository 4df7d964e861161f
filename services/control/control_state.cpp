// The state machine of the control plane (control_state.hpp).
#include "control/control_state.hpp"

#include <tenon/error.hpp>

#include <tenon/transport.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

TENON_ABI_BEGIN

namespace {

std::size_t index_of(int rank) {
  return rank;
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

ControlState::ControlState(int ranks, int voters) : ranks_(ranks), voters_(voters > 0 ? voters : ranks) {
  if (ranks < 1) fail_config(fmt::format("control plane: {} ranks, expected at least 1", ranks));
  begun_.assign(index_of(ranks), -1);
}

void ControlState::limit_voters(int voters) {
  voters_ = std::min(voters, ranks_);
}

std::uint32_t ControlState::begin_slot(int rank, std::int64_t slot) {
  require_voter(rank, "begin_slot");
  if (slot < 0)
    fail_run(fmt::format("control plane: rank {} begins slot {}; slots count from 0", rank, slot));
  begun_[index_of(rank)] = slot;
  std::uint32_t actions = 0;
  for (Agreement& agreement : agreements_) {
    const bool due = agreement.slot == slot || (agreement.slot < slot && !agreement.taken[index_of(rank)]);
    if (!due) continue;
    actions |= agreement.actions;
    agreement.taken[index_of(rank)] = true;
  }
  forget_finished();
  return actions;
}

std::int64_t ControlState::request(std::uint32_t actions) {
  if (actions == 0) fail_run("control plane: request of no action");
  std::int64_t slot = 0;
  for (int rank = 0; rank < voters_; ++rank) slot = std::max(slot, begun_[index_of(rank)] + 1);
  for (Agreement& agreement : agreements_) {
    if (agreement.slot != slot) continue;
    agreement.actions |= actions;
    return slot;
  }
  agreements_.push_back({slot, actions, std::vector<bool>(index_of(ranks_), false)});
  return slot;
}

void ControlState::vote(int rank, std::int64_t slot, bool yes) {
  require_voter(rank, "commit");
  Round* round = find_round(slot);
  if (!round) {
    const auto closed = std::find_if(rounds_.begin(), rounds_.end(), [](const Round& r) { return !r.open; });
    round = closed == rounds_.end() ? &rounds_.emplace_back() : &*closed;
    round->open = true;
    round->slot = slot;
    round->ballots.assign(index_of(ranks_), Ballot::kNone);
    round->collected.assign(index_of(ranks_), false);
    round->abandoned = false;
    round->why.clear();
  }
  Ballot& ballot = round->ballots[index_of(rank)];
  if (ballot != Ballot::kNone)
    fail_run(fmt::format("control plane: rank {} votes twice on slot {}", rank, slot));
  ballot = yes ? Ballot::kYes : Ballot::kNo;
}

ControlState::Verdict ControlState::collect(int rank, std::int64_t slot) {
  require_voter(rank, "commit");
  Round* round = find_round(slot);
  if (!round)
    fail_run(fmt::format("control plane: rank {} asks for slot {}, on which nobody votes", rank, slot));
  const Verdict verdict = verdict_of(*round);
  if (verdict == Verdict::kYes || verdict == Verdict::kNo) {
    round->collected[index_of(rank)] = true;
    forget_finished();
  }
  return verdict;
}

ControlState::Verdict ControlState::verdict(std::int64_t slot) const {
  const Round* round = find_round(slot);
  return round ? verdict_of(*round) : Verdict::kPending;
}

std::vector<int> ControlState::missing_votes(std::int64_t slot) const {
  std::vector<int> missing;
  const Round* round = find_round(slot);
  if (!round) return missing;
  for (int rank = 0; rank < voters_; ++rank) {
    if (round->ballots[index_of(rank)] == Ballot::kNone) missing.push_back(rank);
  }
  return missing;
}

void ControlState::abandon(std::int64_t slot, std::string_view why) {
  Round* round = find_round(slot);
  if (!round || round->abandoned) return;
  round->abandoned = true;
  round->why = why;
}

std::string ControlState::abandoned_because(std::int64_t slot) const {
  const Round* round = find_round(slot);
  return round ? round->why : std::string();
}

bool ControlState::fail(int rank, int exit_status, std::string_view message) {
  require_rank(rank, "fail");
  if (failed()) return false;
  failure_status_ = exit_status == 0 ? 1 : exit_status;
  failure_ = ranks_ == 1 ? std::string(message) : fmt::format("rank {}: {}", rank, message);
  return true;
}

void ControlState::require_rank(int rank, std::string_view call) const {
  if (rank >= 0 && rank < ranks_) return;
  fail_run(fmt::format("control plane: {} by rank {}; the world has ranks 0 ... {}", call, rank, ranks_ - 1));
}

void ControlState::require_voter(int rank, std::string_view call) const {
  require_rank(rank, call);
  if (rank < voters_) return;
  fail_run(fmt::format("control plane: {} by rank {}, which does not train; ranks 0 ... {} do", call, rank,
                       voters_ - 1));
}

const ControlState::Round* ControlState::find_round(std::int64_t slot) const {
  for (const Round& round : rounds_) {
    if (round.open && round.slot == slot) return &round;
  }
  return nullptr;
}

ControlState::Round* ControlState::find_round(std::int64_t slot) {
  return const_cast<Round*>(std::as_const(*this).find_round(slot));
}

ControlState::Verdict ControlState::verdict_of(const Round& round) const {
  if (round.abandoned) return Verdict::kAbandoned;
  bool all_yes = true;
  for (int rank = 0; rank < voters_; ++rank) {
    const Ballot ballot = round.ballots[index_of(rank)];
    if (ballot == Ballot::kNone) return Verdict::kPending;
    all_yes = all_yes && ballot == Ballot::kYes;
  }
  return all_yes ? Verdict::kYes : Verdict::kNo;
}

void ControlState::forget_finished() {
  const auto by_all = [&](const std::vector<bool>& flags) {
    return std::all_of(flags.begin(), flags.begin() + voters_, [](bool flag) { return flag; });
  };
  std::erase_if(agreements_, [&](const Agreement& agreement) { return by_all(agreement.taken); });
  for (Round& round : rounds_) {
    if (round.open && by_all(round.collected)) round.open = false;
  }
}

TENON_ABI_END
