// A run file that is a list of stages: [[stage]] tables, each laid over the file, each a run of its own that
// begins with the weights of an earlier one. They are trained one after another. [at.NAME] is laid over stage
// NAME, so that a command line or an arm of a study can change one stage: --set at.student.optimizer.lr=3e-4.
#pragma once

#include "config/run_schema.hpp"

#include <tenon/config.hpp>
#include <tenon/files.hpp>
#include <tenon/runtime.hpp>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::train {

struct Stage {
  std::string name;
  Config config;              ///< complete but for the folders of other stages
  std::vector<int> needs;     ///< earlier stages whose folders its configuration names, ascending
  Origin origin;              ///< of its table
  bool transforms = false;    ///< it trains nothing: its configuration is that of `tenon transform`
  int begins_with = -1;       ///< earlier stage that [init] from names; -1: none
  bool reads_others = false;  ///< it names stages elsewhere too, e.g. in its graph
  int model_of = -1;          ///< earlier transform whose result says [model]; -1: the file
  Value file_model = {};      ///< the file's [model], which stands for that of `model_of` until it is there
};

/// The tables that a file with stages has beside those of a run, for editors.
std::vector<config::TableSpecs> stage_tables();

/// The stages of a file; empty where it has no [[stage]]. Throws Error(kConfig) for names that are missing,
/// equal or no names of folders, and for stages that name themselves or a later one.
std::vector<Stage> read_stages(const Config& file);

/// Where the table [model] of a stage comes from that another one's result says: from there, or, before that
/// is there, from the file.
enum class ModelTable { kFound, kFile };

/// The configuration of stage `index`: texts "stage:NAME" are the folders of those stages. [init] begins with
/// the stage before unless it says otherwise.
Config stage_config(const std::vector<Stage>& stages, int index, const std::vector<std::string>& folders,
                    ModelTable table = ModelTable::kFound);

/// Checks stage `index` as far as that can be done before the others are trained: it is built with drawn
/// weights in place of those of another stage; one that reads other stages in its graph is only resolved.
/// Returns the resolved configuration, in which other stages stand as they are written.
Config check_stage(Runtime& runtime, const std::vector<Stage>& stages, int index,
                   std::vector<std::string>* facts);

/// Names of the folders of the stages below StagePlan::shared: each holds a digest of what the stage is, with
/// the stages before it. Trains and opens nothing.
std::vector<std::string> shared_stage_names(Runtime& runtime, const Config& file);

struct StagePlan {
  /// Folder below which stages are kept by what they are: those of equal configuration and inputs are trained
  /// once, whichever run came first. "" = below the run's attempt.
  std::string shared;
  /// Makes the model folder `folder` as the tables [transform] and [plugins] of a stage say.
  std::function<void(const Config& stage, const std::string& folder)> transform;
  /// Told before a stage begins, and once for one that is there already.
  std::function<void(int index, int stages, const std::string& name, bool done)> progress;
};

/// Trains all stages below the next attempt of the run, or with request.resume those of the newest attempt
/// that are not complete. The result is that of the last stage that ran; once all are complete, the attempt's
/// folder has links to the files of the last one, which it stands for.
RunResult train_stages(Runtime& runtime, const Config& file, const TrainRequest& request,
                       const StagePlan& plan);

}  // namespace tenon::train
