// A folder with a model.toml is a model folder, every other one a run.
#include "models/stored_models.hpp"

#include "models/model_folder.hpp"
#include "record/run_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::models {

std::string model_folder_at(FileSystem& files, const std::string& path) {
  if (is_model_folder(files, path)) return path;
  try {
    if (newest_attempt(files, path) == 0) return "";
    const std::string attempt = open_newest_attempt(files, path).path;
    return is_model_folder(files, attempt) ? attempt : "";
  } catch (const FileError&) {  // absent, or a file: the error of a run says so
    return "";
  }
}

std::unique_ptr<StoredModel> StoredModelPaths::open(const std::string& folder,
                                                    std::optional<std::int64_t> step) {
  const std::string model = model_folder_at(files_, folder);
  if (model.empty())
    return std::make_unique<StoredRun>(user_, files_, registry_, host_, folder, CheckpointChoice{step, {}});
  if (step)
    fail_config(fmt::format("{}: step = {}: {} is a model folder, which has no steps", user_, *step, model));
  return std::make_unique<ModelFolder>(files_, registry_, host_, model);
}

}  // namespace tenon::models
