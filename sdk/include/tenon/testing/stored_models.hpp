// For tests of transforms and other readers of stored models: a model in memory, and a writer that keeps what
// it gets and refuses what a transform may not write. Header only.
#pragma once

#include <tenon/error.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/tensor_values.hpp>
#include <tenon/transform.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// Bytes of elements, row-major.
using StoredBytes = std::vector<std::byte>;

template <typename T>
StoredBytes bytes_of(const std::vector<T>& values) {
  StoredBytes bytes(values.size() * sizeof(T));
  if (!bytes.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// A model in memory. Its graph is the one that the test sets, for data of any fields.
class MemoryModel final : public StoredModel {
 public:
  /// `table`: [model], as TOML lines.
  explicit MemoryModel(std::string_view table, std::string folder = "memory") : folder_(std::move(folder)) {
    description_.model = Config::parse(table, folder_, {}).root();
  }

  void add(std::string name, DType dtype, const Shape& shape, StoredBytes bytes) {
    if (static_cast<std::int64_t>(bytes.size()) != dtype_bytes(dtype, shape.elements()))
      fail_plugin("a test's tensor '" + name + "' has another number of bytes than its shape");
    tensors_.push_back({name, dtype, shape});
    std::sort(tensors_.begin(), tensors_.end(),
              [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    bytes_[std::move(name)] = std::move(bytes);
  }
  template <typename T>
  void add(std::string name, DType dtype, const Shape& shape, const std::vector<T>& values) {
    add(std::move(name), dtype, shape, bytes_of(values));
  }
  const StoredBytes& bytes(const std::string& name) const { return bytes_.at(name); }
  ModelDescription& describe() { return description_; }
  void set_graph(GraphSpec graph) { graph_ = std::move(graph); }
  /// graph() then throws Error(kConfig) with this text.
  void refuse_graph(std::string reason) { refusal_ = std::move(reason); }
  /// Elements of the largest read.
  std::int64_t largest_read() const { return largest_read_; }

  std::string_view folder() const override { return folder_; }
  std::int64_t step() const override { return -1; }
  std::string_view digest() const override { return digest_; }
  void set_digest(std::string digest) { digest_ = std::move(digest); }
  const ModelDescription& description() const override { return description_; }
  std::span<const StoredTensor> parameters() const override { return tensors_; }
  std::span<const StoredTensor> optimizer_state() const override { return {}; }
  void read(std::string_view tensor, const Shape& offset, TensorView out) override {
    const auto found = bytes_.find(std::string(tensor));
    if (found == bytes_.end()) fail_plugin("read(): the model has no tensor '" + std::string(tensor) + "'");
    const StoredTensor& stored = *std::find_if(tensors_.begin(), tensors_.end(),
                                               [&](const StoredTensor& t) { return t.name == tensor; });
    if (out.dtype != stored.dtype) fail_plugin("read(): '" + stored.name + "' has another type");
    copy_box(stored, found->second, offset, out);
    largest_read_ = std::max(largest_read_, out.elements());
  }
  GraphSpec graph(const DataInfo&) override {
    if (!refusal_.empty()) fail_config(refusal_);
    return graph_;
  }
  void* query(std::string_view) override { return nullptr; }
  GraphSpec edited(GraphSpec graph, const DataInfo&) override { return graph; }

 private:
  static void copy_box(const StoredTensor& stored, const StoredBytes& from, const Shape& offset,
                       const TensorView& out) {
    const int rank = stored.shape.rank();
    if (offset.rank() != rank || out.shape.rank() != rank)
      fail_plugin("read(): '" + stored.name + "' has " + std::to_string(rank) + " dimensions");
    for (int dim = 0; dim < rank; ++dim) {
      if (offset[dim] < 0 || offset[dim] + out.shape[dim] > stored.shape[dim])
        fail_plugin("read(): " + offset.text() + " and " + out.shape.text() + " leave '" + stored.name +
                    "', " + stored.shape.text());
    }
    // Row by row of the last dimension.
    const std::int64_t row = rank == 0 ? 1 : out.shape[rank - 1];
    const std::int64_t bytes = dtype_bytes(stored.dtype, row);
    std::byte* to = out.as<std::byte>();
    for (std::int64_t i = 0; row > 0 && i < out.elements() / row; ++i) {
      std::int64_t at = rank == 0 ? 0 : offset[rank - 1], scale = rank == 0 ? 1 : stored.shape[rank - 1];
      std::int64_t rest = i;
      for (int dim = rank - 2; dim >= 0; --dim) {
        at += (offset[dim] + rest % out.shape[dim]) * scale;
        rest /= out.shape[dim];
        scale *= stored.shape[dim];
      }
      std::memcpy(to + i * bytes, from.data() + dtype_bytes(stored.dtype, at),
                  static_cast<std::size_t>(bytes));
    }
  }

  std::string folder_, digest_, refusal_;
  ModelDescription description_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, StoredBytes> bytes_;
  GraphSpec graph_;
  std::int64_t largest_read_ = 0;
};

/// Takes what a transform writes after its description. Throws Error(kPlugin) for what does not fit.
class MemoryWriter final : public TensorWriter {
 public:
  explicit MemoryWriter(TransformedModel planned) : planned_(std::move(planned)) { skip_full(); }

  void write(TensorView piece) override {
    if (piece.bytes() == 0) return;
    if (at_ == planned_.parameters.size())
      fail_plugin("write(): all tensors that describe() listed are complete, and there is another piece");
    const StoredTensor& tensor = planned_.parameters[at_];
    if (piece.space != MemorySpace::kHost) fail_plugin("write(): expected host memory");
    if (piece.dtype != tensor.dtype)
      fail_plugin("write(): '" + tensor.name + "' was described as " + std::string(dtype_name(tensor.dtype)) +
                  ", found " + std::string(dtype_name(piece.dtype)));
    StoredBytes& bytes = bytes_[tensor.name];
    const std::span<const std::byte> more = piece.raw();
    bytes.insert(bytes.end(), more.begin(), more.end());
    if (static_cast<std::int64_t>(bytes.size()) > dtype_bytes(tensor.dtype, tensor.shape.elements()))
      fail_plugin("write(): more was written than the " + tensor.shape.text() + " of '" + tensor.name + "'");
    largest_piece_ = std::max(largest_piece_, piece.elements());
    skip_full();
  }
  void file(std::string_view name, std::string_view bytes) override {
    if (!files_.emplace(name, bytes).second)
      fail_plugin("file(): '" + std::string(name) + "' is written twice");
  }
  const std::map<std::string, std::string>& files() const { return files_; }
  /// The first tensor that is not complete; "" if all are.
  std::string incomplete() const {
    return at_ == planned_.parameters.size() ? "" : planned_.parameters[at_].name;
  }
  const std::map<std::string, StoredBytes>& tensors() const { return bytes_; }
  const StoredBytes& bytes(const std::string& name) const { return bytes_.at(name); }
  std::int64_t largest_piece() const { return largest_piece_; }

  /// What was written, as a source of another transform. Incomplete ones are refused.
  MemoryModel model(std::string folder = "written") const {
    if (!incomplete().empty()) fail_plugin("tensor '" + incomplete() + "' is not complete");
    MemoryModel model("", std::move(folder));
    model.describe() = planned_.description;
    for (const StoredTensor& tensor : planned_.parameters)
      model.add(tensor.name, tensor.dtype, tensor.shape, bytes_.at(tensor.name));
    return model;
  }

 private:
  void skip_full() {
    for (; at_ < planned_.parameters.size(); ++at_) {
      const StoredTensor& tensor = planned_.parameters[at_];
      const std::int64_t bytes = dtype_bytes(tensor.dtype, tensor.shape.elements());
      if (static_cast<std::int64_t>(bytes_[tensor.name].size()) < bytes) return;
    }
  }

  TransformedModel planned_;
  std::map<std::string, StoredBytes> bytes_;
  std::size_t at_ = 0;
  std::map<std::string, std::string> files_;
  std::int64_t largest_piece_ = 0;
};

/// describe() and run() of a transform over these sources.
inline MemoryWriter transformed(Transform& transform, std::span<StoredModel* const> sources) {
  MemoryWriter out(transform.describe(sources));
  transform.run(sources, out);
  return out;
}

}  // namespace tenon::testing
