// Host memory of the device: aligned, zeroed by the threads that will use it, refused before the kernel would
// kill the process.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tenon::cpu {

inline constexpr std::size_t kCacheLine = 64;

/// 64-byte aligned (2 MiB for large blocks, with huge pages asked for). Throws Error(kRun).
void* allocate_zeroed(std::size_t bytes);
void release_memory(void* memory) noexcept;

/// Bytes that can still be taken without swapping, by /proc/meminfo and the control group; INT64_MAX when
/// unknown.
std::int64_t available_memory();

}  // namespace tenon::cpu
