// safetensors files: a length, a JSON header, then tensors back to back. Writes what the reference writer
// would write (order, padding, escapes); reads any file that the format allows, and refuses everything else
// by name. Single tensors and byte ranges are read without the rest of the file. It knows nothing of
// checkpoints.
#pragma once

#include <tenon/files.hpp>
#include <tenon/tensor.hpp>

#include <map>
#include <optional>

namespace tenon {

/// Readers of the format refuse a longer header, so writers must not make one.
inline constexpr std::int64_t kMaxSafetensorsHeader = 100'000'000;

/// One tensor as it is in a file.
struct SafetensorsEntry {
  std::string name;
  std::string file_dtype;           ///< "F32", "BF16", ...: the format's name
  std::optional<DType> dtype;       ///< absent for a format type that Tenon has no name for
  std::vector<std::int64_t> shape;  ///< as in the file: a complex tensor has a last dimension of 2
  std::int64_t begin = 0;           ///< bytes [begin, end) of the data part
  std::int64_t end = 0;
  std::int64_t bytes() const noexcept { return end - begin; }
};

/// One tensor to write: a logical type and shape (complex is stored as F32 or F64 with a last dimension of
/// 2).
struct SafetensorsItem {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::span<const std::byte> data;  ///< dtype_bytes(dtype, shape.elements()) bytes, little-endian, row-major
};

using SafetensorsMetadata = std::map<std::string, std::string>;

/// The beginning of a file, and the order in which the data of the given items must follow.
struct SafetensorsLayout {
  std::string header;              ///< length prefix, JSON and padding
  std::vector<std::size_t> order;  ///< indices of items, in file order
  std::int64_t file_bytes = 0;
};

/// Throws Error(kRun) on duplicate or non-UTF-8 names, a sub-byte tensor that does not end on a byte, data of
/// the wrong size, or a header over the limit.
SafetensorsLayout plan_safetensors(std::span<const SafetensorsItem> items,
                                   const SafetensorsMetadata& metadata);

/// Appends a whole file; neither syncs nor closes.
void write_safetensors(WritableFile& file, std::span<const SafetensorsItem> items,
                       const SafetensorsMetadata& metadata);

/// The entry of a logical type and shape, with its bytes from 0. Throws Error(kRun) where they do not end on
/// a byte.
SafetensorsEntry safetensors_entry(std::string name, DType dtype, const Shape& shape);
/// The order of the reference writer: types by falling alignment, then names.
bool safetensors_before(const SafetensorsEntry& a, const SafetensorsEntry& b);
/// The beginning of a file whose data are those of `entries` back to back: length prefix, JSON and padding.
/// Sets begin and end of each. Throws Error(kRun) on a header over the limit, and as plan_safetensors does.
std::string safetensors_beginning(std::span<SafetensorsEntry> entries, const SafetensorsMetadata& metadata);

/// The format's name of a type, e.g. "F32" for f32 and c64.
std::string_view safetensors_dtype(DType dtype);

class SafetensorsReader {
 public:
  /// Reads and checks the header. `label` (usually the path) begins every message. Throws Error(kRun).
  SafetensorsReader(std::unique_ptr<ReadableFile> file, std::string label);

  /// In the order of the file.
  std::span<const SafetensorsEntry> entries() const noexcept { return entries_; }
  const SafetensorsMetadata& metadata() const noexcept { return metadata_; }
  /// Null when absent.
  const SafetensorsEntry* find(std::string_view name) const noexcept;
  /// Throws Error(kRun) when absent.
  const SafetensorsEntry& at(std::string_view name) const;
  /// Bytes [offset, offset + out.size()) of a tensor; throws when outside it.
  void read(const SafetensorsEntry& entry, std::int64_t offset, std::span<std::byte> out) const;
  std::vector<std::byte> read_all(const SafetensorsEntry& entry) const;
  const std::string& label() const noexcept { return label_; }

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string label_;
  std::vector<SafetensorsEntry> entries_;
  std::map<std::string, std::size_t, std::less<>> index_;
  SafetensorsMetadata metadata_;
  std::int64_t data_begin_ = 0;
};

// Text of a safetensors header, apart from files: the content of the JSON and whether it is a valid tiling.

/// A type of the format. `rank` orders tensors in a file (largest first).
struct SafetensorsType {
  std::string_view name;
  int bits = 0;
  int rank = 0;
  std::optional<DType> dtype;
};

/// Null when the format has no such type.
const SafetensorsType* find_safetensors_type(std::string_view name) noexcept;

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  ///< by position in the data part
  SafetensorsMetadata metadata;
};

/// Parses and checks: unique keys, known types, sizes that match type and shape, offsets that tile [0,
/// data_bytes) without hole or overlap. Throws Error(kRun) beginning with `label`.
SafetensorsHeader parse_safetensors_header(std::string_view json, std::int64_t data_bytes,
                                           const std::string& label);

/// JSON without padding; entries are written in the given order.
std::string safetensors_header_text(std::span<const SafetensorsEntry> entries,
                                    const SafetensorsMetadata& metadata);

/// Bytes of a tensor of the file, or nothing when the count overflows or does not end on a byte.
std::optional<std::int64_t> safetensors_bytes(int bits, std::span<const std::int64_t> shape) noexcept;

}  // namespace tenon
