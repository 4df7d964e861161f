// Which machines hold copies of whose state, and how likely a failure leaves one of each: the placement of
// Gemini (SOSP 2023; papers/recovery.md section 2.4). Serves recovery `peer-memory`; moves no bytes.
#pragma once

#include <vector>

namespace tenon::recovery_peer_memory {

/// `copies` m of the state of each of `machines` N, the own one among them. When m divides N: groups of m
/// that hold each other's, the best there is. Otherwise floor(N / m) - 1 such groups, and a ring of the m < R
/// < 2m machines that are left, each held by itself and the next m - 1 of the ring. Groups and ring are
/// consecutive ranks, the ring the last ones. Needs 1 <= m <= N.
class Placement {
 public:
  Placement(int machines, int copies);

  int machines() const { return machines_; }
  int copies() const { return copies_; }

  /// The m machines that hold the state of `rank`: itself, then the others in ring order.
  std::vector<int> holders(int rank) const;
  /// The m machines whose state `rank` holds: its own, then the others against ring order.
  std::vector<int> held_by(int rank) const;
  /// True if the state of every machine is left when `lost` (one flag per machine) have gone.
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

/// Probability that Placement(machines, copies) has a copy of every state left when `lost` machines, any of
/// them with the same probability, go together. Exact for every N, m and k = lost; needs 1 <= m <= N and 0 <=
/// k <= N. For m | N it is  sum_j (-1)^j C(N/m, j) C(N - jm, k - jm) / C(N, k)  (section 2.4). To rounding as
/// long as m <= 28: the binomials of a ring then fit a double. Takes time N k.
double recovery_probability(int machines, int copies, int lost);

/// Lower bound of the same for m | N: 1 if k < m, else max(0, 1 - N C(N-m, k-m) / (m C(N, k))) (section 2.4),
/// the union bound over the groups. Exact for k < 2m.
double recovery_bound(int machines, int copies, int lost);

}  // namespace tenon::recovery_peer_memory
