// Makes the exchange and the sliding window from options and the layout of x.
#include "windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace tenon::distdl {

void SlidingWindows::infer(InferContext& context, const Options& options, const ValueSpec& x) {
  expect_planes(context, x.layout);
  boxes_ = boxes_of(context.device());
  const Shape& inputs = x.layout.shape;
  window_.spatial = global_.spatial = inputs.rank() - 2;
  std::vector<Halo::Reach> reaches;
  for (int d = 0; d < spatial(); ++d) {
    const Sliding one = sliding_for(context, options, d, spatial());
    const std::int64_t outputs = one.outputs(inputs[d + 2]);
    if (outputs == 0) {
      refuse(context,
             fmt::format("a kernel of {} with dilation {} spans {} elements, more than the {} of x {} along "
                         "dimension {} with padding {} on both sides",
                         one.kernel, one.dilation, one.dilation * (one.kernel - 1) + 1, inputs[d + 2],
                         inputs.text(), d + 2, one.pad_low));
    }
    reaches.push_back({sliding_map(one), outputs});
    global_.extent[d] = inputs[d + 2];
    window_.kernel[d] = global_.kernel[d] = one.kernel, window_.stride[d] = global_.stride[d] = one.stride;
    window_.dilation[d] = global_.dilation[d] = one.dilation;
    global_.pad_low[d] = global_.pad_high[d] = one.pad_low;
  }
  halo_.infer(context, x, reaches);
  for (int d = 0; d < spatial(); ++d) window_.extent[d] = halo_.read(d).wanted.size();
}

Sliding SlidingWindows::sliding(int dim) const {
  return {global_.kernel[dim], global_.stride[dim], global_.dilation[dim], global_.pad_low[dim],
          global_.pad_high[dim]};
}

bool SlidingWindows::cut_in_space() const {
  const Layout outputs = output_layout(1);
  return std::any_of(outputs.sharding.begin(), outputs.sharding.end(),
                     [](const DimSharding& cut) { return cut.dim >= 2 && cut.offsets.size() > 2; });
}

void SlidingWindows::fetch(TensorView x, TensorView window, Pads pads) {
  halo_.fetch(x, window);
  bool padded = false;
  for (int d = 0; d < spatial(); ++d) padded |= halo_.read(d).pad_low + halo_.read(d).pad_high > 0;
  if (pads == Pads::kLowest && padded) lower_pads(window);
}

void SlidingWindows::lower_pads(TensorView window) const {
  const Shape& shape = window.shape;
  const auto outside = [&](std::int64_t position) {
    for (int dim = shape.rank() - 1; dim >= 2; --dim) {
      const DimWindow& at = halo_.read(dim - 2);
      const std::int64_t index = position % shape[dim];
      if (index < at.pad_low || index >= at.pad_low + at.need.size()) return true;
      position /= shape[dim];
    }
    return false;
  };
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  for (int dim = 2; dim < shape.rank() && boxes_ != nullptr; ++dim) {
    const DimWindow& at = halo_.read(dim - 2);
    const ElementRange beyond[] = {{0, at.pad_low}, {at.pad_low + at.need.size(), shape[dim]}};
    for (const ElementRange& pads : beyond) {
      Box slab{shape, shape};
      for (int d = 0; d < shape.rank(); ++d) slab.offset[d] = 0;
      slab.offset[dim] = pads.begin, slab.extents[dim] = pads.size();
      boxes_->fill(window, slab, kLowest);
    }
  }
  if (boxes_ != nullptr) return;
  for (std::int64_t i = 0; i < window.elements(); ++i) {
    if (!outside(i)) continue;
    if (window.dtype == DType::kF64) {
      window.as<double>()[i] = kLowest;
    } else if (window.dtype == DType::kBF16) {
      window.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(kLowest) >> 16);
    } else {
      window.as<float>()[i] = kLowest;
    }
  }
}

}  // namespace tenon::distdl
