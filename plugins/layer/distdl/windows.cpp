// From options and the layout of x to the exchange and to what slides.
#include "windows.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>

namespace tenon::distdl {
namespace {

/// One number for all dimensions, or one for each.
std::int64_t number_for(const InferContext& context, const Options& options, std::string_view name, int dim,
                        int spatial) {
  const auto values = options.integers(name);
  if (values.size() != 1 && values.size() != static_cast<std::size_t>(spatial)) {
    refuse(context,
           fmt::format(
               "option '{}' takes one number or {}, one for each dimension behind the channels; found {}",
               name, spatial, values.size()));
  }
  return values[values.size() == 1 ? 0 : static_cast<std::size_t>(dim)];
}

Sliding sliding_at(const InferContext& context, const Options& options, int dim, int spatial) {
  Sliding window;
  window.kernel = number_for(context, options, "kernel", dim, spatial);
  window.stride = number_for(context, options, options.has("stride") ? "stride" : "kernel", dim, spatial);
  window.dilation = number_for(context, options, "dilation", dim, spatial);
  window.pad_low = window.pad_high = number_for(context, options, "padding", dim, spatial);
  return window;
}

}  // namespace

void SlidingWindows::infer(InferContext& context, const Options& options, const ValueSpec& x) {
  const Shape& inputs = x.layout.shape;
  if (inputs.rank() < 3 || inputs.rank() > 5)
    refuse(context, "expected x [batch, channels, 1 to 3 extents], found shape " + inputs.text());
  ModelGrid& grid = context.grid();
  MoveSpec move{.from = x.layout, .to = {inputs, x.layout.sharding}, .dtype = x.dtype};
  move.windows = {nullptr, nullptr};
  window_.spatial = global_.spatial = inputs.rank() - 2;
  for (int d = 0; d < spatial(); ++d) {
    const Sliding one = sliding_at(context, options, d, spatial());
    const std::int64_t outputs = one.outputs(inputs[d + 2]);
    if (outputs == 0) {
      refuse(context,
             fmt::format("a kernel of {} with dilation {} spans {} elements, more than the {} of x {} along "
                         "dimension {} with padding {} on both sides",
                         one.kernel, one.dilation, one.dilation * (one.kernel - 1) + 1, inputs[d + 2],
                         inputs.text(), d + 2, one.pad_low));
    }
    move.to.shape[d + 2] = outputs;
    move.windows.push_back(sliding_map(one));
    global_.extent[d] = inputs[d + 2];
    window_.kernel[d] = global_.kernel[d] = one.kernel, window_.stride[d] = global_.stride[d] = one.stride;
    window_.dilation[d] = global_.dilation[d] = one.dilation;
    global_.pad_low[d] = global_.pad_high[d] = one.pad_low;
  }
  for (DimSharding& cut : move.to.sharding) {
    if (cut.dim >= 2)
      cut.offsets = balanced_offsets(move.to.shape[cut.dim], static_cast<int>(cut.offsets.size()) - 1);
  }
  outputs_ = move.to;
  halo_ = make_map(grid, "halo_exchange", move, fmt::format("layer '{}'", context.name()));
  const Box own = part_of(x.layout, grid.place()), made = part_of(outputs_, grid.place());
  samples_ = made.extents[0];
  for (int d = 0; d < spatial(); ++d) {
    const int dim = d + 2;
    own_[d] = {own.offset[dim], own.end(dim)}, made_[d] = {made.offset[dim], made.end(dim)};
    dims_.push_back(
        dim_window(move.windows[static_cast<std::size_t>(dim)].get(), own_[d], made_[d], inputs[dim]));
    window_.extent[d] = dims_.back().wanted.size();
  }
}

Sliding SlidingWindows::sliding(int dim) const {
  return {global_.kernel[dim], global_.stride[dim], global_.dilation[dim], global_.pad_low[dim],
          global_.pad_high[dim]};
}

bool SlidingWindows::cut_in_space() const {
  return std::any_of(outputs_.sharding.begin(), outputs_.sharding.end(),
                     [](const DimSharding& cut) { return cut.dim >= 2 && cut.offsets.size() > 2; });
}

Layout SlidingWindows::output_layout(std::int64_t channels) const {
  Layout layout = outputs_;
  layout.shape[1] = channels;
  return layout;
}

void SlidingWindows::fetch(TensorView x, TensorView window, Pads pads) {
  halo_->forward(x, window);
  const bool padded = std::any_of(dims_.begin(), dims_.end(),
                                  [](const DimWindow& at) { return at.pad_low + at.pad_high > 0; });
  if (pads == Pads::kLowest && padded) lower_pads(window);
}

void SlidingWindows::give_back(TensorView window, const GradientSink& dx) {
  halo_->adjoint(window, dx.view, dx.accumulate);
}

void SlidingWindows::lower_pads(TensorView window) const {
  const Shape& shape = window.shape;
  const auto outside = [&](std::int64_t position) {
    for (int dim = shape.rank() - 1; dim >= 2; --dim) {
      const DimWindow& at = dims_[static_cast<std::size_t>(dim - 2)];
      const std::int64_t index = position % shape[dim];
      if (index < at.pad_low || index >= at.pad_low + at.need.size()) return true;
      position /= shape[dim];
    }
    return false;
  };
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
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
