// Placement of copies on machines, and the probability that a copy of each state survives a failure: the
// placement of Gemini (SOSP 2023; papers/recovery.md section 2.4). Used by recovery `peer-memory`; moves no
// bytes.
#pragma once

#include <vector>

namespace tenon::recovery_peer_memory {

/// `copies` m of the state of each of `machines` N, including its own. When m divides N: groups of m whose
/// members hold each other's state, the optimum. Otherwise floor(N / m) - 1 such groups, and a ring of the
/// remaining m < R < 2m machines; the state of each is held by itself and the next m - 1 of the ring. Groups
/// and ring are consecutive ranks, the ring the last ones. Needs 1 <= m <= N.
class Placement {
 public:
  Placement(int machines, int copies);

  int machines() const { return machines_; }
  int copies() const { return copies_; }

  /// Returns the m machines that hold the state of `rank`: itself, then the others in ring order.
  std::vector<int> holders(int rank) const;
  /// Returns the m machines whose state `rank` holds: its own, then the others against ring order.
  std::vector<int> held_by(int rank) const;
  /// Returns whether the state of every machine survives the loss of `lost` (one flag per machine).
  bool survives(const std::vector<bool>& lost) const;

 private:
  /// The group or ring of `rank`: first machine and number of machines.
  struct Circle {
    int first, size;
  };
  Circle circle(int rank) const;
  std::vector<int> walk(int rank, int direction) const;

  int machines_, copies_, in_groups_;
};

/// Returns the probability that Placement(machines, copies) has a copy of every state left when `lost`
/// machines, all equally likely, fail together. Exact for every N, m and k = lost; needs 1 <= m <= N and 0 <=
/// k <= N. For m | N it is  sum_j (-1)^j C(N/m, j) C(N - jm, k - jm) / C(N, k)  (section 2.4). Exact up to
/// rounding for m <= 28: the binomials of a ring then fit a double. Takes time N k.
double recovery_probability(int machines, int copies, int lost);

/// Returns a lower bound of the same for m | N: 1 if k < m, else max(0, 1 - N C(N-m, k-m) / (m C(N, k)))
/// (section 2.4), the union bound over the groups. Exact for k < 2m.
double recovery_bound(int machines, int copies, int lost);

}  // namespace tenon::recovery_peer_memory
