// Operands for the tests of products on this device.
#pragma once

#include "queue.hpp"

#include <cstring>
#include <vector>

namespace tenon::cuda {

/// A device tensor filled with numbers of a small period that f64, f32 and bf16 represent alike; 8-bit ones
/// are codes below 57, as E4M3 and E5M2 at most 1.5 in magnitude. Begins `skip` elements after an aligned
/// place.
class Numbers {
 public:
  Numbers(Queue& queue, std::int64_t count, DType dtype, int seed, std::int64_t skip = 0) : queue_(queue) {
    memory_ = queue.allocate(dtype_bytes(dtype, count + skip));
    view_ = {static_cast<std::byte*>(memory_) + dtype_bytes(dtype, skip), Shape{count}, dtype,
             MemorySpace::kCuda};
    std::vector<std::byte> host(view_.bytes());
    const auto put = [&](std::int64_t i, const auto& value) {
      std::memcpy(host.data() + i * sizeof(value), &value, sizeof(value));
    };
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>((i * 7 + seed) % 61 - 30) / 16;
      const auto narrow = static_cast<float>(value);
      std::uint32_t bits = 0;
      std::memcpy(&bits, &narrow, sizeof bits);
      if (dtype == DType::kF64) put(i, value);
      if (dtype == DType::kF32) put(i, narrow);
      if (dtype == DType::kBF16) put(i, static_cast<std::uint16_t>(bits >> 16));
      if (dtype_bits(dtype) == 8) put(i, static_cast<std::uint8_t>((i * 7 + seed) % 57));
    }
    queue.copy(host.data(), MemorySpace::kHost, view_.data, MemorySpace::kCuda, host.size());
  }
  ~Numbers() { queue_.release(memory_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  const TensorView& view() const { return view_; }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> host(view_.bytes());
    queue_.copy(view_.data, MemorySpace::kCuda, host.data(), MemorySpace::kHost, host.size());
    return host;
  }

 private:
  Queue& queue_;
  void* memory_ = nullptr;
  TensorView view_;
};

}  // namespace tenon::cuda
