// Every number of a study of slabs, computed once: the tables, the JSON and the figure only print these.
#pragma once

#include "reproduce/slabs.hpp"

#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct Plan;
struct StudyResult;

/// Time and parallel efficiency over one link: weak T(1) / T(P), strong T(1) / (P T(P)).
struct SlabTime {
  double link_s = 0;                 ///< of an update, by closed form
  std::optional<double> efficiency;  ///< including the time of computing
};

struct SlabPoint {
  std::int64_t ranks = 1;
  std::vector<std::int64_t> points, local_points;
  std::int64_t elements = 0;                ///< closed form: complex numbers of one move, all ranks
  std::int64_t bytes = 0, move_bytes = 0;   ///< closed form: that rank 0 sends in an update
  std::vector<SlabTime> overlapped, added;  ///< one per link
  std::optional<double> compute_s;          ///< measured: an update of one rank on the local field
  std::optional<double> threads_s;          ///< measured: an update of `ranks` threads
  std::optional<double> threads_efficiency;
  std::optional<double> virtual_s;      ///< simulated: an update of `ranks` whose computing is free
  std::optional<double> counted_bytes;  ///< counted there: that rank 0 sends in an update
};

struct SlabArm {
  std::string name, title;
  bool weak = false;
  SlabOperator one;  ///< on one rank
  std::vector<SlabPoint> points;
};

struct SlabResult {
  std::vector<SlabArm> arms;
};

/// Fills StudyResult::slabs from its runs, warns if counted bytes differ from the closed form, and marks
/// simulated columns. `given`: the study as its file describes it.
void read_slab_results(StudyResult& result, const Plan& plan);

}  // namespace tenon::reproduce
