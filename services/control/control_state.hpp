// The control plane as a state machine without threads, clocks or sockets: agreed actions, votes and the
// first failure. In-process and networked control planes drive it under their own lock.
#pragma once

#include <tenon/control.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Bytes of one record on the wire: type, rank, epoch, slot, payload; texts follow their record.
inline constexpr std::uint64_t kControlRecordBytes = 24;

class ControlState {
 public:
  enum class Verdict : std::uint8_t { kPending, kYes, kNo, kAbandoned };

  /// The first `voters` of the `ranks` (0: all) take part in slots and votes; the others can fail.
  explicit ControlState(int ranks, int voters = 0);
  /// As if it had been made with `voters`, before any of the others took part.
  void limit_voters(int voters);

  /// Voter `rank` begins `slot` (again, after a roll-back). Returns the actions that it takes before it:
  /// those agreed for this slot while some rank has yet to take them, and those of earlier slots that it
  /// jumped over.
  std::uint32_t begin_slot(int rank, std::int64_t slot);
  /// Merges `actions` into the lowest slot that no voter has begun, and returns that slot.
  std::int64_t request(std::uint32_t actions);

  /// One vote per voter and round; throws Error(kRun) on a second one.
  void vote(int rank, std::int64_t slot, bool yes);
  /// The round's result for `rank`, which has voted. Once every voter has got it the round is forgotten,
  /// so that the slot may be voted on again after a roll-back.
  Verdict collect(int rank, std::int64_t slot);
  Verdict verdict(std::int64_t slot) const;
  /// Voters that have not voted on an open round.
  std::vector<int> missing_votes(std::int64_t slot) const;
  /// Ends an open round without result; `why` is what every voter, present or late, reports.
  void abandon(std::int64_t slot, std::string_view why);
  std::string abandoned_because(std::int64_t slot) const;

  /// Records the first failure; returns false for later ones.
  bool fail(int rank, int exit_status, std::string_view message);
  bool failed() const { return failure_status_ != 0; }
  const std::string& failure() const { return failure_; }
  int failure_status() const { return failure_status_; }

  int voters() const { return voters_; }

 private:
  struct Agreement {
    std::int64_t slot = 0;
    std::uint32_t actions = 0;
    std::vector<bool> taken;  // by rank
  };
  enum class Ballot : std::uint8_t { kNone, kYes, kNo };
  struct Round {
    bool open = false;
    std::int64_t slot = 0;
    std::vector<Ballot> ballots;  // by rank
    std::vector<bool> collected;
    bool abandoned = false;
    std::string why;
  };

  void require_rank(int rank, std::string_view call) const;
  void require_voter(int rank, std::string_view call) const;
  const Round* find_round(std::int64_t slot) const;
  Round* find_round(std::int64_t slot);
  Verdict verdict_of(const Round& round) const;
  void forget_finished();

  int ranks_, voters_;
  std::vector<std::int64_t> begun_;  // by rank; -1 before the first slot
  std::vector<Agreement> agreements_;
  std::vector<Round> rounds_;  // closed ones are reused
  std::string failure_;
  int failure_status_ = 0;
};

TENON_ABI_END
