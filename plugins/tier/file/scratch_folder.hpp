// The folder of the option `folder`: whether rows can live there, and nameless files in it, which go with the
// process however it ends.
#pragma once

#include "page_file.hpp"
#include "rings.hpp"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tenon::tier_file {

/// "NFS" for the number by which statfs(2) names that file system; null for one of this machine.
const char* network_file_system(std::uint64_t type);

class ScratchFolder {
 public:
  /// Throws Error(kConfig) where no file can be made, and for network file systems: how long a row takes
  /// there says nothing about this machine. buffered: as where the system takes no O_DIRECT.
  explicit ScratchFolder(std::string path, bool buffered = false);

  const std::string& path() const { return path_; }
  /// Whether pages pass by the cache of the system.
  bool direct() const { return direct_; }

  /// A file of this size that reads as zeros, with its room on the disk; throws Error(kRun) that says bytes
  /// and folder where there is too little. `rings` outlive it.
  std::unique_ptr<PageFile> make_file(std::string_view table, std::int64_t bytes, Rings& rings) const;

 private:
  std::string path_;
  bool direct_ = true;
};

/// A file of the system; closes it.
class DiskFile final : public PageFile {
 public:
  DiskFile(int file, Rings& rings) : file_(file), rings_(rings) {}
  ~DiskFile() override;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  void read(std::span<PageTransfer> transfers) override {
    rings_.move(file_, Rings::Direction::kRead, transfers);
  }
  void write(std::span<PageTransfer> transfers) override {
    rings_.move(file_, Rings::Direction::kWrite, transfers);
  }
  int descriptor() const { return file_; }

 private:
  int file_;
  Rings& rings_;
};

}  // namespace tenon::tier_file
