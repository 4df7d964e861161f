// Index maps of windows, their gradients and interpolations, and the window that one rank derives from a map.
#include <tenon/sdk/index_map.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

TENON_ABI_BEGIN

namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) {
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return -floor_div(-a, b);
}

std::string sliding_text(const Sliding& w) {
  return fmt::format("kernel {} stride {} dilation {} pads {} {}", w.kernel, w.stride, w.dilation, w.pad_low,
                     w.pad_high);
}

class SlidingMap final : public IndexMap {
 public:
  explicit SlidingMap(const Sliding& window) : w_(window) {}
  ElementRange inputs(ElementRange outputs) const override {
    return {w_.stride * outputs.begin - w_.pad_low,
            w_.stride * (outputs.end - 1) - w_.pad_low + w_.dilation * (w_.kernel - 1) + 1};
  }
  std::string text() const override { return "window of " + sliding_text(w_); }

 private:
  Sliding w_;
};

class SlidingGradientMap final : public IndexMap {
 public:
  SlidingGradientMap(const Sliding& window, std::int64_t outputs) : w_(window), outputs_(outputs) {}
  ElementRange inputs(ElementRange of) const override {
    const std::int64_t reach = w_.dilation * (w_.kernel - 1);
    const std::int64_t low = std::max<std::int64_t>(0, ceil_div(of.begin + w_.pad_low - reach, w_.stride));
    const std::int64_t high = std::min(outputs_ - 1, floor_div(of.end - 1 + w_.pad_low, w_.stride));
    return low > high ? ElementRange{} : ElementRange{low, high + 1};
  }
  std::string text() const override {
    return fmt::format("gradient of {} over {}", sliding_text(w_), outputs_);
  }

 private:
  Sliding w_;
  std::int64_t outputs_;
};

class InterpolationMap final : public IndexMap {
 public:
  InterpolationMap(Interpolation kind, std::int64_t inputs, std::int64_t outputs)
      : kind_(kind), inputs_(inputs), outputs_(outputs) {}
  ElementRange inputs(ElementRange outputs) const override {
    return {first(outputs.begin), std::min(inputs_, last(outputs.end - 1) + 1)};
  }
  std::string text() const override {
    return fmt::format("interpolation {} of {} to {}", static_cast<int>(kind_), inputs_, outputs_);
  }

 private:
  /// Exact in integers, so that all ranks and the kernels agree at every boundary.
  std::int64_t first(std::int64_t j) const {
    if (kind_ == Interpolation::kNearest) return j * inputs_ / outputs_;
    if (kind_ == Interpolation::kLinearAligned) return outputs_ == 1 ? 0 : j * (inputs_ - 1) / (outputs_ - 1);
    return std::max<std::int64_t>(0, floor_div((2 * j + 1) * inputs_ - outputs_, 2 * outputs_));
  }
  std::int64_t last(std::int64_t j) const {
    return kind_ == Interpolation::kNearest ? first(j) : std::min(inputs_ - 1, first(j) + 1);
  }

  Interpolation kind_;
  std::int64_t inputs_, outputs_;
};

}  // namespace

IndexMap::~IndexMap() = default;

std::int64_t Sliding::outputs(std::int64_t inputs) const noexcept {
  const std::int64_t room = inputs + pad_low + pad_high - dilation * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

std::shared_ptr<const IndexMap> sliding_map(const Sliding& window) {
  return std::make_shared<SlidingMap>(window);
}
std::shared_ptr<const IndexMap> sliding_gradient_map(const Sliding& window, std::int64_t outputs) {
  return std::make_shared<SlidingGradientMap>(window, outputs);
}
std::shared_ptr<const IndexMap> interpolation_map(Interpolation kind, std::int64_t inputs,
                                                  std::int64_t outputs) {
  return std::make_shared<InterpolationMap>(kind, inputs, outputs);
}

DimWindow dim_window(const IndexMap* map, ElementRange own, ElementRange outputs, std::int64_t inputs) {
  DimWindow window;
  window.need = window.wanted = {own.begin, own.begin};
  if (outputs.size() > 0) {
    const ElementRange wanted = map == nullptr ? outputs : map->inputs(outputs);
    if (wanted.size() > 0) {
      window.wanted = wanted;
      const std::int64_t low = std::clamp<std::int64_t>(wanted.begin, 0, inputs);
      window.need = {low, std::clamp(wanted.end, low, inputs)};
      window.pad_low = std::max<std::int64_t>(0, std::min<std::int64_t>(wanted.end, 0) - wanted.begin);
      window.pad_high = std::max<std::int64_t>(0, wanted.end - std::max(wanted.begin, inputs));
      // Pads alone: nothing is needed from other ranks.
      if (window.need.size() == 0) window.need = {own.begin, own.begin};
    }
  }
  window.halo_low = own.begin - window.need.begin;
  window.halo_high = window.need.end - own.end;
  return window;
}

TENON_ABI_END
