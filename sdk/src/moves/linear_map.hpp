// Classes of maps from which primitives are made: one exchange of blocks, or several in sequence.
#pragma once

#include "moves/box_moves.hpp"

#include <tenon/sdk/linear_map.hpp>

#include <functional>
#include <string>
#include <vector>

namespace tenon::comm {

class MapBase : public LinearMap {
 public:
  Shape local_domain() const override { return domain_; }
  Shape local_range() const override { return range_; }
  Flight start_forward(TensorView x, TensorView y, bool accumulate) override {
    return start(Direction::kForward, x, y, accumulate);
  }
  Flight start_adjoint(TensorView y, TensorView x, bool accumulate) override {
    return start(Direction::kTranspose, y, x, accumulate);
  }

 protected:
  MapBase(const Shape& domain, const Shape& range) : domain_(domain), range_(range) {}
  MapBase(const Mesh& mesh, const MoveSpec& spec)
      : MapBase(part_of(spec.from, mesh.place()).extents, part_of(spec.to, mesh.place()).extents) {}
  virtual Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) = 0;

  Shape domain_, range_;
};

class BlockMap final : public MapBase {
 public:
  BlockMap(Mesh& mesh, const MoveSpec& spec, std::vector<Block> blocks);
  /// With a range other than this rank's part of spec.to.
  BlockMap(Mesh& mesh, const MoveSpec& spec, const Shape& range, std::vector<Block> blocks);
  void finish(Flight flight) override { exchange_.finish(flight); }
  std::int64_t bytes_sent(Direction direction) const override { return exchange_.bytes_sent(direction); }

 protected:
  Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) override {
    return exchange_.start(direction, in, out, accumulate ? Deposit::kAdd : Deposit::kAssign);
  }

 private:
  BlockExchange exchange_;
};

/// Exchanges in sequence: each but the first reads what the previous one wrote. The adjoint runs in reverse.
class ChainMap final : public MapBase {
 public:
  /// The first step reads this rank's part of spec.from and the last writes `range`; the steps may view them
  /// in other shapes of as many elements.
  ChainMap(Mesh& mesh, const MoveSpec& spec, const Shape& range, std::vector<ExchangeSpec> steps);
  void finish(Flight flight) override;
  std::int64_t bytes_sent(Direction direction) const override;

 protected:
  Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) override;

 private:
  struct Slot {
    std::vector<Room> between;  ///< after each step but the last
    TensorView out;
    Flight flight;
    Direction direction = Direction::kForward;
    bool busy = false, accumulate = false;
  };

  /// Steps and tensors are counted in the order of execution, which the adjoint reverses.
  BlockExchange& step(Direction direction, std::size_t nth) const;
  TensorView written(Slot& slot, std::size_t nth) const;
  Deposit deposit(const Slot& slot, std::size_t nth) const;

  BoxMoves moves_;
  std::vector<std::unique_ptr<BlockExchange>> steps_;
  std::vector<Slot> slots_;
};

/// Moves one piece of the tensor per member, so that no rank sends more than twice the tensor. With a root
/// its tensor is scattered over the members, else the members' tensors are summed; then every member gathers
/// all pieces. `members`: mesh indices, ascending. `root`: one of them, or -1.
std::unique_ptr<LinearMap> make_through_pieces(Mesh& mesh, const MoveSpec& spec,
                                               const std::vector<int>& members, int root);

// Blocks between two layouts of one tensor.

/// Axes of several ranks along which the tensor is replicated.
std::vector<int> copied_axes(const Layout& layout, std::span<const int> mesh);

/// The ranks that differ from `index` only along `axes`, itself included, ascending.
std::vector<int> ranks_along(int index, const std::vector<int>& axes, std::span<const int> mesh);

/// Returns "", or why there is no map between the layouts, each of which is valid by itself.
std::string redistribution_refusal(const MoveSpec& spec);

/// The box of a tensor that a rank needs, and the global element at which its local tensor begins.
struct Need {
  Box box;
  Shape origin;
};

/// `box`, relative to `origin`.
Box relative(Box box, const Shape& origin);

/// The blocks that this rank sends and receives if every rank needs `need_of`. Of copies, the one with the
/// receiver's coordinates along the copied axes is sent; of a partial sum all terms are, except over
/// `kept_sums`.
std::vector<Block> blocks_between(const Mesh& mesh, const Layout& from, const std::vector<int>& kept_sums,
                                  const std::function<Need(const MeshPlace&)>& need_of);
std::vector<Block> redistribution_blocks(const Mesh& mesh, const Layout& from, const Layout& to);

}  // namespace tenon::comm
