// Copies of ranks' states in the memory of other ranks: exchanged, found again after deaths, fetched. They
// stay in their process while ranks die and the run is built again around them.
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
  /// holders: by rank, whose memory holds its state, itself among them.
  PeerCopies(RecoveryHost& host, std::vector<std::vector<int>> holders)
      : host_(host), rank_(host.run().rank), holders_(std::move(holders)) {}

  /// Collective: copies of all ranks' states of `slot` go to their holders, and replace the older of two
  /// sets.
  void exchange(std::int64_t slot);
  /// The newest slot of which a copy of every rank is left, -1 if of none. Collective.
  std::int64_t find();
  /// Collective: every rank goes back to its state of the slot that find() named.
  void bring_back(std::int64_t slot);

 private:
  /// Of one slot: the own state, and those that this rank holds for others.
  struct Set {
    std::int64_t slot = -1;
    std::map<int, std::string> of;  ///< by rank
  };
  /// While newer ones are made, the others are what all can go back to.
  struct Kept {
    Set newest, older;
  };
  Kept& kept();
  Communicator& group();
  bool holds(int holder, int of) const;
  /// "S r r r" of each set of this process, one a line.
  std::string text();

  RecoveryHost& host_;
  int rank_;
  std::vector<std::vector<int>> holders_;
  std::map<int, int> givers_;  ///< of the slot that was found: who gives a copy, by whose state it is
  std::unique_ptr<Communicator> group_;
};

}  // namespace tenon::recovery_peer_memory
