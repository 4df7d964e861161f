// Moves of tensors between layouts as linear maps, each with its adjoint (Hewett, Grady 2020): with the inner
// product that adds the local products of all ranks, <F x, y> = <x, F* y>. A replicated tensor is therefore a
// vector of copies: the adjoint of a broadcast sums over the copies, and that of an all-gather is a
// reduce-scatter.
#pragma once

#include <tenon/sdk/block_exchange.hpp>
#include <tenon/sdk/index_map.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

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
