// In host memory, lines along the last dimension are one memcpy each.
#include "box.hpp"

#include <tenon/parallel.hpp>

#include <algorithm>
#include <cstring>

namespace tenon::fno {
namespace {

constexpr std::int64_t kBlockBytes = std::int64_t{1} << 16;

/// Place of the first element of line `line` of the box.
std::int64_t place(std::int64_t line, const Shape& box, const Shape& tensor) {
  std::int64_t result = 0, stride = tensor[tensor.rank() - 1];
  for (int d = box.rank() - 2; d >= 0; --d) {
    result += line % box[d] * stride;
    line /= box[d];
    stride *= tensor[d];
  }
  return result;
}

void copy_on_host(TensorView from, TensorView to, const Shape& box) {
  const std::int64_t elements = box.elements();
  if (elements == 0) return;
  const std::int64_t length = box[box.rank() - 1], bytes = dtype_bytes(from.dtype, length),
                     width = dtype_bytes(from.dtype, 1);
  const auto* source = static_cast<const std::byte*>(from.data);
  auto* target = static_cast<std::byte*>(to.data);
  parallel_for(elements / length, std::max<std::int64_t>(1, kBlockBytes / bytes),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t line = begin; line < end; ++line)
                   std::memcpy(target + place(line, box, to.shape) * width,
                               source + place(line, box, from.shape) * width,
                               static_cast<std::size_t>(bytes));
               });
}

}  // namespace

void BoxCopier::infer(InferContext& context) {
  Device& device = context.device();
  elementwise_ = &device.family<Elementwise>();
  if (device.space() != MemorySpace::kHost) ops_ = &device.family<BoxOps>();
}

void BoxCopier::copy(TensorView from, TensorView to, const Shape& box) {
  if (box.elements() == 0) return;
  if (ops_ == nullptr) {
    copy_on_host(from, to, box);
    return;
  }
  Box near{box, box};
  for (int d = 0; d < box.rank(); ++d) near.offset[d] = 0;
  ops_->copy(from, near, to, near);
}

void BoxCopier::add(TensorView gradient, const Shape& box, const GradientSink& sink, TensorView room) {
  if (sink.view.empty()) return;
  const TensorView whole = sink.accumulate ? in_workspace(room, sink.view.dtype, sink.view.shape) : sink.view;
  if (!(box == whole.shape)) elementwise_->fill(flat(whole), 0);
  copy(gradient, whole, box);
  if (sink.accumulate) elementwise_->axpy(1, flat(whole), flat(sink.view));
}

}  // namespace tenon::fno
