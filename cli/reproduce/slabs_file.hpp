// The tables [slabs], [[slabs.link]] and [[slabs.problem]] of a study file: weak and strong scaling of a
// Fourier operator over slabs, measured on few ranks, counted on some, computed for many.
#pragma once

#include "reproduce/slabs.hpp"

#include <tenon/config.hpp>

#include <functional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct StudyFile;
struct Size;

/// The problem of an arm at one size.
struct SlabProblem {
  std::string arm, size;
  std::vector<std::int64_t> points, modes;
  /// Points and modes along the cut are those of one rank, and grow with the ranks (weak scaling); otherwise
  /// those of the whole (strong scaling).
  bool of_one_rank = false;

  /// The operator over `ranks`, with `cut`; its channels are not set.
  SlabOperator whole(std::int64_t ranks, int cut) const;
  /// The part of one of `ranks`, as a problem of one rank: its points, and as many modes along the sharded
  /// dimension as keep its number of modes, at least one.
  SlabOperator local(std::int64_t ranks, int cut) const;
};

struct Slabs {
  int cut = 0;                          ///< dimension of the points
  std::vector<std::int64_t> measured;   ///< ranks as threads, wall clock
  std::vector<std::int64_t> counted;    ///< ranks under the simulated clock
  std::vector<std::int64_t> predicted;  ///< ranks that closed forms are printed for
  std::vector<SlabLink> links;          ///< the first is that of the counted runs
  std::vector<SlabProblem> problems;

  /// Numbers of ranks for a size, which may have its own as `points`.
  const std::vector<std::int64_t>& predicted_at(const Size& size) const;
  /// Null if the size has none for the arm.
  const SlabProblem* problem(const std::string& arm, const std::string& size) const;
};

/// Reads the tables. Throws Error(kConfig) for keys and types.
Slabs read_slabs(const Value& table);

/// Reports their errors by `say(key, problem)`.
void check_slabs(const StudyFile& study,
                 const std::function<void(const std::string& key, const std::string& problem)>& say,
                 const std::function<void(const std::string& key, const std::string& arm)>& arm_named);

}  // namespace tenon::reproduce
