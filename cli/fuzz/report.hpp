// The report of `tenon fuzz`: how often each component, each pair of components and each identity was held,
// and what failed; as a page, as text and as JSON.
#pragma once

#include "fuzz/judge.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tenon::fuzz {

struct Judged {
  std::uint64_t index = 0;
  std::string base;
  std::set<std::string> components;  ///< "sync.ddp"
  Verdict verdict;
  double seconds = 0;
  std::string folder;     ///< of the case that fails; "" = nothing failed
  std::size_t lines = 0;  ///< of its file, shrunk
  bool is_old = false;    ///< a case of --replay
  bool ended = true;      ///< in its time
  std::string slow;  ///< records of an earlier judgement that did not end in its time; "" = there is none
};

struct FuzzRun {
  std::uint64_t seed = 1;
  double seconds = 0;
  std::vector<std::string> components;  ///< that take turns
  std::vector<Judged> judged;
};

/// How often components, and pairs of components of two kinds, were in compositions that trained.
struct Coverage {
  std::map<std::string, int> components;
  std::map<std::pair<std::string, std::string>, int> pairs;
};
Coverage coverage_of(const FuzzRun& run);
/// Pairs of components of different kinds that take turns and were in no composition that trained.
std::vector<std::pair<std::string, std::string>> uncovered_pairs(const FuzzRun& run,
                                                                 const Coverage& coverage);

std::string text_report(const FuzzRun& run);
std::string html_report(const FuzzRun& run);
std::string json_report(const FuzzRun& run);

/// The verdict on its way from the process that judged.
std::string verdict_line(const Judged& judged);
/// Throws Error(kRun) for other text.
Judged read_verdict(const std::string& line);

}  // namespace tenon::fuzz
