// Results of every stage of a run in stages: its loss before the first update and after the last, its
// updates and tokens, parameters and bytes of weights. Reads the folders below an attempt; trains nothing.
#pragma once

#include "reproduce/plan.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tenon::reproduce {

struct StudyResult;

struct StageResult {
  std::string name;         ///< of the stage
  std::string folder;       ///< its attempt, or the model folder that a transform made
  std::string shared;       ///< name of its shared folder, equal for arms that share it
  bool transforms = false;  ///< it trained nothing
  /// The study's metric before its first update, where it says run.evaluate_first, and at its end. A
  /// transform has the value with which the next stage begins.
  std::optional<double> begin, end;
  double updates = 0, tokens = 0, wall_s = 0;
  std::int64_t parameters = 0, weight_bytes = 0;  ///< 0 where they are not known
};

/// The stages of an attempt, in their order; none for a run without. Stages that did not complete are left
/// out.
/// A stage's value is that of the first of `metrics` that it has.
std::vector<StageResult> read_stages_of(const std::string& attempt, const std::vector<std::string>& metrics);

/// Parameters and bytes of weights in the files *.safetensors of a model folder. Throws Error(kRun) for a
/// file that is not one.
struct StoredWeights {
  std::int64_t parameters = 0, bytes = 0;
};
StoredWeights weights_in(const std::string& model_folder);

/// Adds parameters to the stages of all runs, as building each says.
void count_parameters(StudyResult& result, const Resolver& resolve);

/// The section "After each stage"; "" where no arm has stages.
std::string stages_markdown(const StudyResult& result);

}  // namespace tenon::reproduce
