// Nameless files: O_TMPFILE, or made and unlinked at once where the file system has no such files.
#include "scratch_folder.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace tenon::tier_file {
namespace {

struct NetworkType {
  std::uint64_t type;
  const char* name;
};
/// statfs(2) and linux/magic.h. FUSE is among them since what it reaches is unknown.
constexpr NetworkType kNetworkTypes[] = {
    {0x6969, "NFS"},      {0x517B, "SMB"},        {0xFE534D42, "SMB"},  {0xFF534D42, "CIFS"},
    {0x65735546, "FUSE"}, {0x00C36400, "Ceph"},   {0x5346414F, "AFS"},  {0x6B414653, "AFS"},
    {0x01021997, "9p"},   {0x0BD00BD0, "Lustre"}, {0x47504653, "GPFS"}, {0x19830326, "BeeGFS"},
    {0x564C, "NCP"},      {0x73757245, "Coda"},
};

/// -1 with errno.
int open_nameless(const std::string& folder, int more_flags) {
  const int flags = O_RDWR | O_CLOEXEC | more_flags;
  const int file = ::open(folder.c_str(), O_TMPFILE | flags, 0600);
  if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
  std::string name = folder + "/tenon-rows-XXXXXX";
  const int named = ::mkostemp(name.data(), O_CLOEXEC | more_flags);
  const int error = errno;
  if (named >= 0) ::unlink(name.c_str());
  errno = error;
  return named;
}

/// Whether pages can be written past the cache of the system. Some file systems refuse when a file is opened,
/// others when pages come.
bool takes_direct(const std::string& folder) {
  const int file = open_nameless(folder, O_DIRECT);
  if (file < 0) return false;
  alignas(kPageBytes) std::array<std::byte, kPageBytes> page{};
  const ssize_t written = ::pwrite(file, page.data(), page.size(), 0);
  ::close(file);
  return written == static_cast<ssize_t>(page.size());
}

}  // namespace

const char* network_file_system(std::uint64_t type) {
  for (const NetworkType& known : kNetworkTypes) {
    if (known.type == type) return known.name;
  }
  return nullptr;
}

ScratchFolder::ScratchFolder(std::string path, bool buffered) : path_(std::move(path)) {
  struct statfs facts {};
  if (::statfs(path_.c_str(), &facts) != 0)
    fail_config(fmt::format("tier 'file': folder = '{}': {}", path_, std::strerror(errno)));
  const char* const network = network_file_system(static_cast<std::uint64_t>(facts.f_type) & 0xFFFFFFFFu);
  if (network != nullptr) {
    fail_config(
        fmt::format("tier 'file': folder = '{}' is on {}, not on a disk of this machine: rows would wait for "
                    "its network or its server; name a folder on a local disk",
                    path_, network));
  }
  const int file = open_nameless(path_, 0);
  if (file < 0) {
    fail_config(
        fmt::format("tier 'file': no file can be made in folder = '{}': {}; name a folder that this "
                    "process may write to",
                    path_, std::strerror(errno)));
  }
  ::close(file);
  direct_ = !buffered && takes_direct(path_);
}

std::unique_ptr<PageFile> ScratchFolder::make_file(std::string_view table, std::int64_t bytes,
                                                   Rings& rings) const {
  const auto refuse = [&](const std::string& reason) {
    fail_run(
        fmt::format("tier 'file': row table '{}' wants {} bytes in '{}': {}; free some, or name another "
                    "folder",
                    table, bytes, path_, reason));
  };
  // Asked first: otherwise a table that is far too large would fill the disk of all others for a while.
  struct statvfs space {};
  if (::statvfs(path_.c_str(), &space) == 0 && space.f_blocks != 0) {
    const auto free = static_cast<std::uint64_t>(space.f_bavail) * space.f_frsize;
    if (static_cast<std::uint64_t>(bytes) > free) refuse(fmt::format("{} bytes are free there", free));
  }
  const int file = open_nameless(path_, direct_ ? O_DIRECT : 0);
  if (file < 0) refuse(std::strerror(errno));
  auto made = std::make_unique<DiskFile>(file, rings);
  int error = bytes == 0 ? 0 : EINTR;
  while (error == EINTR) error = ::posix_fallocate(file, 0, bytes);
  if (error != 0) refuse(std::strerror(error));
  return made;
}

DiskFile::~DiskFile() {
  ::close(file_);
}

}  // namespace tenon::tier_file
