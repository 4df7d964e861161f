// The whole of a `tenon fuzz`: compositions judged in processes side by side, what fails shrunk and kept as a
// case, old cases judged first. The folder of cases and the page lie in `out`.
#pragma once

#include "fuzz/judging_process.hpp"
#include "fuzz/report.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::fuzz {

struct FuzzRequest {
  std::int64_t count = 100;
  double seconds = 0;         ///< after which no composition begins; 0 = no limit
  std::int64_t failures = 0;  ///< after so many none begins; 0 = no limit
  std::uint64_t seed = 1;
  std::string base_file;  ///< resolved; "" = the small bases
  std::vector<std::string> kinds;
  std::string out;
  std::string replay;  ///< folder of cases; "" = none
  int jobs = 1;
  std::string program;
  std::vector<std::string> components;  ///< that take turns, for the report
  double judgement_seconds = 120;  ///< one that takes longer is made once more, with three times the time
  double shrink_seconds = 60;      ///< per case
  std::function<void(const std::string& line, bool finished)> progress;
  const std::atomic<bool>* stopped = nullptr;
};

/// Judges and writes `out`/report.html. Throws Error(kConfig) where `out` cannot be written or `replay` holds
/// no case.
FuzzRun fuzz(const FuzzRequest& request);

/// "case.toml" of a finding: how it came about as comments, then the run.
std::string case_text(const Judged& judged, std::uint64_t seed, const Value& root);

/// An old case.
struct OldCase {
  std::string folder, identity;
  std::uint64_t seed = 1, index = 0;
};
/// Throws Error(kConfig) for a folder without cases, and for a case without its comments.
std::vector<OldCase> old_cases(const std::string& folder);

}  // namespace tenon::fuzz
