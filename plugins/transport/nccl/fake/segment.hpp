// The file that members of a fake communicator map (fake_nccl.hpp): a place for the input of each member to a
// collective, and a message box for each pair.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fake_nccl {

inline constexpr int kMembers = 8;
inline constexpr std::size_t kPlace = std::size_t{16} << 20, kBox = std::size_t{4} << 20;

struct Member {
  std::atomic<std::uint64_t> posted, read;  ///< number of the newest collective
  std::byte bytes[kPlace];
};
struct Box {
  std::atomic<std::uint64_t> posted, read;
  std::byte bytes[kBox];
};
/// Initially zero. Untouched pages cost nothing.
struct Shared {
  std::atomic<int> arrived, gone, aborted;
  Member members[kMembers];
  Box boxes[kMembers][kMembers];
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

class Segment {
 public:
  explicit Segment(const std::string& path) : path_(path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0) return;
    if (::ftruncate(file, sizeof(Shared)) == 0) {
      void* const at = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      if (at != MAP_FAILED) shared_ = static_cast<Shared*>(at);
    }
    ::close(file);
  }
  ~Segment() {
    if (shared_ != nullptr) ::munmap(shared_, sizeof(Shared));
  }
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  Shared* operator->() const { return shared_; }
  explicit operator bool() const { return shared_ != nullptr; }
  void forget() const { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  Shared* shared_ = nullptr;
};

}  // namespace fake_nccl
