// The line of progress of a simulation: "sample 12/100 (12.0 %) | 1 failed | 3.4 samples/s | ETA 0:26".
#pragma once

#include <cstdint>
#include <string>

namespace tenon::simulate {

struct Progress {
  std::int64_t samples = 0;
  std::int64_t finished = 0, failed = 0;  ///< taken-up ones included
  std::int64_t settled_here = 0;          ///< by this process
  double seconds = 0;                     ///< of this process
};

std::string progress_line(const Progress& progress);

}  // namespace tenon::simulate
