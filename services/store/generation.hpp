// One generation on disk: the names of its folders, and reading parts of tensors out of its files. The reader
// follows chains of increments (reader.cpp); the store chooses a generation (store.cpp).
#pragma once

#include <tenon/checkpoint.hpp>

#include "store/manifest.hpp"
#include "store/safetensors.hpp"

namespace tenon::checkpoint {

/// Kind of a name in the checkpoint folder.
enum class FolderKind {
  kComplete,    ///< step-<n>
  kWriting,     ///< step-<n>.tmp: a save in progress, or what a crash left of it
  kReplaced,    ///< step-<n>.old: good until step-<n> is there again
  kRemoving,    ///< step-<n>.gc
  kRejected,    ///< step-<n>.bad
  kDistrusted,  ///< step-<n>.distrusted: every byte is as it was written, and it was not believed
  kOther,
};

struct FolderName {
  FolderKind kind = FolderKind::kOther;
  std::int64_t step = -1;
};

FolderName parse_folder_name(std::string_view name);
std::string folder_name(FolderKind kind, std::int64_t step);

/// An open generation: its manifest, and its files, opened at first use. One thread at a time.
class Generation {
 public:
  /// Reads and checks the manifest; `path` is the generation's folder.
  Generation(FileSystem& files, std::string path);

  const Manifest& manifest() const noexcept { return manifest_; }
  std::uint32_t manifest_crc() const noexcept { return manifest_crc_; }
  const std::string& path() const noexcept { return path_; }

  /// Copies what a part shares with `wanted` into `out`; returns the number of elements.
  std::int64_t copy_part(const std::string& name, const TensorRecord& tensor, const PartRecord& part,
                         const Box& wanted, std::span<std::byte> out,
                         const std::map<std::string, PartDecoder>& decoders);
  /// Checks every byte: sizes, block digests, headers, that every part is where the manifest says, row lists,
  /// and the canaries beside them.
  void verify();

 private:
  struct OpenFile {
    // The safetensors reader owns the checked file; this view of it serves verify().
    const CheckedFile* checked = nullptr;
    std::unique_ptr<SafetensorsReader> tensors;
    std::map<std::string, std::vector<std::int64_t>> rows;  // row lists, read once
  };
  OpenFile& file(int index);
  const std::vector<std::int64_t>& rows_of(const std::string& name, const TensorRecord& tensor,
                                           const PartRecord& part);
  const SafetensorsEntry& entry_of(const std::string& name, const TensorRecord& tensor,
                                   const PartRecord& part);
  void verify_canaries() const;
  void verify_rows(const std::string& name, const TensorRecord& tensor);

  FileSystem& files_;
  std::string path_;
  Manifest manifest_;
  std::uint32_t manifest_crc_ = 0;
  std::vector<OpenFile> open_;
  std::string decoded_key_;  // the last decoded part, since neighbouring slices ask for the same one
  int decoded_file_ = -1;
  std::vector<std::byte> decoded_;
};

}  // namespace tenon::checkpoint
