// Copies of ranks' states in the memory of other ranks: exchanged, found again after deaths, fetched. They
// stay in their process while ranks die and the run is rebuilt.
#pragma once

#include <tenon/recovery.hpp>
#include <tenon/transport.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::recovery_peer_memory {

class PeerCopies {
 public:
  /// holders: by rank, the ranks whose memory holds its state, including itself.
  PeerCopies(RecoveryHost& host, std::vector<std::vector<int>> holders)
      : host_(host), rank_(host.run().rank), holders_(std::move(holders)) {}

  /// Collective: sends copies of all ranks' states of `slot` to their holders and replaces the older of two
  /// sets.
  void exchange(std::int64_t slot);
  /// Collective: returns the newest slot with a surviving copy of every rank, or -1.
  std::int64_t find();
  /// Collective: restores every rank to its state of the slot that find() returned.
  void bring_back(std::int64_t slot);

 private:
  /// Copies of one slot: the own state, and those that this rank holds for others.
  struct Set {
    std::int64_t slot = -1;
    std::map<int, std::string> of;  ///< by rank
  };
  /// While new copies are made, the other set is the common roll-back point.
  struct Kept {
    Set newest, older;
  };
  Kept& kept();
  Communicator& group();
  bool holds(int holder, int of) const;
  /// Returns "S r r r" for each set of this process, one per line.
  std::string text();

  RecoveryHost& host_;
  int rank_;
  std::vector<std::vector<int>> holders_;
  std::map<int, int> givers_;  ///< of the found slot: the rank that sends each copy, by owner
  std::unique_ptr<Communicator> group_;
};

}  // namespace tenon::recovery_peer_memory
