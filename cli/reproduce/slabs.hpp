// Bytes that a Fourier operator over slabs sends in an update, by closed forms, and the time of the links. A
// field [batch, channels, points...] has one dimension of points sharded over the ranks; each spectral layer
// moves the sharding to a dimension of modes and back (Witte et al. 2023), forward and backward. Arithmetic
// only: it knows of no run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::reproduce {

/// An operator as plugins/model/fno builds it, with coordinates and without padding, in float32.
struct SlabOperator {
  std::vector<std::int64_t> points;  ///< of the whole field, 2 to 4 dimensions
  std::vector<std::int64_t> modes;   ///< k per dimension: k low and k high ones, of the last one k
  int cut = 0;                       ///< dimension of the points that is sharded over the ranks; not the last
  std::int64_t batch = 1, inputs = 1, outputs = 1, width = 1, layers = 1, projection = 1;

  /// The dimension that is sharded while `cut` is transformed: the first other one.
  int other() const { return cut == 0 ? 1 : 0; }
  std::int64_t kept(int dim) const;  ///< modes along a dimension: 2k, of the last one k
  /// Ranks beyond this have no points or no modes.
  std::int64_t useful_ranks() const;
};

/// Complex numbers that one move sends, all ranks together: B C prod(kept of all dimensions but `cut`) x
/// points of `cut` x (1 - sum over ranks of share of modes x share of points).
std::int64_t move_elements(const SlabOperator& op, std::int64_t ranks);

/// Equal exchanges of an update.
struct Exchange {
  const char* what = "";      ///< moves, gradients, sums or norm
  std::int64_t count = 0;     ///< in an update
  std::int64_t first = 0;     ///< bytes that rank 0 sends in one
  double most = 0;            ///< bytes that the busiest rank sends or receives in one
  std::int64_t rounds = 1;    ///< latencies, one after the other, if messages of a round overlap
  std::int64_t messages = 0;  ///< of one rank, at most: latencies if nothing overlaps
};

/// All exchanges of an update over `ranks`; none for one rank.
std::vector<Exchange> exchanges(const SlabOperator& op, std::int64_t ranks);

/// Bytes that rank 0 sends in an update; of one kind if `what` is given.
std::int64_t bytes_of_first(const std::vector<Exchange>& list, const std::string& what = "");

struct SlabLink {
  std::string name, title;
  double bandwidth = 0;  ///< bytes/s of one direction of a rank's link
  double latency = 0;    ///< seconds
};
enum class Latencies : std::uint8_t {
  kOverlap,  ///< of messages of one round, as those of the simulated clock do
  kAdd,      ///< one after the other
};
/// Seconds of the links in an update, with no overlap with computing.
double link_seconds(const std::vector<Exchange>& list, const SlabLink& link, Latencies latencies);

}  // namespace tenon::reproduce
