// Exchanges blocks of tensors between the ranks of a mesh, in both directions: the transpose of an
// exchange sends every block back and adds. Scatter, gather, all-gather, reduce-scatter, all-to-all,
// repartition and halo exchanges are lists of blocks (linear_map.hpp, window_plan.hpp); this class carries
// them out.
#pragma once

#include <tenon/transport.hpp>

#include <cstddef>
#include <memory>
#include <vector>

TENON_ABI_BEGIN

class Device;

/// Elements that one rank sends and another stores: `from` is in the sender's tensor, `to` in the receiver's,
/// of equal extents, both in local indices.
struct Block {
  int sender = 0, receiver = 0;  ///< mesh indices; equal for a local copy
  Box from, to;
};

/// A rank's part of an exchange: every block that it sends or receives, no empty ones. Both ranks of a pair
/// list their common blocks in the same order.
struct ExchangeSpec {
  DType dtype = DType::kF32;
  Shape source, target;  ///< of the local tensors
  std::vector<Block> blocks;
  Device* device = nullptr;  ///< whose memory holds the tensors; outlives the exchange. Null: the host's
};

enum class Direction : std::uint8_t {
  kForward,   ///< source to target
  kTranspose  ///< target to source
};

/// Update rule of the written tensor. Contributions are summed in ascending order of the sender's mesh index,
/// in whatever order they arrive.
enum class Deposit : std::uint8_t {
  kAssign,  ///< the sum of the contributions, 0 where there is no block
  kFill,    ///< the sum of the contributions, unchanged where there is no block
  kAdd,     ///< the old value plus the contributions
};

/// A started exchange.
struct Flight {
  int slot = -1;
};

/// A prepared exchange: running one allocates nothing. All ranks of the mesh create it, and start and finish
/// its flights, in the same order. Tensors belong to the caller; between start and finish the source must not
/// change and the target must not be touched. Both may be one tensor, with kFill or kAdd, if no element that
/// this rank sends or copies is also written: ghost elements are then fetched in place. The adjoint adds the
/// ghosts to their owners' elements and leaves clearing them to the caller.
class BlockExchange {
 public:
  /// `flights`: how many may be under way at a time.
  BlockExchange(Mesh& mesh, ExchangeSpec spec, int flights = 1);
  ~BlockExchange();
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;

  const ExchangeSpec& spec() const noexcept;
  /// Throws Error(kRun) if all flights are under way or a tensor has another shape or dtype.
  Flight start(Direction direction, TensorView in, TensorView out, Deposit deposit);
  /// Waits for the messages, up to the transport's deadline, and writes `out`.
  void finish(Flight flight);
  void run(Direction direction, TensorView in, TensorView out, Deposit deposit) {
    finish(start(direction, in, out, deposit));
  }
  /// Bytes that one run in `direction` sends from this rank, without framing.
  std::int64_t bytes_sent(Direction direction) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

TENON_ABI_END
