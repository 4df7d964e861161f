// libtenon_watch_malloc.so: malloc and its kin, counted while a window is open. operator new ends here, too.
#include "allocation_watch.hpp"

#include <execinfo.h>

#include <atomic>
#include <cstddef>

extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);
}

namespace {

using tenon::conformance::AllocationWatch;

std::atomic<bool> watching{false};
std::atomic<int> calls_seen{0};
AllocationWatch::Call calls[AllocationWatch::kMost];
// Initial-exec: the general model of a preloaded library allocates at a thread's first access.
thread_local bool inside __attribute__((tls_model("initial-exec"))) = false;

void note() {
  if (!watching.load(std::memory_order_relaxed) || inside) return;
  inside = true;
  const int index = calls_seen.fetch_add(1);
  if (index < AllocationWatch::kMost)
    calls[index].depth = ::backtrace(calls[index].frames, AllocationWatch::kFrames);
  inside = false;
}

void open() {
  void* warm_up[2];
  ::backtrace(warm_up, 2);  // the first call in a process loads a library
  watching = true;
}
void close() {
  watching = false;
}
int count() {
  return calls_seen;
}
const AllocationWatch::Call* call(int index) {
  return &calls[index];
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) extern const AllocationWatch tenon_allocation_watch;
const AllocationWatch tenon_allocation_watch{open, close, count, call};

__attribute__((visibility("default"))) void* malloc(std::size_t size) {
  note();
  return __libc_malloc(size);
}
__attribute__((visibility("default"))) void* calloc(std::size_t count, std::size_t size) {
  note();
  return __libc_calloc(count, size);
}
__attribute__((visibility("default"))) void* realloc(void* memory, std::size_t size) {
  note();
  return __libc_realloc(memory, size);
}
__attribute__((visibility("default"))) void* aligned_alloc(std::size_t alignment, std::size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) void* memalign(std::size_t alignment, std::size_t size) {
  note();
  return __libc_memalign(alignment, size);
}
__attribute__((visibility("default"))) int posix_memalign(void** out, std::size_t alignment,
                                                          std::size_t size) {
  note();
  *out = __libc_memalign(alignment, size);
  return *out == nullptr ? 12 : 0;
}
}
