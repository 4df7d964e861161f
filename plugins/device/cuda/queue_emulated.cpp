// Queue on host memory. Memory is accessible while an operator runs and protected otherwise, so code that
// mistakes device memory for its own ends here with a signal instead of on a machine with a GPU.
#include "common.hpp"
#include "queue.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <tenon/error.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <map>
#include <mutex>
#include <system_error>
#include <vector>

namespace tenon::cuda {
namespace {

/// Bytes of addresses, not of memory: pages are allocated when they are touched.
constexpr std::size_t kReserved = std::size_t{64} << 30;
constexpr std::size_t kAlignment = 4096;
/// Granularity of protection. Memory of this size takes one entry of the page table where the kernel offers
/// large pages, and each operation changes the rights of all entries.
constexpr std::size_t kLargePage = std::size_t{2} << 20;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t unit = kAlignment) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

/// One range of addresses, first fit. Nothing beyond `used` was ever allocated; `usable` is what an operator
/// opens.
struct Queue::State {
  std::byte* mapping = nullptr;  ///< kReserved and one large page, so that base can begin with one
  std::byte* base = nullptr;
  std::size_t used = 0, usable = 0;
  std::map<std::size_t, std::size_t> free;  ///< offset -> bytes, neighbours joined
  std::map<std::size_t, std::size_t> taken;
  std::recursive_mutex mutex;  ///< held while an operator runs: a stream also runs one at a time
  std::vector<std::max_align_t> shared;
  int open = 0;
  bool guard = true;
  std::size_t capacity = kReserved, held = 0;
  std::string which;  ///< "device 0 (emulated on the host)"
  std::int64_t operations = 0, lose_at = -1;
  std::string lost;  ///< why the device is dead; "" = it lives

  void begin_operation() {
    if (lost.empty() && operations++ == lose_at) {
      lost = fmt::format(
          "device {}: operation {}, as lose_at says; {} is lost to this process, which cannot "
          "go on with it",
          kDeviceName, lose_at, which);
    }
    if (!lost.empty()) fail_device_lost(lost);
  }

  void protect(int rights) const {
    if (!guard || usable == 0) return;
    if (mprotect(base, usable, rights) != 0) {
      fail_run(fmt::format("device {}: mprotect: {}", kDeviceName, std::generic_category().message(errno)));
    }
  }
};

Queue::Access::Access(Queue& queue) : queue_(queue) {
  State& state = *queue_.state_;
  std::unique_lock lock(state.mutex);
  if (state.open == 0) {
    state.begin_operation();
    state.protect(PROT_READ | PROT_WRITE);
  }
  ++state.open;
  lock.release();
}

Queue::Access::~Access() {
  if (--queue_.state_->open == 0) queue_.state_->protect(PROT_NONE);
  queue_.state_->mutex.unlock();
}

Queue::Queue(const QueueSpec& spec)
    : state_(std::make_unique<State>()), order_(spec.order), tf32_(spec.tf32), architecture_(90) {
  void* const mapping =
      mmap(nullptr, kReserved + kLargePage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    fail_run(fmt::format("device {}: no range of {} GiB of addresses is free: {}", kDeviceName,
                         kReserved >> 30, std::generic_category().message(errno)));
  }
  state_->mapping = static_cast<std::byte*>(mapping);
  const auto address = reinterpret_cast<std::uintptr_t>(mapping);
  state_->base = state_->mapping + (rounded_up(address, kLargePage) - address);
  madvise(state_->base, kReserved,
          MADV_HUGEPAGE);  // a kernel without large pages fails, which is slower and no error
  state_->guard = spec.guard;
  description_ = fmt::format("emulated on the host{}{}{}", spec.model.empty() ? "" : " as ", spec.model,
                             spec.guard ? ", memory guarded" : "");
  state_->which = fmt::format("device {} ({})", spec.index, description_);
  state_->lose_at = spec.lose_at;
  if (spec.capacity > 0) state_->capacity = std::min(spec.capacity, kReserved);
  scratch_ = allocate(kScratchBytes);
}

Queue::~Queue() {
  munmap(state_->mapping, kReserved + kLargePage);
}

void* Queue::allocate(std::size_t bytes) {
  const Access access(*this);
  const std::size_t left = state_->capacity - state_->held;
  if (bytes > left) refuse_memory(bytes, left, state_->capacity, "");
  const std::size_t size = rounded_up(bytes == 0 ? 1 : bytes);
  std::size_t offset = 0;
  auto place = state_->free.begin();
  while (place != state_->free.end() && place->second < size) ++place;
  if (place != state_->free.end()) {
    offset = place->first;
    if (place->second > size) state_->free.emplace(offset + size, place->second - size);
    state_->free.erase(place);
  } else {
    if (size > kReserved - state_->used) refuse_memory(bytes, left, state_->capacity, "in pieces");
    const std::size_t usable = rounded_up(state_->used + size, kLargePage);
    if (usable > state_->usable) {
      if (mprotect(state_->base + state_->usable, usable - state_->usable, PROT_READ | PROT_WRITE) != 0)
        refuse_memory(bytes, left, state_->capacity, "in pieces");
      state_->usable = usable;
    }
    offset = state_->used;
    state_->used += size;
  }
  state_->taken[offset] = size;
  state_->held += std::min(size, state_->capacity - state_->held);
  std::memset(state_->base + offset, 0, size);
  return state_->base + offset;
}

void Queue::release(void* memory) noexcept {
  if (memory == nullptr) return;
  const std::lock_guard lock(state_->mutex);
  const std::size_t at = static_cast<std::byte*>(memory) - state_->base;
  const auto found = state_->taken.find(at);
  if (found == state_->taken.end()) return;
  state_->held -= std::min(found->second, state_->held);
  auto [place, added] = state_->free.emplace(found->first, found->second);
  state_->taken.erase(found);
  if (const auto next = std::next(place);
      next != state_->free.end() && place->first + place->second == next->first) {
    place->second += next->second;
    state_->free.erase(next);
  }
  if (place != state_->free.begin()) {
    const auto before = std::prev(place);
    if (before->first + before->second == place->first) {
      before->second += place->second;
      state_->free.erase(place);
    }
  }
}

void Queue::copy(const void* from, MemorySpace, void* to, MemorySpace, std::size_t bytes) {
  if (bytes == 0 || from == to) return;
  const Access access(*this);
  std::memmove(to, from, bytes);
}

void Queue::clear(void* memory, std::size_t bytes) {
  if (bytes == 0) return;
  const Access access(*this);
  std::memset(memory, 0, bytes);
}

std::byte* Queue::shared_memory(std::size_t bytes) {
  const std::size_t units = bytes / sizeof(std::max_align_t) + 1;
  if (state_->shared.size() < units) state_->shared.resize(units);
  return reinterpret_cast<std::byte*>(state_->shared.data());
}

void Queue::make_current() {}

void Queue::synchronize() {
  check(0, "");
}

void Queue::check(int, const char*) {
  const std::lock_guard lock(state_->mutex);
  if (!state_->lost.empty()) fail_device_lost(state_->lost);
}

std::string driver_text() {
  return "";
}

int usable_devices(std::string& reason) {
  reason.clear();
  return 64;  // ranks, each with a device of its own
}

// Streams and events: distinct handles without any state.

void Streams::make_current() {}

std::string Streams::identity() {
  return fmt::format("emulated device {} of process {}", index_, ::getpid());
}

void* Streams::make_stream() {
  return new char();
}

void Streams::release_stream(void* stream) noexcept {
  delete static_cast<char*>(stream);
}

void* Streams::make_event() {
  return new char();
}

void Streams::release_event(void* event) noexcept {
  delete static_cast<char*>(event);
}

void Streams::record(void*, void*) {}

void Streams::wait(void*, void*) {}

bool Streams::reached(void*) {
  return true;
}

}  // namespace tenon::cuda
