// Contract `transform/1`: stored models in, a stored model out: pruned, merged, untied, cast. A transform
// says first what the result will be, so that a plan that continues with it is checked before anything is
// written.
#pragma once

#include <tenon/stored_model.hpp>

#include <span>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

/// The result: what it is, and its parameters in the order in which they will be written.
struct TransformedModel {
  ModelDescription description;
  std::vector<StoredTensor> parameters;
};

/// Takes the tensors of the result in the order that was described. Host memory.
class TensorWriter {
 public:
  virtual ~TensorWriter();
  /// The next elements, row-major, of the tensor that is being written; a tensor may come in any number of
  /// pieces. Throws Error(kPlugin) where the dtype differs from the described one, or where more is written
  /// than was described.
  virtual void write(TensorView piece) = 0;
  /// A file that says something about the result: a record of how it was made, a figure. It is put below
  /// `about/` in the result's folder. Throws Error(kPlugin) for a name with a folder, and for one twice.
  virtual void file(std::string_view name, std::string_view bytes) = 0;
};

class Transform {
 public:
  using Interface = Transform;
  static constexpr const char* kKind = "transform/1";
  virtual ~Transform();
  /// Pure in options and sources, of which it reads no weights unless the shapes of the result depend on
  /// them. Throws Error(kConfig) for sources that it cannot take.
  virtual TransformedModel describe(std::span<StoredModel* const> sources) = 0;
  /// Writes the tensors that describe() listed for the same sources. Holds few of them at a time: a model may
  /// be larger than the memory.
  virtual void run(std::span<StoredModel* const> sources, TensorWriter& out) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
