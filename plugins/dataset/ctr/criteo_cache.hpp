// A Criteo TSV file as packed rows of 160 bytes in a file of its own, built in one pass when it is absent or
// its source has changed. Rows of gzip files have no random access, and each row is parsed once instead of in
// every epoch. Reading keeps nothing in memory.
#pragma once

#include "criteo_reader.hpp"

#include <tenon/files.hpp>
#include <tenon/sdk/packed_files.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tenon::ctr {

class CriteoCache {
 public:
  /// Opens the packed rows of `source` in `folder` and builds them if absent; an empty `folder` means
  /// "tenon-cache" beside the source. One process or thread packs and the others wait. They give up when the
  /// packer has written nothing for `deadline` seconds plus the time to read the source at 10 MB/s. Throws
  /// Error(kConfig), or Error(kRun) when the wait times out.
  CriteoCache(const std::string& source, const std::string& folder, double deadline);

  std::int64_t rows() const { return rows_; }
  const FaultCounts& faults() const { return faults_; }
  /// Minimum over all numbers of the file; a missing number counts as 0.
  std::int32_t smallest() const { return smallest_; }
  const std::string& sha256() const { return sha256_; }  ///< of the source when it was packed
  const std::string& path() const { return path_; }
  /// Thread-safe; does not allocate.
  void read(std::int64_t row, std::span<CriteoRow> out) const;

 private:
  bool open(const FileIdentity& source);
  void pack(const std::string& source, const FileIdentity& identity);

  std::unique_ptr<FileSystem> files_;
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  std::int64_t rows_ = 0;
  FaultCounts faults_;
  std::int32_t smallest_ = 0;
  std::string sha256_;
};

}  // namespace tenon::ctr
