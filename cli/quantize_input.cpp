// Pieces of a file are converted as they are read, so that a file is in memory once, as f32.
#include "quantize_input.hpp"

#include "config/words.hpp"
#include "store/safetensors.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/npy.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

namespace tenon::cli {
namespace {

constexpr std::int64_t kPiece = 1 << 20;  // bytes
constexpr std::array kTypes{DType::kF32, DType::kF64, DType::kF16};

bool usable(DType dtype) {
  return has_real_values(dtype) && !dtype_is_complex(dtype);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Why a tensor of a .safetensors file cannot be quantized; "" if it can.
std::string obstacle(const SafetensorsEntry& entry) {
  if (!entry.dtype || !usable(*entry.dtype))
    return fmt::format("{}; expected F32, F64, F16 or BF16", entry.file_dtype);
  if (entry.shape.empty()) return "a scalar; expected at least one dimension";
  if (entry.shape.size() > static_cast<std::size_t>(kMaxRank))
    return fmt::format("{} dimensions; expected at most {}", entry.shape.size(), kMaxRank);
  if (entry.bytes() == 0) return fmt::format("it is empty, of shape {}", shape_text(entry.shape));
  return "";
}

}  // namespace

SourceKind source_kind(const std::string& path) {
  if (path.ends_with(".npy")) return SourceKind::kNpy;
  if (path.ends_with(".safetensors")) return SourceKind::kSafetensors;
  fail_config(fmt::format("'{}': expected a file whose name ends in .npy or .safetensors", path));
}

MatrixSource::MatrixSource(FileSystem& files, const std::string& path, SourceKind kind,
                           const std::string& tensor)
    : path_(path) {
  if (kind == SourceKind::kSafetensors) {
    open_safetensors(files, path, tensor);
  } else if (!tensor.empty()) {
    fail_config(
        fmt::format("'{}': --tensor names a tensor of a .safetensors file; a .npy file holds one", path));
  } else {
    open_npy(files, path);
  }
}

void MatrixSource::open_npy(FileSystem& files, const std::string& path) {
  auto file = std::make_shared<NpyFile>(files, path, "array", kTypes);
  entries_.push_back({"", file->dtype(), file->shape(),
                      [file](std::int64_t first, std::span<std::byte> out) { file->read(first, out); }});
}

void MatrixSource::open_safetensors(FileSystem& files, const std::string& path, const std::string& tensor) {
  named_ = true;
  std::shared_ptr<SafetensorsReader> reader;
  try {
    reader = std::make_shared<SafetensorsReader>(files.open(path), "file '" + path + "'");
  } catch (const Error& error) {
    fail_config(error.what());
  }
  std::vector<std::string> names;
  for (const SafetensorsEntry& entry : reader->entries()) {
    names.push_back(entry.name);
    if (!tensor.empty() && entry.name != tensor) continue;
    const std::string reason = obstacle(entry);
    if (!reason.empty()) {
      left_out_.push_back(fmt::format("{}: {}", entry.name, reason));
      continue;
    }
    entries_.push_back({entry.name, *entry.dtype, Shape(std::span(entry.shape)),
                        [reader, &entry](std::int64_t first, std::span<std::byte> out) {
                          reader->read(entry, first * dtype_bytes(*entry.dtype, 1), out);
                        }});
  }
  if (!tensor.empty() && std::find(names.begin(), names.end(), tensor) == names.end()) {
    fail_config(
        fmt::format("file '{}' has no tensor '{}'{}; it has {} (see: tenon quantize without --tensor)", path,
                    tensor, config::suggestion(tensor, names), names.size()));
  }
  if (!entries_.empty()) return;
  std::string text = fmt::format("file '{}' has no tensor that can be quantized", path);
  for (const std::string& reason : left_out_) text += "\n  " + reason;
  fail_config(text);
}

SourceMatrix MatrixSource::read(std::size_t index) const {
  const Entry& entry = entries_[index];
  SourceMatrix matrix;
  matrix.name = entry.name;
  matrix.dtype = entry.dtype;
  matrix.shape = entry.shape;
  matrix.columns = entry.shape[entry.shape.rank() - 1];
  const std::int64_t elements = entry.shape.elements();
  matrix.rows = elements / matrix.columns;
  matrix.values.reserve(elements);
  const std::int64_t piece = kPiece / dtype_bytes(entry.dtype, 1);
  std::vector<std::byte> bytes(dtype_bytes(entry.dtype, std::min(piece, elements)));
  try {
    for (std::int64_t first = 0; first < elements; first += piece) {
      const std::int64_t count = std::min(piece, elements - first);
      TensorView view{bytes.data(), {count}, entry.dtype, MemorySpace::kHost};
      entry.read(first, view.raw());
      if (entry.dtype == DType::kF32) {  // bits and all: a NaN keeps its payload
        const auto values = view.span<const float>();
        matrix.values.insert(matrix.values.end(), values.begin(), values.end());
      } else {
        for_each_real(view, [&](double value) { matrix.values.push_back(static_cast<float>(value)); });
      }
    }
  } catch (const Error& error) {
    fail_config(fmt::format("'{}': {}", path_, error.what()));
  }
  matrix.non_finite = std::count_if(matrix.values.begin(), matrix.values.end(),
                                    [](float value) { return !std::isfinite(value); });
  return matrix;
}

std::vector<std::string> folder_names(const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 120;
  std::set<std::string> taken;
  std::vector<std::string> result;
  for (const std::string& name : names) {
    std::string folder;
    for (const char c : name.substr(0, kLongest)) {
      const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                         c == '.' || c == '_' || c == '-';
      folder += plain ? c : '_';
    }
    if (folder.empty() || folder[0] == '.') folder.insert(0, "_");
    std::string unique = folder;
    for (int i = 2; !taken.insert(unique).second; ++i) unique = fmt::format("{}-{}", folder, i);
    result.push_back(std::move(unique));
  }
  return result;
}

}  // namespace tenon::cli
