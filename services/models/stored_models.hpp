// The service StoredModels of a host: runs and model folders by their path.
#pragma once

#include <tenon/files.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>
#include <tenon/stored_model.hpp>

#include <memory>
#include <optional>
#include <string>

namespace tenon::models {

/// `path`, or the newest attempt of the run `path`, if that is a model folder; else "".
std::string model_folder_at(FileSystem& files, const std::string& path);

class StoredModelPaths final : public StoredModels {
 public:
  /// All outlive the models that are opened. `user` begins every message: "[init] from".
  StoredModelPaths(std::string user, FileSystem& files, Registry& registry, Host& host)
      : user_(std::move(user)), files_(files), registry_(registry), host_(host) {}
  std::unique_ptr<StoredModel> open(const std::string& folder, std::optional<std::int64_t> step) override;

 private:
  std::string user_;
  FileSystem& files_;
  Registry& registry_;
  Host& host_;
};

}  // namespace tenon::models
