// Trained models that were stored: the graph, parameters and weights of a run, or of a model folder. A plugin
// gets them from its host (host.query(StoredModels::kId)): teachers, starting points, sources of a transform.
#pragma once

#include <tenon/config.hpp>
#include <tenon/dataset.hpp>
#include <tenon/model.hpp>
#include <tenon/tensor.hpp>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// Name, type and global shape of a stored tensor.
struct StoredTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
};

/// A model apart from its weights: the blueprint with its options, and what its data must have.
struct ModelDescription {
  Value model;  ///< the table [model]: `type` and its options
  /// Attributes of the data that it was made for: "vocabulary". Empty where an earlier version stored it.
  std::vector<DataAttribute> attributes;
};

/// Weights are those that the run evaluates and that `weights_hash` covers, of replica 0. Every byte is
/// checked when it is read. One thread at a time.
class StoredModel {
 public:
  virtual ~StoredModel();
  /// The attempt or model folder that was opened.
  virtual std::string_view folder() const = 0;
  /// Slot of the checkpoint; -1 for a model folder.
  virtual std::int64_t step() const = 0;
  /// Names the files of the weights: models of one digest have the same weights.
  virtual std::string_view digest() const = 0;
  virtual const ModelDescription& description() const = 0;
  /// Parameters, by name ascending.
  virtual std::span<const StoredTensor> parameters() const = 0;
  /// Tensors of the optimizer's state, by name ascending; empty where none was stored.
  virtual std::span<const StoredTensor> optimizer_state() const = 0;
  /// Reads elements [offset, offset + out.shape) of a parameter, or of the optimizer's state, into host
  /// memory. Throws Error(kRun) that names file and block where the file is damaged.
  virtual void read(std::string_view tensor, const Shape& offset, TensorView out) = 0;
  /// The graph of the model for data with these fields, its run's edits applied. Throws Error(kConfig) where
  /// the data do not fit, or lack an attribute that the model was made for.
  virtual GraphSpec graph(const DataInfo& data) = 0;
  /// Abilities of the blueprint outside training: LanguageModel::kId. Null: it has none. Graphs that one
  /// gives lack the edits of the run: see edited().
  virtual void* query(std::string_view interface_id) = 0;
  /// Another graph of the blueprint with the edits of the run. Throws Error(kConfig) where one does not fit.
  virtual GraphSpec edited(GraphSpec graph, const DataInfo& data) = 0;
};

/// Service of the host ("tenon.stored_models/1").
class StoredModels {
 public:
  static constexpr const char* kId = "tenon.stored_models/1";
  virtual ~StoredModels();
  /// `folder`: a run (then its newest attempt), an attempt, a stage, or a model folder; `step`: of a
  /// checkpoint, or the newest. Throws Error(kConfig) that says what is missing there.
  virtual std::unique_ptr<StoredModel> open(const std::string& folder, std::optional<std::int64_t> step) = 0;
};

TENON_ABI_END
