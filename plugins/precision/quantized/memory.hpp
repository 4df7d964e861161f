// Divides a block of memory into sections that begin on cache lines. Without memory it only adds up sizes, so
// the same function computes how much a call needs and hands it out.
#pragma once

#include <tenon/tensor.hpp>

namespace tenon::quantized {

class Cutter {
 public:
  Cutter() = default;
  explicit Cutter(TensorView memory) : memory_(memory) {}

  TensorView take(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, memory_.space};
    const auto bytes = static_cast<std::size_t>(view.bytes());
    if (memory_.data != nullptr && bytes > 0) view.data = memory_.as<std::byte>() + used_;
    used_ += (bytes + kLine - 1) / kLine * kLine;
    return view;
  }
  TensorView bytes(std::size_t count) { return take(DType::kU8, Shape{static_cast<std::int64_t>(count)}); }
  std::size_t used() const { return used_; }

 private:
  static constexpr std::size_t kLine = 64;
  TensorView memory_;
  std::size_t used_ = 0;
};

}  // namespace tenon::quantized
