// A study of slabs as runs of `tenon train`: one rank on the part that each of P has, P ranks as threads, P
// ranks under the simulated clock. The base and the arm set the operator, its channels and its optimizer;
// this file sets fields, modes, the sharding and the clock.
#pragma once

#include "reproduce/plan.hpp"

#include <tenon/files.hpp>

#include <string>
#include <vector>

namespace tenon::reproduce {

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

}  // namespace tenon::reproduce
