// The inputs that each output of a sliding window reads, one dimension at a time. From such a map the core
// derives halos, pads and messages (linear_map.hpp, halo_exchange); only the map knows kernel sizes, strides
// and dilations.
#pragma once

#include <tenon/tensor.hpp>

#include <memory>

TENON_ABI_BEGIN

class IndexMap {
 public:
  virtual ~IndexMap();
  /// An interval that holds all inputs that the outputs [begin, end), not empty, read. It may reach beyond
  /// the tensor on both sides, where the layer pads. Empty (begin = end): nothing is read.
  virtual ElementRange inputs(ElementRange outputs) const = 0;
  /// Maps of equal text are equal.
  virtual std::string text() const = 0;
};

/// A window of `kernel` elements, `dilation` apart, at stride * j - pad (convolution, pooling; also, for what
/// a window's own gradient reads, pad = 0).
struct Sliding {
  std::int64_t kernel = 1, stride = 1, dilation = 1, pad_low = 0, pad_high = 0;

  /// floor((inputs + pads - dilation (kernel - 1) - 1) / stride) + 1; 0 where the window does not fit.
  std::int64_t outputs(std::int64_t inputs) const noexcept;
};
std::shared_ptr<const IndexMap> sliding_map(const Sliding& window);
/// The gradient of such a window in gather form: which of the `outputs` gradients the gradient of an input
/// reads.
std::shared_ptr<const IndexMap> sliding_gradient_map(const Sliding& window, std::int64_t outputs);

enum class Interpolation : std::uint8_t { kNearest, kLinear, kLinearAligned };
/// Upsampling of `inputs` elements to `outputs`: the nearest (floor(j inputs / outputs)) or the two around
/// (j + 1/2) inputs / outputs - 1/2; kLinearAligned: around j (inputs - 1) / (outputs - 1).
std::shared_ptr<const IndexMap> interpolation_map(Interpolation kind, std::int64_t inputs,
                                                  std::int64_t outputs);

/// One dimension of the inputs that a rank needs for its outputs.
struct DimWindow {
  ElementRange wanted;                     ///< as the map says, unclamped
  ElementRange need;                       ///< the part of it that exists
  std::int64_t pad_low = 0, pad_high = 0;  ///< the parts that do not
  /// Reach of `need` beyond the rank's own inputs on either side; negative: own inputs not needed.
  std::int64_t halo_low = 0, halo_high = 0;
};
/// `own`: the rank's inputs; `outputs`: the outputs that it computes. A null map is the identity.
DimWindow dim_window(const IndexMap* map, ElementRange own, ElementRange outputs, std::int64_t inputs);

TENON_ABI_END
