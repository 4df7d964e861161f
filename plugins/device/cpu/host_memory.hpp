// Host memory of the device: aligned and zero-filled, refused before the kernel would kill the process. Large
// blocks come from the kernel, which fills a page with zeros where a thread touches it first: memory lies
// near the thread that computes on it, and a run begins without a pass over all of its memory.
#pragma once

#include <cstddef>

namespace tenon::cpu {

/// 64-byte aligned, and from 2 MiB on 2 MiB-aligned with huge pages asked for. Throws Error(kRun) with the
/// size and what was free. Memory that blocks hold and no thread has touched yet does not count as free.
void* allocate_zeroed(std::size_t bytes);

/// Null is fine.
void release_zeroed(void* memory) noexcept;

}  // namespace tenon::cpu
