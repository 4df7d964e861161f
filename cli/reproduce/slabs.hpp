// The kind of studies with [slabs]: weak and strong scaling of a Fourier operator over slabs, measured on few
// ranks, counted on some, computed for many. Its runs are one rank on the part that each of P has, P ranks as
// threads, P ranks under the simulated clock. The base and the arm set the operator, its channels and its
// optimizer; the kind sets fields, modes, the sharding and the clock.
#pragma once

#include "reproduce/arms.hpp"

#include <tenon/files.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

// Bytes that the operator sends in an update, by closed forms, and the time of the links. A field [batch,
// channels, points...] has one dimension of points sharded over the ranks; each spectral layer moves the
// sharding to a dimension of modes and back (Witte et al. 2023), forward and backward. Arithmetic only: it
// knows of no run.

/// An operator as plugins/model/fno builds it, with coordinates and without padding, in float32.
struct SlabOperator {
  std::vector<std::int64_t> points;  ///< of the whole field, 2 to 4 dimensions
  std::vector<std::int64_t> modes;   ///< k per dimension: k low and k high ones, of the last one k
  int sharded_dim = 0;               ///< dimension of the points that is sharded over the ranks; not the last
  std::int64_t batch = 1, inputs = 1, outputs = 1, width = 1, layers = 1, projection = 1;

  /// The dimension that is sharded while `sharded_dim` is transformed: the first other one.
  int other() const { return sharded_dim == 0 ? 1 : 0; }
  std::int64_t kept(int dim) const;  ///< modes along a dimension: 2k, of the last one k
  /// Ranks beyond this have no points or no modes.
  std::int64_t useful_ranks() const;
};

/// Complex numbers that one move sends, all ranks together: B C prod(kept of all dimensions but
/// `sharded_dim`) x points of `sharded_dim` x (1 - sum over ranks of share of modes x share of points).
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

// The tables of the file.

/// The problem of an arm at one size.
struct SlabProblem {
  std::string arm, size;
  std::vector<std::int64_t> points, modes;
  /// Points and modes along the sharded dimension are those of one rank, and grow with the ranks (weak
  /// scaling); otherwise those of the whole (strong scaling).
  bool of_one_rank = false;

  /// The operator over `ranks`, with `sharded_dim`; its channels are not set.
  SlabOperator whole(std::int64_t ranks, int sharded_dim) const;
  /// The part of one of `ranks`, as a problem of one rank: its points, and as many modes along the sharded
  /// dimension as keep its number of modes, at least one.
  SlabOperator local(std::int64_t ranks, int sharded_dim) const;
};

class Slabs : public Arms {
 public:
  int sharded_dim = 0;                  ///< dimension of the points
  std::vector<std::int64_t> measured;   ///< ranks as threads, wall clock
  std::vector<std::int64_t> counted;    ///< ranks under the simulated clock
  std::vector<std::int64_t> predicted;  ///< ranks that closed forms are printed for
  std::vector<SlabLink> links;          ///< the first is that of the counted runs
  std::vector<SlabProblem> problems;

  /// Numbers of ranks for a size, which may have its own as `points`.
  const std::vector<std::int64_t>& predicted_at(const Size& size) const;
  /// Null if the size has none for the arm.
  const SlabProblem* problem(const std::string& arm, const std::string& size) const;

  std::string_view table() const override { return "slabs"; }
  void read(const Value& table) override;
  std::vector<config::TableSpecs> file_tables() const override;
  void check(const StudyFile& study, Problems& problems) const override;
  bool has_points() const override { return true; }
  std::string size_text(const StudyFile& study, const Size& size) const override;
  std::string tables(const StudyResult& result) const override;
  void json(JsonWriter& json, const StudyResult& result) const override;
  std::string figure(const StudyResult& result) const override;
  std::string lines(const StudyResult& result) const override;
  std::string legend(const StudyResult& result) const override { return ""; }

 protected:
  StudyFile as_runs(const StudyFile& given, const Size& size, const std::string& folder) const override;
  void check_plan(const StudyFile& given, const Size& size, const Plan& plan) const override;
  bool runs_alone(const StudyFile& study, const ab::Job& job) const override { return true; }
  void read_numbers(StudyResult& result, const Plan& plan, const std::string& folder) const override;
};

// Its runs.

enum class SlabKind : std::uint8_t {
  kLocal,    ///< one rank, wall clock, the field that one of `ranks` has
  kThreads,  ///< `ranks` threads, wall clock, the whole field
  kVirtual,  ///< `ranks` under the simulated clock on the first link, computing costs nothing
};

struct SlabRun {
  std::string arm;
  SlabKind kind = SlabKind::kLocal;
  std::int64_t ranks = 1;  ///< of a kLocal run: the least for which its field is the part of one rank

  std::string name() const;  ///< "weak.virtual.8"
};

/// All runs of a size, in the order of the arms that at_slabs() makes.
std::vector<SlabRun> slab_runs(const StudyFile& study, const Size& size);

/// The study with an arm per run. Fields are read from `data_folder`.
StudyFile at_slabs(const StudyFile& study, const Size& size, const std::string& data_folder);

/// Writes the fields of normal numbers that the runs read, unless they exist. Throws FileError.
void write_fields(FileSystem& files, const StudyFile& study, const Size& size,
                  const std::string& data_folder);

/// The operator of a run over the whole field, with the channels of its configuration. Throws Error(kConfig)
/// naming the arm if closed forms do not hold for it.
SlabOperator operator_of(const StudyFile& study, const Size& size, const SlabRun& run,
                         const ResolvedRun& resolved);

/// Throws as operator_of() before any run is made.
void require_closed_forms(const StudyFile& study, const Size& size, const Plan& plan);

// Its numbers.

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

struct SlabResult : KindNumbers {
  std::vector<SlabArm> arms;
};

/// Fills StudyResult::numbers from its runs, warns if counted bytes differ from the closed form, and marks
/// simulated columns.
void read_slab_results(StudyResult& result, const Plan& plan);

}  // namespace tenon::reproduce
