// Copies, adds and clears boxes of tensors in place: runs of elements in the host's memory, operators of the
// device elsewhere. Also memory beside the tensors.
#pragma once

#include "comm/block_runs.hpp"

#include <tenon/device.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/sdk/fixed_order.hpp>

#include <cstddef>
#include <cstring>
#include <utility>
#include <vector>

namespace tenon::comm {

/// Memory of a device, or of the host for null; zero-filled.
class Room {
 public:
  Room() = default;
  Room(Device* device, std::size_t bytes) : device_(device) {
    if (device_ == nullptr) {
      host_.resize(bytes);
    } else if (bytes > 0) {
      memory_ = static_cast<std::byte*>(device_->allocate(bytes)), bytes_ = bytes;
    }
  }
  ~Room() {
    if (memory_ != nullptr) device_->release(memory_, bytes_);
  }
  Room(Room&& other) noexcept
      : device_(other.device_),
        host_(std::move(other.host_)),
        memory_(std::exchange(other.memory_, nullptr)),
        bytes_(other.bytes_) {}
  Room& operator=(Room&& other) noexcept {
    std::swap(device_, other.device_), std::swap(host_, other.host_);
    std::swap(memory_, other.memory_), std::swap(bytes_, other.bytes_);
    return *this;
  }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  std::byte* data() noexcept { return device_ == nullptr ? host_.data() : memory_; }

 private:
  Device* device_ = nullptr;
  std::vector<std::byte> host_;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

class BoxMoves {
 public:
  /// For tensors in this device's memory; in the host's if it is null or uses host memory. Throws
  /// Error(kConfig) for a device without the operators.
  BoxMoves(Device* device, DType dtype) : dtype_(dtype), item_(dtype_bytes(dtype, 1)) {
    if (device == nullptr || device->space() == MemorySpace::kHost) return;
    device_ = device;
    ops_ = &device->family<StridedCopyOps>();
  }
  Device* device() const noexcept { return device_; }
  MemorySpace space() const { return device_ == nullptr ? MemorySpace::kHost : device_->space(); }

  /// The box of `to` (+)= that of `from`; windows of tensors at these addresses.
  void put(const std::byte* from, const Window& source, std::byte* to, const Window& target, bool add) const {
    if (ops_ != nullptr) {
      const TensorView in = view(const_cast<std::byte*>(from), source), out = view(to, target);
      add ? ops_->add(in, source.box, out, target.box) : ops_->copy(in, source.box, out, target.box);
      return;
    }
    for_each_run(source, target, [&](std::int64_t at, std::int64_t there, std::int64_t count) {
      if (add) {
        combine_hop(to + there * item_, from + at * item_, count, dtype_, ReduceOp::kSum);
      } else {
        std::memcpy(to + there * item_, from + at * item_, count * item_);
      }
    });
  }
  void clear(std::byte* x, const Window& window) const {
    if (ops_ != nullptr) {
      ops_->fill(view(x, window), window.box, 0);
      return;
    }
    for_each_run(window, whole_of(window.box.extents),
                 [&](std::int64_t at, std::int64_t, std::int64_t count) {
                   std::memset(x + at * item_, 0, count * item_);
                 });
  }

 private:
  TensorView view(std::byte* data, const Window& window) const {
    return {data, window.shape, dtype_, space()};
  }

  Device* device_ = nullptr;
  StridedCopyOps* ops_ = nullptr;
  DType dtype_;
  std::int64_t item_;
};

}  // namespace tenon::comm
