// The table [tune] of an experiment: the keys that are tuned for every arm, the settings that are tried, the
// seeds and the budget of a try. Plain data and the points; tuning.hpp chooses among what was tried.
#pragma once

#include "ab/axis.hpp"
#include "config/run_schema.hpp"

#include <tenon/config.hpp>
#include <tenon/options.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::ab {

enum class TuneScale { kLog, kLinear };
enum class TuneArms { kEach, kShared };
enum class TuneFailure { kStop, kDrop };
enum class HardEnds { kNone, kLow, kHigh, kBoth };
inline constexpr auto kTuneScales =
    option::choice<TuneScale>({{"log", TuneScale::kLog}, {"linear", TuneScale::kLinear}});
inline constexpr auto kTuneArms =
    option::choice<TuneArms>({{"each", TuneArms::kEach}, {"shared", TuneArms::kShared}});
inline constexpr auto kTuneFailures =
    option::choice<TuneFailure>({{"stop", TuneFailure::kStop}, {"drop", TuneFailure::kDrop}});
inline constexpr auto kHardEnds = option::choice<HardEnds>({{"none", HardEnds::kNone},
                                                            {"low", HardEnds::kLow},
                                                            {"high", HardEnds::kHigh},
                                                            {"both", HardEnds::kBoth}});

/// One [[tune.key]]: a range, a list of numbers, or a list of choices without order.
struct TunedKey {
  std::string name;  ///< "optimizer.lr"
  double from = 0, to = 0;
  TuneScale scale = TuneScale::kLog;
  bool whole = false;                     ///< settings are rounded to whole numbers
  HardEnds hard = HardEnds::kNone;        ///< ends beyond which no setting makes sense: no edge there
  std::vector<double> values = {};        ///< instead of the range, ascending
  std::vector<std::string> choices = {};  ///< instead of the range; as on the command line
  std::vector<std::string> only = {};     ///< arms that have the key; empty: all

  bool is_range() const { return values.empty() && choices.empty(); }
  /// Settings of a list; 0 for a range.
  std::size_t listed() const { return values.size() + choices.size(); }
  bool belongs_to(const std::string& arm) const;
  /// The setting at `position` of 0 (the first) to 1 (the last), as on the command line.
  std::string setting(double position) const;
};

struct TuneRule {
  std::vector<TunedKey> keys = {};
  std::size_t trials = 0;  ///< settings that every arm tries
  std::vector<std::int64_t> seeds = {};
  std::optional<Budget> budget = {};  ///< of a run; empty: the experiment's
  TuneArms arms = TuneArms::kEach;
  TuneFailure failure = TuneFailure::kStop;
};

/// Positions by trial and key. One key: evenly spaced from end to end. Lists alone, with as many trials as
/// they have combinations: all combinations. Otherwise points of a Halton sequence whose digits are permuted
/// by a fixed key, those that repeat a setting left out. Throws Error(kConfig) if there are fewer settings
/// than trials.
std::vector<std::vector<double>> tune_points(const TuneRule& rule);

/// One line per problem of the rule by itself, each beginning "tune: ".
std::vector<std::string> problems_of(const TuneRule& rule);

/// Reads the table; its budget is read by the caller. Throws Error(kConfig).
TuneRule read_tune(const Value& table);
/// Its tables, for schemas.
std::vector<config::TableSpecs> tune_tables();

}  // namespace tenon::ab
