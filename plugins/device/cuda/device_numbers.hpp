// A copy of host numbers in the device's memory, for data that is prepared once.
#pragma once

#include "queue.hpp"

#include <vector>

namespace tenon::cuda {

class DeviceNumbers {
 public:
  explicit DeviceNumbers(Queue& queue) : queue_(queue) {}
  ~DeviceNumbers() { queue_.release(memory_); }
  DeviceNumbers(const DeviceNumbers&) = delete;
  DeviceNumbers& operator=(const DeviceNumbers&) = delete;

  /// Call at most once.
  template <class T>
  void set(const std::vector<T>& numbers) {
    const std::size_t bytes = numbers.size() * sizeof(T);
    memory_ = queue_.allocate(bytes);
    queue_.copy(numbers.data(), MemorySpace::kHost, memory_, MemorySpace::kCuda, bytes);
  }
  template <class T>
  const T* at() const {
    return static_cast<const T*>(memory_);
  }

 private:
  Queue& queue_;
  void* memory_ = nullptr;
};

}  // namespace tenon::cuda
