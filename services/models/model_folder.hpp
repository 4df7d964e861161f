// A model folder: `model.toml`, which says what the model is, beside its weights in safetensors files. The
// form in which models leave a run: results of transforms and imports.
#pragma once

#include "models/stored_run.hpp"
#include "store/safetensors.hpp"

#include <tenon/files.hpp>
#include <tenon/transform.hpp>

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::models {

inline constexpr const char* kModelFile = "model.toml";

/// Whether `path` holds a model.toml.
bool is_model_folder(FileSystem& files, const std::string& path);

class ModelFolder final : public StoredModel {
 public:
  /// Reads all files whole: their bytes must give the digest that model.toml has. Throws Error(kConfig) for a
  /// folder that is incomplete, Error(kRun) for one that is damaged.
  ModelFolder(FileSystem& files, Registry& registry, Host& host, std::string folder);

  std::string_view folder() const override { return folder_; }
  std::int64_t step() const override { return -1; }
  /// `weights_hash`, as of a run with the same weights.
  std::string_view digest() const override { return digest_; }
  const ModelDescription& description() const override { return description_; }
  std::span<const StoredTensor> parameters() const override { return parameters_; }
  std::span<const StoredTensor> optimizer_state() const override { return {}; }
  void read(std::string_view tensor, const Shape& offset, TensorView out) override;
  GraphSpec graph(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return blueprint().query(interface_id); }
  GraphSpec edited(GraphSpec graph, const DataInfo& data) override {
    return blueprint().edited(std::move(graph), data);
  }

 private:
  Blueprint& blueprint();
  void read_description(FileSystem& files);
  void open_weights(FileSystem& files);
  void verify() const;

  Registry& registry_;
  Host& host_;
  std::string folder_, digest_;
  ModelDescription description_;
  std::vector<SafetensorsReader> files_;
  std::vector<StoredTensor> parameters_;
  std::vector<std::pair<std::size_t, const SafetensorsEntry*>> places_;  ///< file and entry, by parameter
  std::unique_ptr<Blueprint> blueprint_;
};

/// Origin of a model, for its model.toml: lines of `[made_by]`.
using MadeBy = std::vector<std::pair<std::string, std::string>>;

/// Writes a model folder, tensor by tensor, under a temporary name beside it; finish() gives it its own.
class ModelFolderWriter final : public TensorWriter {
 public:
  /// Throws Error(kConfig) if `folder` exists.
  ModelFolderWriter(FileSystem& files, std::string folder, TransformedModel model, MadeBy made_by);
  /// Removes what was written unless finish() has returned.
  ~ModelFolderWriter() override;

  void write(TensorView piece) override;
  /// Below `about/` in the folder.
  void file(std::string_view name, std::string_view bytes) override;
  /// Throws Error(kPlugin) that names the first tensor that is not complete. Returns the digest.
  std::string finish();

 private:
  void begin_next();
  std::string description() const;

  FileSystem& files_;
  std::string folder_, partial_;
  TransformedModel model_;
  MadeBy made_by_;
  std::unique_ptr<WritableFile> file_;
  StateHasher hasher_;
  std::size_t current_ = 0;  ///< tensor that is being written
  std::int64_t left_ = 0;    ///< bytes of it that are still to come
  std::string digest_;
  bool finished_ = false;
};

}  // namespace tenon::models
