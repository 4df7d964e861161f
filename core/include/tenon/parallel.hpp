// The one parallel loop of the program. It runs on OpenMP and so shares its team with oneDNN; the
// thread-sanitizer build swaps it for std::thread. Results must not depend on the number of threads: split
// work by fixed blocks.
#pragma once

#include <tenon/abi.hpp>

#include <cstdint>
#include <type_traits>

TENON_ABI_BEGIN

/// Threads that a loop started from this thread will use.
int parallel_threads() noexcept;
/// Sets that number for the calling thread (a rank sets its own share). A fresh thread starts with all cores.
void set_parallel_threads(int threads) noexcept;

namespace detail {
void parallel_for_blocks(std::int64_t count, std::int64_t block, void* body,
                         void (*call)(void*, std::int64_t begin, std::int64_t end));
}

/// Calls body(begin, end) for consecutive blocks of at most `block` items of [0, count). No allocation.
/// An exception thrown by the body is rethrown to the caller once all blocks have ended.
template <typename Body>
void parallel_for(std::int64_t count, std::int64_t block, Body&& body) {
  using Plain = std::remove_reference_t<Body>;
  detail::parallel_for_blocks(
      count, block, const_cast<std::remove_const_t<Plain>*>(&body),
      [](void* opaque, std::int64_t begin, std::int64_t end) { (*static_cast<Plain*>(opaque))(begin, end); });
}

TENON_ABI_END
