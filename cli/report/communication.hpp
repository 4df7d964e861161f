// A run's time and bytes over several ranks: "communication" and "distributions" of summary.json, and the
// timelines of the observer `trace`, if any; shown on the run's page.
#pragma once

#include <tenon/files.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tenon::report {

struct PurposeCounts {
  double bytes = 0, operations = 0, blocked_s = 0, late_s = 0, transfer_s = 0;
};

struct RankTimes {
  double compute_s = 0, exposed_s = 0, late_s = 0, data_s = 0, evaluate_s = 0, save_s = 0;
  double generate_s = 0, other_s = 0, total_s = 0, overlapped_s = 0;
  std::map<std::string, PurposeCounts> purposes;
};

struct RecordedNumbers {
  double count = 0, mean = 0, least = 0, most = 0, not_positive = 0;
  std::map<double, double> histogram;  ///< lower ends (powers of two) -> numbers
};

struct TimelineSpan {
  std::string track, name;
  double begin_s = 0, end_s = 0;
  std::int64_t slot = 0;
};

struct CommunicationFacts {
  std::vector<RankTimes> ranks;
  std::map<std::string, RecordedNumbers> numbers;
  std::vector<std::vector<TimelineSpan>> timelines;  ///< by rank; empty without the observer `trace`
};

/// Throws Error(kRun) with the path of an invalid file; absent files are no error.
CommunicationFacts read_communication(FileSystem& files, const std::string& attempt);

/// Sections of the page; "" for a run of one rank that recorded nothing.
std::string communication_section(const CommunicationFacts& facts);

}  // namespace tenon::report
