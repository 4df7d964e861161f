// Place of this process among those of a run: from the variables of `tenon launch`, or of a scheduler
// (docs/processes.md). A transport of MPI asks its library instead.
#pragma once

#include "slurm_step.hpp"

#include <tenon/runtime.hpp>

#include <string>

namespace tenon::cli {

/// `transport`: the run's transport.type, "" where it has none. TENON_RANK comes first, then a step of Slurm
/// with several tasks; without either all ranks are threads of this process. Throws Error(kConfig) where the
/// variables give no place, or the ranks of `transport` are threads and the step would train the run once
/// in every task.
ProcessPlace process_place(const Variables& variables, const std::string& transport);

/// The same for people, in a line. A wrong variable is the text of its error.
std::string place_text(const Variables& variables);

}  // namespace tenon::cli
