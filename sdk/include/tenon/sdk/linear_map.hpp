// Moves of tensors between layouts as linear maps, each with its adjoint (Hewett, Grady 2020): with the inner
// product that adds the local products of all ranks, <F x, y> = <x, F* y>. A replicated tensor is therefore a
// vector of copies: the adjoint of a broadcast sums over the copies, and that of an all-gather is a
// reduce-scatter. Index maps of windows say which inputs each output reads.
#pragma once

#include <tenon/sdk/block_exchange.hpp>
#include <tenon/tensor.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// The inputs that each output of a sliding window reads, one dimension at a time. From such a map the core
/// derives halos, pads and messages (halo_exchange); only the map knows kernel sizes, strides and dilations.
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

/// All ranks of a mesh create it, and call start and finish, in the same order. Running one allocates
/// nothing. Tensors belong to the caller, and stay untouched between start and finish.
class LinearMap {
 public:
  virtual ~LinearMap();
  virtual Shape local_domain() const = 0;  ///< of x on this rank
  virtual Shape local_range() const = 0;   ///< of y
  /// y (+)= F x.
  virtual Flight start_forward(TensorView x, TensorView y, bool accumulate) = 0;
  /// x (+)= F* y.
  virtual Flight start_adjoint(TensorView y, TensorView x, bool accumulate) = 0;
  virtual void finish(Flight flight) = 0;
  /// Bytes that this rank sends in one forward or adjoint, without framing.
  virtual std::int64_t bytes_sent(Direction direction) const = 0;

  void forward(TensorView x, TensorView y, bool accumulate = false) {
    finish(start_forward(x, y, accumulate));
  }
  void adjoint(TensorView y, TensorView x, bool accumulate = false) {
    finish(start_adjoint(y, x, accumulate));
  }
};

/// The layouts and options of a move.
struct MoveSpec {
  Layout from, to;  ///< of equal shapes, except for windows
  DType dtype = DType::kF32;
  int flights = 1;  ///< how many may be under way at a time
  /// halo_exchange, halo_exchange_nested: per dimension of `to`, the elements of `from` that its elements
  /// read.
  std::vector<std::shared_ptr<const IndexMap>> windows = {};
  Device* device = nullptr;  ///< whose memory holds the tensors; outlives the map. Null: the host's
};

/// A named kind of move. The map that `make` returns has both directions, so a kind without an adjoint does
/// not compile.
struct Primitive {
  std::string_view name, summary;
  /// Name of the primitive that is the adjoint of this one, over the same layouts swapped.
  std::string_view adjoint;
  /// Returns "", or why the layouts are not a move of this kind. Each layout is valid by itself.
  std::string (*refusal)(const MoveSpec& spec, std::span<const int> mesh);
  std::unique_ptr<LinearMap> (*make)(Mesh& mesh, const MoveSpec& spec);
};
/// All of them: send_receive, scatter, gather, broadcast, sum_reduce, all_reduce, all_gather, reduce_scatter,
/// all_to_all, repartition, halo_exchange, halo_exchange_nested.
std::span<const Primitive> primitives();
/// Throws Error(kConfig) that lists the names.
const Primitive& primitive(std::string_view name);

/// Collective. The map of primitive `name`. If layouts are invalid, differ between ranks, or are refused,
/// throws the same Error(kConfig), which begins with `what`, on all ranks before any message of the map.
std::unique_ptr<LinearMap> make_map(Mesh& mesh, std::string_view name, const MoveSpec& spec,
                                    const std::string& what);

/// The map between any two layouts of equal shape: shards are exchanged, replicated elements come from the
/// rank nearest on the mesh, and partial sums are reduced. Throws as make_map; also if `to` is a partial sum
/// over an axis over which `from` is not.
std::unique_ptr<LinearMap> redistribution(Mesh& mesh, const MoveSpec& spec, const std::string& what);

TENON_ABI_END
