// One composition in a process of its own: the request that a `tenon fuzz` gives to another, the process that
// answers it, and the call that starts it and survives its crash, its hang and its memory.
#pragma once

#include "fuzz/report.hpp"

#include <tenon/host.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::fuzz {

struct JudgingRequest {
  std::uint64_t seed = 1, index = 0;
  std::string file;                     ///< a run as it is; "" = the composition is drawn
  std::string base_file;                ///< of --base, resolved; "" = the small bases
  std::vector<std::string> kinds;       ///< that are drawn; empty: all
  std::vector<std::string> identities;  ///< empty: those whose turn it is
  std::string folder;                   ///< for this request alone; its process makes case.toml in it
  std::string program;                  ///< tenon
  double seconds = 120;                 ///< after which the process is killed
  double memory_mb = 3000;              ///< anonymous pages at which it ends itself
};

/// Writes the request, starts `program fuzz --judge FILE` and waits. What that process does to itself is the
/// finding "process", of the composition in `folder`/case.toml.
Judged judged_in_process(const JudgingRequest& request);

/// `tenon fuzz --judge FILE`: returns the exit status.
int judge_request(const std::string& file, Host& host);

}  // namespace tenon::fuzz
