// Moves of tensors between layouts as linear maps, each with its adjoint (Hewett, Grady 2020): with the
// inner product that adds the local products of all ranks, <F x, y> = <x, F* y>. A replicated tensor is
// therefore a vector of copies: the adjoint of a broadcast sums what comes back from the copies, and that of
// an all-gather is a reduce-scatter.
#pragma once

#include <tenon/sdk/block_exchange.hpp>
#include <tenon/sdk/index_map.hpp>

#include <memory>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// Made collectively, by all ranks of a grid in the same order; so are start and finish called. Running one
/// allocates nothing. Tensors belong to the caller, and stay untouched between start and finish.
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
  /// That this rank sends in one forward or adjoint, without framing.
  virtual std::int64_t bytes_sent(Direction direction) const = 0;

  void forward(TensorView x, TensorView y, bool accumulate = false) {
    finish(start_forward(x, y, accumulate));
  }
  void adjoint(TensorView y, TensorView x, bool accumulate = false) {
    finish(start_adjoint(y, x, accumulate));
  }
};

/// What is moved from where to where.
struct MoveSpec {
  Layout from, to;  ///< of equal shapes, but for windows
  DType dtype = DType::kF32;
  int flights = 1;  ///< how many may be under way at a time
  /// halo_exchange, halo_exchange_nested: per dimension of `to`, what its elements read of `from`.
  std::vector<std::shared_ptr<const IndexMap>> windows = {};
  Device* device = nullptr;  ///< whose memory the tensors lie in; outlives the map. Null: the host's
};

/// A kind of move by its name. The map that `make` returns has both directions, so a kind without an adjoint
/// does not compile.
struct Primitive {
  std::string_view name, summary;
  /// Name of the primitive that the adjoint of one of these is, over the same layouts the other way round.
  std::string_view adjoint;
  /// Empty, or why this is no move of the kind. Layouts are possible each by itself.
  std::string (*refusal)(const MoveSpec& spec, std::span<const int> grid);
  std::unique_ptr<LinearMap> (*make)(ModelGrid& grid, const MoveSpec& spec);
};
/// All of them: send_receive, scatter, gather, broadcast, sum_reduce, all_reduce, all_gather, reduce_scatter,
/// all_to_all, repartition, halo_exchange, halo_exchange_nested.
std::span<const Primitive> primitives();
/// Throws Error(kConfig) that lists the names.
const Primitive& primitive(std::string_view name);

/// Collective. The map of primitive `name`. Throws the same Error(kConfig), which begins with `what`, on all
/// ranks, before any message of the map, where layouts are impossible, differ between ranks, or are refused.
std::unique_ptr<LinearMap> make_map(ModelGrid& grid, std::string_view name, const MoveSpec& spec,
                                    const std::string& what);

/// The map between any two layouts of equal shape: what is cut is exchanged, what is replicated comes from
/// the rank that is nearest on the grid, sums are made. Throws as make_map; also where `to` is a sum over an
/// axis over which `from` is none.
std::unique_ptr<LinearMap> redistribution(ModelGrid& grid, const MoveSpec& spec, const std::string& what);

TENON_ABI_END
