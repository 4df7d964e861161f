// Placement of copies on machines, and the probability that a copy of each state survives a failure: the
// placement of Gemini (SOSP 2023; papers/recovery.md section 2.4). Used by recovery `peer-memory`; moves no
// bytes.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>
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

/// Machines in groups of exactly m; the ring has the others, none if m divides N.
inline int machines_in_groups(int machines, int copies) {
  return machines % copies == 0 ? machines : (machines / copies - 1) * copies;
}

inline double choose(int n, int k) {
  if (k < 0 || k > n) return 0;
  double ways = 1;
  for (int i = 1; i <= k; ++i) ways = ways * (n - k + i) / i;
  return std::round(ways);
}

/// Ways to lose l of `size` machines of one group (size = m) or ring (m < size < 2m) with every state left:
/// all but those with m consecutive lost neighbours. A ring below 2m has room for one such run: it starts at
/// any machine, the one before it survives, and l - m of the size - m - 1 others are lost as well.
inline double ways_to_survive(int size, int copies, int l) {
  if (l == size) return 0;
  return l < copies ? choose(size, l) : choose(size, l) - size * choose(size - copies - 1, l - copies);
}

/// Distribution of the number lost, 0 .. most, if each machine is lost with probability `each`.
class LostCount {
 public:
  LostCount(int most, double each) : each_(each), probability_(static_cast<std::size_t>(most) + 1, 0.0) {
    probability_[0] = 1;
  }
  /// Another `size` machines, of which l may be lost in ways(l) ways.
  template <typename Ways>
  void add(int size, const Ways& ways) {
    std::vector<double> sum(probability_.size(), 0.0);
    for (int l = 0; l <= size && static_cast<std::size_t>(l) < sum.size(); ++l) {
      const double share = ways(l) * std::pow(each_, l) * std::pow(1 - each_, size - l);
      for (std::size_t total = l; total < sum.size(); ++total) {
        sum[total] += share * probability_[total - static_cast<std::size_t>(l)];
      }
    }
    probability_ = std::move(sum);
  }
  double of_most() const { return probability_.back(); }

 private:
  double each_;
  std::vector<double> probability_;
};

inline Placement::Placement(int machines, int copies)
    : machines_(machines), copies_(copies), in_groups_(machines_in_groups(machines, copies)) {}

inline Placement::Circle Placement::circle(int rank) const {
  if (rank < in_groups_) return {rank / copies_ * copies_, copies_};
  return {in_groups_, machines_ - in_groups_};
}

inline std::vector<int> Placement::walk(int rank, int direction) const {
  const auto [first, size] = circle(rank);
  std::vector<int> ranks;
  for (int i = 0; i < copies_; ++i) ranks.push_back(first + (rank - first + direction * i + size) % size);
  return ranks;
}

inline std::vector<int> Placement::holders(int rank) const {
  return walk(rank, 1);
}

inline std::vector<int> Placement::held_by(int rank) const {
  return walk(rank, -1);
}

inline bool Placement::survives(const std::vector<bool>& lost) const {
  for (int rank = 0; rank < machines_; ++rank) {
    const std::vector<int> copies = holders(rank);
    const bool gone = std::all_of(copies.begin(), copies.end(), [&](int holder) { return lost[holder]; });
    if (gone) return false;
  }
  return true;
}

// Every machine is lost independently with probability k / N; the probability to survive, given k losses in
// all, does not depend on that k / N. Sums only positive terms below 1: the alternating sum of the paper
// cancels, and its binomials overflow, from some hundred machines on.
inline double recovery_probability(int machines, int copies, int lost) {
  const double each = static_cast<double>(lost) / machines;
  LostCount survived(lost, each), any(lost, each);
  const auto add = [&](int size) {
    survived.add(size, [&](int l) { return ways_to_survive(size, copies, l); });
    any.add(size, [&](int l) { return choose(size, l); });
  };
  const int in_groups = machines_in_groups(machines, copies);
  for (int first = 0; first < in_groups; first += copies) add(copies);
  if (in_groups < machines) add(machines - in_groups);
  return survived.of_most() / any.of_most();
}

inline double recovery_bound(int machines, int copies, int lost) {
  if (lost < copies) return 1;
  double group_lost = 1;  // C(N-m, k-m) / C(N, k) = prod (k - i) / (N - i)
  for (int i = 0; i < copies; ++i) group_lost *= static_cast<double>(lost - i) / (machines - i);
  return std::max(0.0, 1 - static_cast<double>(machines) / copies * group_lost);
}

}  // namespace tenon::recovery_peer_memory
