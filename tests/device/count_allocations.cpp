// For tests: counts heap allocations by Tenon's own objects while a call runs; see device_test.hpp.
#include <dlfcn.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

namespace {

std::atomic<bool> counting{false};
std::atomic<int> counted{0};

bool is_foreign(void* caller) {
  Dl_info info{};
  if (dladdr(caller, &info) == 0 || info.dli_fname == nullptr) return false;
  for (const char* library : {"libdnnl", "libgomp", "guarded_calls"})
    if (std::strstr(info.dli_fname, library) != nullptr) return true;
  return false;
}

void* take(std::size_t bytes, std::size_t alignment, void* caller) {
  if (counting && !is_foreign(caller)) ++counted;
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes == 0 ? 1 : bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

// In a file of their own: in the files that use them the compiler would see malloc and new together.
void* operator new(std::size_t bytes) {
  return take(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new[](std::size_t bytes) {
  return take(bytes, alignof(std::max_align_t), __builtin_return_address(0));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<std::size_t>(alignment), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept {
  std::free(memory);
}
void operator delete[](void* memory) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace tenon::testing {

int own_allocations(const std::function<void()>& call) {
  counted = 0;
  counting = true;
  call();
  counting = false;
  return counted;
}

}  // namespace tenon::testing
