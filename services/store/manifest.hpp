// MANIFEST.json of a generation, and the report that a rank sends to the coordinator: their contents as plain
// structs, their text, and the checks that make a set of parts a tensor. No files are touched here.
#pragma once

#include "store/block_file.hpp"
#include "store/box.hpp"

#include <map>

namespace tenon::checkpoint {

inline constexpr char kManifestName[] = "MANIFEST.json";
inline constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 30;
inline constexpr char kPlainEncoding[] = "plain";

/// One stored part of a tensor: where it belongs and where its bytes are.
struct PartRecord {
  int file = 0;     ///< index into Manifest::files
  std::string key;  ///< tensor of that safetensors file
  Box box;          ///< rows parts: offset[0] = 0, extents[0] = number of rows
  std::string encoding = kPlainEncoding;
  std::string rows_key;  ///< I64 tensor of that file with the global rows; empty for a slice
  bool operator==(const PartRecord& other) const;
};

struct TensorRecord {
  DType dtype = DType::kF32;
  Shape shape;  ///< global
  std::vector<PartRecord> parts;
  bool operator==(const TensorRecord& other) const;
};

struct Manifest {
  std::int64_t step = 0;
  std::int64_t timeline = 0;
  int world_size = 1;
  bool consistent = true;
  std::int64_t base = -1;      ///< -1 = complete in itself
  std::uint32_t base_crc = 0;  ///< of the base's manifest: a base written again is another base
  std::map<std::string, std::string, std::less<>> meta;
  std::vector<FileRecord> files;
  std::map<std::string, TensorRecord, std::less<>> tensors;
};

/// Stage 1's outcome on one rank. With an error the rest is empty.
struct RankReport {
  int rank = 0;
  std::string error;
  std::int64_t bytes = 0;
  Manifest part;  ///< step, timeline, ..., and what this rank wrote; base_crc is filled in by the coordinator
};

/// The text ends with a CRC-32C of everything before it. `crc` receives that value.
std::string manifest_text(const Manifest& manifest, std::uint32_t* crc);
/// Throws Error(kRun) that begins with `label` unless every field is present, of its type and in range.
Manifest parse_manifest(std::string_view text, const std::string& label, std::uint32_t* crc);

std::string report_text(const RankReport& report);
RankReport parse_report(std::string_view text, const std::string& label);

/// Joins the reports of all ranks, in rank order; throws if they are not of one save or disagree about a
/// tensor.
Manifest join_reports(std::span<const RankReport> reports);

/// Throws unless the parts of each tensor are inside it and disjoint and, without a base, fill it. Row lists
/// are only counted here; verify() of the store reads them.
void check_parts(const Manifest& manifest, const std::string& label);

}  // namespace tenon::checkpoint
