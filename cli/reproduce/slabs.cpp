// Closed forms of slabs.hpp. Names of exchanges are those of the layers: spectral_conv moves, channel_linear
// sums gradients of weights that all ranks hold, relative_l2 sums the loss, the core the norm of gradients.
#include "reproduce/slabs.hpp"

#include "base/at.hpp"

#include <tenon/tensor.hpp>

#include <algorithm>

namespace tenon::reproduce {
namespace {

constexpr std::int64_t kReal = 4, kComplex = 8, kDouble = 8;  // bytes
constexpr std::int64_t kSampleSums = 4;                       // of relative_l2, per sample

std::int64_t length_of(const std::vector<std::int64_t>& offsets, std::int64_t rank) {
  const auto r = static_cast<std::size_t>(rank);
  return offsets[r + 1] - offsets[r];
}

/// Batch, channels and modes of the dimensions that no move touches.
std::int64_t untouched(const SlabOperator& op) {
  std::int64_t elements = op.batch * op.width;
  for (int dim = 0; dim < static_cast<int>(op.points.size()); ++dim)
    if (dim != op.cut && dim != op.other()) elements *= op.kept(dim);
  return elements;
}

struct Shares {
  std::int64_t points = 0, modes = 0;             ///< of the whole
  std::vector<std::int64_t> at_points, at_modes;  ///< offsets

  Shares(const SlabOperator& op, std::int64_t ranks)
      : points(base::at(op.points, op.cut)),
        modes(op.kept(op.other())),
        at_points(balanced_offsets(points, static_cast<int>(ranks))),
        at_modes(balanced_offsets(modes, static_cast<int>(ranks))) {}
  std::int64_t stays(std::int64_t rank) const {
    return length_of(at_points, rank) * length_of(at_modes, rank);
  }
  /// From sharded points to sharded modes; the reverse move receives what this one sends.
  std::int64_t sends(std::int64_t rank) const { return modes * length_of(at_points, rank) - stays(rank); }
  std::int64_t receives(std::int64_t rank) const { return points * length_of(at_modes, rank) - stays(rank); }
};

void add_moves(std::vector<Exchange>& list, const SlabOperator& op, std::int64_t ranks) {
  const Shares shares(op, ranks);
  const std::int64_t bytes = untouched(op) * kComplex;
  std::int64_t most = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    most = std::max({most, shares.sends(rank), shares.receives(rank)});
  for (const bool to_modes : {true, false}) {
    const std::int64_t first = to_modes ? shares.sends(0) : shares.receives(0);
    // A layer's x moves forward and its y back; their gradients the other way round.
    list.push_back({"moves", 2 * op.layers, bytes * first, static_cast<double>(bytes * most), 1, ranks - 1});
  }
}

/// A sum of `elements` on all ranks: pieces are summed, then sent to all ranks.
void add_sum(std::vector<Exchange>& list, const char* what, std::int64_t count, std::int64_t elements,
             std::int64_t item, std::int64_t ranks) {
  const std::int64_t piece = (elements + ranks - 1) / ranks;  // of rank 0, which has a largest one
  const std::int64_t least = elements / ranks;
  const std::int64_t summed = elements - piece, handed = piece * (ranks - 1);
  list.push_back({what, count, item * summed, static_cast<double>(item * std::max(elements - least, handed)),
                  1, std::min(elements, ranks - 1)});
  list.push_back({what, count, item * handed, static_cast<double>(item * std::max(elements - least, handed)),
                  1, ranks - 1});
}

}  // namespace

std::int64_t SlabOperator::kept(int dim) const {
  const std::int64_t k = base::at(modes, dim);
  return dim + 1 == static_cast<int>(points.size()) ? k : 2 * k;
}

std::int64_t SlabOperator::useful_ranks() const {
  return std::min(base::at(points, cut), kept(other()));
}

std::int64_t move_elements(const SlabOperator& op, std::int64_t ranks) {
  const Shares shares(op, ranks);
  std::int64_t stays = 0;
  for (std::int64_t rank = 0; rank < ranks; ++rank) stays += shares.stays(rank);
  return untouched(op) * (shares.modes * shares.points - stays);
}

std::vector<Exchange> exchanges(const SlabOperator& op, std::int64_t ranks) {
  std::vector<Exchange> list;
  if (ranks < 2) return list;
  add_moves(list, op, ranks);
  const std::int64_t lifted = op.inputs + static_cast<std::int64_t>(op.points.size());
  const std::int64_t linear[][3] = {{1, lifted, op.width},
                                    {op.layers, op.width, op.width},
                                    {1, op.width, op.projection},
                                    {1, op.projection, op.outputs}};
  for (const auto& [count, from, to] : linear) {
    add_sum(list, "gradients", count, from * to, kReal, ranks);
    add_sum(list, "gradients", count, to, kReal, ranks);
  }
  // The metric and the loss forward, the loss backward.
  add_sum(list, "sums", 3, kSampleSums * op.batch, kDouble, ranks);
  // A ring of one number, which the last rank owns (docs/reductions.md).
  list.push_back({"norm", 1, ranks == 2 ? kDouble : 2 * kDouble,
                  2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks) * kDouble,
                  2 * (ranks - 1), 2 * (ranks - 1)});
  return list;
}

std::int64_t bytes_of_first(const std::vector<Exchange>& list, const std::string& what) {
  std::int64_t bytes = 0;
  for (const Exchange& exchange : list)
    if (what.empty() || what == exchange.what) bytes += exchange.count * exchange.first;
  return bytes;
}

double link_seconds(const std::vector<Exchange>& list, const SlabLink& link, Latencies latencies) {
  double seconds = 0;
  for (const Exchange& exchange : list) {
    const std::int64_t waits = latencies == Latencies::kOverlap ? exchange.rounds : exchange.messages;
    seconds += static_cast<double>(exchange.count) *
               (exchange.most / link.bandwidth + static_cast<double>(waits) * link.latency);
  }
  return seconds;
}

}  // namespace tenon::reproduce
