// Matrices that `tenon quantize` reads: one of a .npy file, or those of a .safetensors file, as f32 with two
// dimensions. Any input is read or refused with Error(kConfig); nothing is trusted.
#pragma once

#include <tenon/files.hpp>
#include <tenon/tensor.hpp>

#include <functional>
#include <string>
#include <vector>

namespace tenon::cli {

/// A matrix and its original type and shape.
struct SourceMatrix {
  std::string name;           ///< of the tensor; "" for a .npy file
  DType dtype = DType::kF32;  ///< in the file
  Shape shape;                ///< in the file
  std::int64_t rows = 0, columns = 0;
  std::vector<float> values;  ///< rounded to nearest from f64, exact from the others
  std::int64_t non_finite = 0;
};

enum class SourceKind { kNpy, kSafetensors };
/// The kind by the end of the name; throws Error(kConfig) for another one.
SourceKind source_kind(const std::string& path);

class MatrixSource {
 public:
  /// tensor: "" = all. Throws Error(kConfig): no such file or tensor, nothing that can be quantized.
  MatrixSource(FileSystem& files, const std::string& path, SourceKind kind, const std::string& tensor);

  std::size_t size() const { return entries_.size(); }
  const std::string& name(std::size_t index) const { return entries_[index].name; }
  /// "h.0.weight: i64, not a floating-point type"
  const std::vector<std::string>& left_out() const { return left_out_; }
  SourceMatrix read(std::size_t index) const;
  /// True when the file may hold several: each then has a folder of its own.
  bool named() const { return named_; }

 private:
  struct Entry {
    std::string name;
    DType dtype;
    Shape shape;
    std::function<void(std::int64_t first, std::span<std::byte> out)> read;
  };
  void open_npy(FileSystem& files, const std::string& path);
  void open_safetensors(FileSystem& files, const std::string& path, const std::string& tensor);

  std::string path_;
  bool named_ = false;
  std::vector<Entry> entries_;
  std::vector<std::string> left_out_;
};

/// Folder names for tensors: letters, digits, '.', '_' and '-' stay, anything else becomes '_'; no two are
/// equal, and none is hidden or leaves the folder.
std::vector<std::string> folder_names(const std::vector<std::string>& names);

}  // namespace tenon::cli
