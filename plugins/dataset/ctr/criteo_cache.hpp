// A Criteo TSV file as packed rows of 160 bytes in a file of their own, made in one pass when it is not there
// or its source has changed: rows of gzip files cannot be reached one by one, and a row is parsed once
// instead of in every epoch. Reading keeps nothing in memory.
#pragma once

#include "criteo_reader.hpp"

#include <tenon/files.hpp>

#include <cstdint>
#include <memory>
#include <string>

namespace tenon::ctr {

class CriteoCache {
 public:
  /// Opens the packed rows of `source` in `folder`, made if absent; with `folder` empty that is "tenon-cache"
  /// beside the source. One process or thread packs, others wait for it, and give up when it has written
  /// nothing for `deadline` seconds and the time of reading the source at 10 MB/s. Throws Error(kConfig), or
  /// Error(kRun) when waiting was in vain.
  CriteoCache(const std::string& source, const std::string& folder, double deadline);

  std::int64_t rows() const { return rows_; }
  const FaultCounts& faults() const { return faults_; }
  /// Of all numbers of the file, a missing one being 0.
  std::int32_t smallest() const { return smallest_; }
  const std::string& sha256() const { return sha256_; }  ///< of the source when it was packed
  const std::string& path() const { return path_; }
  /// Thread-safe, allocates nothing.
  void read(std::int64_t row, std::span<CriteoRow> out) const;

 private:
  struct Identity {
    std::int64_t size = 0, changed_ns = 0;
  };

  static Identity identity_of(const std::string& source);
  bool open(const Identity& source);
  void pack(const std::string& source, const Identity& identity);

  std::unique_ptr<FileSystem> files_;
  std::string path_;
  std::unique_ptr<ReadableFile> file_;
  std::int64_t rows_ = 0;
  FaultCounts faults_;
  std::int32_t smallest_ = 0;
  std::string sha256_;
};

}  // namespace tenon::ctr
