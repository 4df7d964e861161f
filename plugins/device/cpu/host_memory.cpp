#include "host_memory.hpp"

#include "common.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tenon/error.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace tenon::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

// The address sanitizer sees the ends of what malloc returned, and not those of mapped memory.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kWatched = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kWatched = true;
#else
constexpr bool kWatched = false;
#endif
#else
constexpr bool kWatched = false;
#endif

/// Number after `key` in a file of "key value" lines.
std::int64_t value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) == 0) return std::strtoll(line.c_str() + key.size(), nullptr, 10);
  }
  return kUnknown;
}

/// First number of a file; kUnknown where it is absent or says "max".
std::int64_t number_in(const char* path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  return file >> value ? value : kUnknown;
}

std::int64_t group_memory() {
  const std::int64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const std::int64_t used = number_in("/sys/fs/cgroup/memory.current");
  if (limit == kUnknown || used == kUnknown) return kUnknown;
  // Cached file pages count as used, and are reclaimed under pressure.
  const std::int64_t cached = value_of("/sys/fs/cgroup/memory.stat", "inactive_file ");
  return std::max<std::int64_t>(0, limit - used + (cached == kUnknown ? 0 : cached));
}

[[noreturn]] void refuse(std::size_t bytes, std::int64_t available) {
  fail_run(fmt::format(
      "device cpu: out of memory: {} bytes ({:.1f} MiB) were asked for, {}; use a smaller batch or model",
      bytes, static_cast<double>(bytes) / (1 << 20),
      available == kUnknown
          ? std::string("and what is free is unknown")
          : fmt::format("{:.1f} MiB are free", static_cast<double>(available) / (1 << 20))));
}

std::size_t page_bytes() {
  return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
}

/// Blocks of the process that the kernel fills page by page.
class LazyBlocks {
 public:
  void add(void* memory, std::size_t size) {
    const std::lock_guard lock(mutex_);
    blocks_.emplace(static_cast<char*>(memory), size);
    bytes_ += static_cast<std::int64_t>(size);
  }
  /// The block's size; 0 where the memory is no such block.
  std::size_t remove(void* memory) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(static_cast<char*>(memory));
    if (found == blocks_.end()) return 0;
    const std::size_t size = found->second;
    blocks_.erase(found);
    bytes_ -= static_cast<std::int64_t>(size);
    return size;
  }
  std::int64_t bytes() {
    const std::lock_guard lock(mutex_);
    return bytes_;
  }
  /// Bytes of untouched pages: the kernel still counts them as free.
  std::int64_t untouched() {
    const std::lock_guard lock(mutex_);
    const std::size_t page = page_bytes();
    std::int64_t sum = 0;
    std::vector<unsigned char> resident;
    for (const auto& [memory, size] : blocks_) {
      resident.resize((size + page - 1) / page);
      if (::mincore(memory, size, resident.data()) != 0) continue;
      for (const unsigned char one : resident) sum += (one & 1) == 0 ? static_cast<std::int64_t>(page) : 0;
    }
    return sum;
  }

 private:
  std::mutex mutex_;
  std::map<char*, std::size_t> blocks_;
  std::int64_t bytes_ = 0;
};

LazyBlocks& lazy_blocks() {
  static LazyBlocks blocks;
  return blocks;
}

/// Bytes that can still be taken without swapping, by /proc/meminfo and the control group; INT64_MAX when
/// unknown.
std::int64_t free_memory() {
  const std::int64_t kib = value_of("/proc/meminfo", "MemAvailable:");
  return std::min(kib == kUnknown ? kUnknown : kib * 1024, group_memory());
}

/// The same less what blocks of this process will take.
std::int64_t available_memory() {
  const std::int64_t free = free_memory();
  return free == kUnknown ? kUnknown : std::max<std::int64_t>(0, free - lazy_blocks().untouched());
}

/// The kernel overcommits and kills processes that touch the memory, so large blocks are compared first.
void require_free(std::size_t bytes) {
  const auto needed = static_cast<std::int64_t>(bytes);
  const std::int64_t free = free_memory();
  // Pages are looked at only where blocks might take what is free.
  if (free == kUnknown || needed <= free - lazy_blocks().bytes()) return;
  if (const std::int64_t available = available_memory(); needed > available) refuse(bytes, available);
}

std::size_t rounded(std::size_t bytes, std::size_t unit) {
  return (std::max<std::size_t>(bytes, 1) + unit - 1) / unit * unit;
}

/// Whole pages that begin at a boundary of huge pages, or null.
void* map_block(std::size_t size) {
  void* const mapped =
      ::mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<char*>(mapped);
  const std::size_t before = (kHugePage - reinterpret_cast<std::uintptr_t>(begin) % kHugePage) % kHugePage;
  if (before > 0) ::munmap(begin, before);
  if (before < kHugePage) ::munmap(begin + before + size, kHugePage - before);
  ::madvise(begin + before, size, MADV_HUGEPAGE);
  return begin + before;
}

}  // namespace

void* allocate_zeroed(std::size_t bytes) {
  if (bytes > static_cast<std::size_t>(kUnknown) - 2 * kHugePage) refuse(bytes, available_memory());
  const bool large = bytes >= kHugePage;
  if (large) require_free(bytes);
  if (!large || kWatched) {
    const std::size_t size = rounded(bytes, kCacheLine);
    void* memory = nullptr;
    if (::posix_memalign(&memory, large ? kHugePage : kCacheLine, size) != 0)
      refuse(bytes, available_memory());
    std::memset(memory, 0, size);
    return memory;
  }
  const std::size_t size = rounded(bytes, page_bytes());
  void* const memory = map_block(size);
  if (memory == nullptr) refuse(bytes, available_memory());
  lazy_blocks().add(memory, size);
  return memory;
}

void release_zeroed(void* memory) noexcept {
  const std::size_t size = lazy_blocks().remove(memory);
  if (size == 0)
    std::free(memory);
  else
    ::munmap(memory, size);
}

}  // namespace tenon::cpu
