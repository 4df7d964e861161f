// Buffers whose size differs from step to step: growing so that a steady step soon asks the heap for nothing,
// and as flat tensors for a communicator.
#pragma once

#include <tenon/tensor.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

TENON_ABI_BEGIN

/// All of `values` as one tensor in host memory, valid until they are resized.
template <typename T>
TensorView flat_view(std::vector<T>& values, DType dtype) {
  TensorView view;
  view.data = values.data();
  view.dtype = dtype;
  view.shape = Shape{static_cast<std::int64_t>(values.size())};
  return view;
}

/// Room for `count` elements, and if there is none yet for twice as many, or for `least` if that is more.
template <typename T>
void make_room(std::vector<T>& values, std::size_t count, std::size_t least) {
  if (values.capacity() < count) values.reserve(std::max(2 * count, least));
}

/// resize() with that room.
template <typename T>
void resize_with_room(std::vector<T>& values, std::size_t count, std::size_t least) {
  make_room(values, count, least);
  values.resize(count);
}

TENON_ABI_END
