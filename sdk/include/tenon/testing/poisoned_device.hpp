// For tests: wraps a device and fills memory with NaN wherever the graph's plan says that a lifetime begins.
// A layer that reads a value, a workspace or scratch before writing it then computes NaN.
#pragma once

#include <tenon/device.hpp>
#include <tenon/executor.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace tenon::testing {

class PoisonedDevice final : public Device, public MemoryWatch {
 public:
  /// `inner` is open and outlives it.
  explicit PoisonedDevice(Device& inner) : inner_(inner), poison_(kPart, std::byte{0xFF}) {}

  void open(const DeviceSpec& spec) override { inner_.open(spec); }
  MemorySpace space() const override { return inner_.space(); }
  void* allocate(std::size_t bytes) override { return inner_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { inner_.release(memory, bytes); }
  void copy(TensorView from, TensorView to) override { inner_.copy(from, to); }
  void synchronize() override { inner_.synchronize(); }
  std::string_view kernel_choice() const override { return inner_.kernel_choice(); }
  std::string_view features() const override { return inner_.features(); }
  void* query(std::string_view interface_id) override {
    return interface_id == MemoryWatch::kId ? static_cast<MemoryWatch*>(this) : inner_.query(interface_id);
  }

  /// Bytes that are NaN in every floating-point format, and not a valid index.
  void begins(TensorView memory, std::string_view) override {
    for (std::int64_t done = 0; done < memory.bytes();) {
      const std::int64_t bytes = std::min<std::int64_t>(memory.bytes() - done, kPart);
      TensorView from, to = memory;
      from.data = poison_.data(), from.shape = to.shape = Shape{bytes}, from.dtype = to.dtype = DType::kU8;
      to.data = static_cast<std::byte*>(memory.data) + done;
      inner_.copy(from, to);
      done += bytes;
    }
  }

 private:
  static constexpr std::int64_t kPart = std::int64_t{1} << 16;
  Device& inner_;
  std::vector<std::byte> poison_;
};

}  // namespace tenon::testing
