// The table [recovery] of a study file: costs of an emulated cluster's failures for each arm, over the runs
// and over many schedules without training. Plain data, and its reading.
#pragma once

#include <tenon/config.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct StudyFile;

/// An entry of [[recovery.pair]]: a difference of two arms in the study's metric, per pair of equal seeds.
struct RecoveryPair {
  std::string arm, minus, title;
};

/// An entry of [[recovery.line]]: does the loss in the metric grow in proportion to the lost samples?
struct RecoveryLine {
  std::string title;
  std::vector<std::string> arms;
};

struct RecoveryStudy {
  std::int64_t draws = 1000;  ///< schedules per arm
  std::string full;           ///< arm whose overhead is divided by that of the others; "" for none
  std::vector<RecoveryPair> pairs;
  std::vector<RecoveryLine> lines;
};

/// Throws Error(kConfig) for a key that is not known.
RecoveryStudy read_recovery_study(const Value& table);
/// Checks the arms that it names; `say` and `arm_named` as in study_file.cpp.
void check_recovery_study(const StudyFile& study,
                          const std::function<void(const std::string&, const std::string&)>& say,
                          const std::function<void(const std::string&, const std::string&)>& arm_named);

}  // namespace tenon::reproduce
