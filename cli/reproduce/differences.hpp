// Entries [[compare]] of a study: differences between values of arms and stages, seed by seed, with their
// interval, and what the study requires of them. Numbers and texts; it runs nothing.
#pragma once

#include "ab/statistics.hpp"
#include "config/run_schema.hpp"

#include <tenon/config.hpp>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon {
class JsonWriter;
}

namespace tenon::reproduce {

class Problems;
struct StudyFile;
struct StudyResult;

/// "ARM", the value at its end; "ARM:begin", before its first update; "ARM:STAGE" and "ARM:STAGE:begin", the
/// same of a stage.
struct ValueName {
  std::string arm, stage;
  bool begin = false;
  std::string text() const;
};
ValueName value_name(const std::string& text);

enum class Quantity { kMetric, kParameters };

/// arm - minus; with `over` the share (arm - minus) / (arm - over); of parameters arm / minus - 1.
struct Difference {
  std::string title;
  ValueName arm, minus;
  std::optional<ValueName> over;
  Quantity of = Quantity::kMetric;
  std::optional<double> at_most, at_least;  ///< what is required; without either it is only shown
  bool every_seed = false;                  ///< of each seed in place of the mean
  bool required() const { return at_most || at_least; }
};

struct DifferenceResult {
  Difference what;
  std::vector<std::optional<double>> values;  ///< by seed
  std::optional<ab::MeanEstimate> mean;
  std::optional<bool> met;  ///< empty where nothing is required, or a value is missing
};

std::vector<config::TableSpecs> difference_tables();
std::vector<Difference> read_differences(const Value& root);
void check_differences(const StudyFile& study, Problems& problems);

/// Fills StudyResult::differences.
void compute_differences(StudyResult& result);

/// Sections "Requirements" and "Differences"; "" for each that is absent.
std::string differences_markdown(const StudyResult& result);
std::string differences_text(const StudyResult& result);
void differences_json(JsonWriter& json, const StudyResult& result);

}  // namespace tenon::reproduce
