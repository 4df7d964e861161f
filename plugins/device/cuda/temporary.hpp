// Device memory for what an operator keeps within one call: the queue's scratch where that is large enough,
// else memory of its own, which the stream frees behind the operator.
#pragma once

#include "queue.hpp"

namespace tenon::cuda {

class Temporary {
 public:
  /// Within the scratch, from byte `offset` on.
  Temporary(Queue& queue, std::size_t bytes, std::size_t offset = 0) : queue_(queue) {
    if (bytes > Queue::kScratchBytes - offset) own_ = queue.allocate(bytes);
    memory_ = own_ != nullptr ? static_cast<std::byte*>(own_) : queue.scratch<std::byte>(offset);
  }
  ~Temporary() { queue_.release(own_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  template <class T>
  T* at(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(memory_ + offset);
  }

 private:
  Queue& queue_;
  void* own_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace tenon::cuda
