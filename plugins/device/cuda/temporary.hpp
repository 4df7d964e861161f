// Device memory for data of one operator call: the queue's scratch where that is large enough, else memory of
// its own, which the stream frees after the operator.
#pragma once

#include "queue.hpp"

#include <tenon/error.hpp>

#include <string>

namespace tenon::cuda {

class Temporary {
 public:
  /// Within the scratch, from byte `offset` on.
  Temporary(Queue& queue, std::size_t bytes, std::size_t offset = 0) : queue_(queue) {
    if (bytes > Queue::kScratchBytes - offset) own_ = allocated(bytes);
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
  /// The caller's guard names the operator's layer and the step.
  void* allocated(std::size_t bytes) {
    try {
      return queue_.allocate(bytes);
    } catch (const Error& error) {
      throw Error(error.kind(), std::string(error.what()) + " (for what an operator keeps within one call)");
    }
  }

  Queue& queue_;
  void* own_ = nullptr;
  std::byte* memory_ = nullptr;
};

}  // namespace tenon::cuda
