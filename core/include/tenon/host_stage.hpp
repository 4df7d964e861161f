// Tensors of a device for code that runs on the host: the tensor itself where the device's memory is the
// host's, and otherwise a copy. What such code does is the same on every device; beyond the host it costs two
// transfers, so it is for what is small, rare, or has no operator.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/optimizer.hpp>

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// Memory for one tensor at a time, kept for the next: a steady step asks the heap for nothing. Of one
/// thread.
class HostStage {
 public:
  /// The elements of `view`; valid until the next call of read() or room().
  TensorView read(Device& device, const TensorView& view) {
    const TensorView here = room(view);
    if (here.data != view.data && view.elements() > 0) {
      device.copy(view, here);
      device.synchronize();
    }
    return here;
  }
  /// As many elements, of any value.
  TensorView room(const TensorView& view) {
    if (view.space == MemorySpace::kHost) return view;
    const auto bytes = static_cast<std::size_t>(view.bytes());
    if (memory_.size() * sizeof(Line) < bytes) memory_.resize((bytes + sizeof(Line) - 1) / sizeof(Line));
    return {memory_.data(), view.shape, view.dtype, MemorySpace::kHost};
  }
  /// What read() or room() gave for `view`, as it is now, back to the device.
  void write(Device& device, const TensorView& view) {
    if (view.space == MemorySpace::kHost || view.elements() == 0) return;
    device.copy({memory_.data(), view.shape, view.dtype, MemorySpace::kHost}, view);
    device.synchronize();
  }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> memory_;
};

inline constexpr std::size_t kMostHostStates = 4;

/// For optimizers whose rule no device offers: calls body(const ParameterSlice&) with the slice in host
/// memory, and gives weights and state back. The gradients are not written back.
template <typename Body>
void update_on_host(Device& device, const ParameterSlice& slice, Body&& body) {
  if (slice.weights.space == MemorySpace::kHost) return std::forward<Body>(body)(slice);
  static thread_local std::array<HostStage, 2 + kMostHostStates> stages;
  if (slice.state.size() > kMostHostStates) fail_run("an update on the host has too many states");
  std::array<TensorView, kMostHostStates> state;
  for (std::size_t i = 0; i < slice.state.size(); ++i) state[i] = stages[2 + i].read(device, slice.state[i]);
  ParameterSlice here = slice;
  here.weights = stages[0].read(device, slice.weights);
  here.gradients = stages[1].read(device, slice.gradients);
  here.state = std::span<const TensorView>(state).first(slice.state.size());
  std::forward<Body>(body)(std::as_const(here));
  stages[0].write(device, slice.weights);
  for (std::size_t i = 0; i < slice.state.size(); ++i) stages[2 + i].write(device, slice.state[i]);
}

TENON_ABI_END
