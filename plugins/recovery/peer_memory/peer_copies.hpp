// Copies of ranks' states in the memory of other ranks: exchanged, found again after deaths, fetched. A copy
// whose bytes do not match the digest that its owner took counts as absent. When copies are made and what
// follows from a death is the policy's business (peer_memory.cpp).
#pragma once

#include <tenon/recovery.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::recovery_peer_memory {

/// The state of a rank, and the CRC-32C that the rank took of it: every single flipped bit changes that.
struct StateCopy {
  std::string bytes;
  std::uint32_t crc = 0;
  bool intact() const;
};

/// Copies of one slot: the own state, and those that this rank holds for others.
struct CopySet {
  std::int64_t slot = -1;
  std::map<int, StateCopy> of;  ///< by rank
};

/// Memory that stays in its process while ranks die and the run is rebuilt. While new copies are made, the
/// other set is the common roll-back point.
struct KeptCopies {
  CopySet newest, older;
};

class PeerCopies {
 public:
  /// Name of the policy's memory (RecoveryHost::kept), which holds KeptCopies.
  static constexpr const char* kMemory = "peer_memory";

  /// holders: by rank, the ranks whose memory holds its state, including itself. `host` outlives this.
  PeerCopies(RecoveryHost& host, std::vector<std::vector<int>> holders)
      : host_(host), rank_(host.run().rank), holders_(std::move(holders)) {}

  /// Collective: sends copies of all ranks' states of `slot` to their holders and replaces the older of two
  /// sets.
  void exchange(std::int64_t slot);
  /// Collective: returns the newest slot with a surviving, intact copy of every rank, or -1.
  std::int64_t find();
  /// Collective: restores every rank to its state of the slot that find() returned. Throws Error(kRun) where
  /// a copy arrives damaged.
  void bring_back(std::int64_t slot);
  /// Copies of this process that find() passed over because they are damaged.
  int damaged() const { return damaged_; }

 private:
  KeptCopies& kept();
  Communicator& group();
  bool holds(int holder, int of) const;
  /// Returns "S r r r" for each set of this process, one per line, without damaged copies.
  std::string text();

  RecoveryHost& host_;
  int rank_;
  std::vector<std::vector<int>> holders_;
  std::map<int, int> givers_;  ///< of the found slot: the rank that sends each copy, by owner
  int damaged_ = 0;
  std::unique_ptr<Communicator> group_;
};

}  // namespace tenon::recovery_peer_memory
