// A folder with a model.toml is a model folder, every other one a run.
#include "models/stored_models.hpp"

#include "models/model_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::models {

std::unique_ptr<StoredModel> StoredModelPaths::open(const std::string& folder,
                                                    std::optional<std::int64_t> step) {
  if (!is_model_folder(files_, folder))
    return std::make_unique<StoredRun>(user_, files_, registry_, host_, folder, CheckpointChoice{step, {}});
  if (step)
    fail_config(fmt::format("{}: step = {}: {} is a model folder, which has no steps", user_, *step, folder));
  return std::make_unique<ModelFolder>(files_, registry_, host_, folder);
}

}  // namespace tenon::models
