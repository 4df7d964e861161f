// Blocks of tensors that move between the ranks of a model grid, both ways: the transpose of an exchange
// sends every block back and adds. Scatter, gather, all-gather, reduce-scatter, all-to-all, repartition and
// halo exchanges are lists of blocks (linear_map.hpp, window_plan.hpp); this carries them out.
#pragma once

#include <tenon/transport.hpp>

#include <cstddef>
#include <memory>
#include <vector>

TENON_ABI_BEGIN

class Device;

/// Elements that one rank sends and another puts: `from` lies in the sender's tensor, `to` in the receiver's,
/// of equal extents, both in local indices.
struct Block {
  int sender = 0, receiver = 0;  ///< grid indices; equal for what stays
  Box from, to;
};

/// What a rank knows of an exchange: every block that it sends or receives, no empty ones. Both ranks of a
/// pair list their common blocks in the same order.
struct ExchangeSpec {
  DType dtype = DType::kF32;
  Shape source, target;  ///< of the local tensors
  std::vector<Block> blocks;
  Device* device = nullptr;  ///< whose memory the tensors lie in; outlives the exchange. Null: the host's
};

enum class Direction : std::uint8_t {
  kForward,   ///< source to target
  kTranspose  ///< target to source
};

/// What becomes of the tensor that is written. A sum of contributions has them in ascending order of the grid
/// index of the rank that sends them, whenever they come.
enum class Deposit : std::uint8_t {
  kAssign,  ///< the sum of the contributions, 0 where no block goes
  kFill,    ///< the sum of the contributions, what was there where no block goes
  kAdd,     ///< what was there plus the contributions
};

/// An exchange under way.
struct Flight {
  int slot = -1;
};

/// Prepared: running one allocates nothing. All ranks of the grid make it, and start and finish its flights,
/// in the same order. Tensors belong to the caller; between start and finish the one that is read stays as it
/// is and the other is not touched. They may be one tensor, with kFill or kAdd, where this rank's blocks are
/// put beside those that are taken: the ghosts around its own elements are fetched in place. The adjoint of
/// that adds the ghosts to their owners' elements and leaves it to the caller to clear them.
class BlockExchange {
 public:
  /// `flights`: how many may be under way at a time.
  BlockExchange(ModelGrid& grid, ExchangeSpec spec, int flights = 1);
  ~BlockExchange();
  BlockExchange(const BlockExchange&) = delete;
  BlockExchange& operator=(const BlockExchange&) = delete;

  const ExchangeSpec& spec() const noexcept;
  /// Throws Error(kRun) if all flights are under way or a tensor has another shape or dtype.
  Flight start(Direction direction, TensorView in, TensorView out, Deposit deposit);
  /// Waits for the messages, in the transport's deadline, and writes `out`.
  void finish(Flight flight);
  void run(Direction direction, TensorView in, TensorView out, Deposit deposit) {
    finish(start(direction, in, out, deposit));
  }
  /// That one run in `direction` sends from this rank, without framing.
  std::int64_t bytes_sent(Direction direction) const noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

TENON_ABI_END
