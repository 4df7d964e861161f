// Text of a safetensors header, apart from files: the content of the JSON and whether it is a valid tiling.
#pragma once

#include "store/safetensors.hpp"

namespace tenon {

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
