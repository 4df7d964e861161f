#include "memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

namespace tenon::cpu {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::int64_t kTouchBlock = std::int64_t{4} << 20;
constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

/// Number after `key` in a file of "key value" lines.
std::int64_t value_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string word;
  std::int64_t value = 0;
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) == 0) {
      value = std::strtoll(line.c_str() + key.size(), nullptr, 10);
      return value;
    }
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

}  // namespace

std::int64_t available_memory() {
  const std::int64_t kib = value_of("/proc/meminfo", "MemAvailable:");
  return std::min(kib == kUnknown ? kUnknown : kib * 1024, group_memory());
}

void* allocate_zeroed(std::size_t bytes) {
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : kCacheLine;
  if (bytes > static_cast<std::size_t>(kUnknown) - alignment) refuse(bytes, available_memory());
  const std::size_t size = (std::max<std::size_t>(bytes, 1) + kCacheLine - 1) / kCacheLine * kCacheLine;
  // The kernel overcommits and kills processes that touch the memory, so large blocks are compared first.
  if (size >= kHugePage) {
    const std::int64_t available = available_memory();
    if (static_cast<std::int64_t>(size) > available) refuse(bytes, available);
  }
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size) != 0) refuse(bytes, available_memory());
  if (alignment == kHugePage) madvise(memory, size, MADV_HUGEPAGE);
  auto* start = static_cast<char*>(memory);
  parallel_for(static_cast<std::int64_t>(size), kTouchBlock, [&](std::int64_t begin, std::int64_t end) {
    std::memset(start + begin, 0, static_cast<std::size_t>(end - begin));
  });
  return memory;
}

void release_memory(void* memory) noexcept {
  std::free(memory);
}

}  // namespace tenon::cpu
