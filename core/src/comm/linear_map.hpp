// The two shapes of maps that primitives are made of.
#pragma once

#include <tenon/linear_map.hpp>

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
  MapBase(const ModelGrid& grid, const MoveSpec& spec)
      : MapBase(part_of(spec.from, grid.place()).extents, part_of(spec.to, grid.place()).extents) {}
  virtual Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) = 0;

  Shape domain_, range_;
};

class BlockMap final : public MapBase {
 public:
  BlockMap(ModelGrid& grid, const MoveSpec& spec, std::vector<Block> blocks);
  /// With a range other than this rank's part of spec.to.
  BlockMap(ModelGrid& grid, const MoveSpec& spec, const Shape& range, std::vector<Block> blocks);
  void finish(Flight flight) override { exchange_.finish(flight); }
  std::int64_t bytes_sent(Direction direction) const override { return exchange_.bytes_sent(direction); }

 protected:
  Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) override {
    return exchange_.start(direction, in, out, accumulate ? Deposit::kAdd : Deposit::kAssign);
  }

 private:
  BlockExchange exchange_;
};

/// Through a piece of the tensor per member. With a root its tensor is spread over the members, else the
/// members' tensors are summed; then every member gets all pieces. The adjoint goes back the same way.
class TwoStepMap final : public MapBase {
 public:
  /// `members`: grid indices, ascending. `root`: one of them, or -1.
  TwoStepMap(ModelGrid& grid, const MoveSpec& spec, const std::vector<int>& members, int root);
  void finish(Flight flight) override;
  std::int64_t bytes_sent(Direction direction) const override;

 protected:
  Flight start(Direction direction, TensorView in, TensorView out, bool accumulate) override;

 private:
  struct Slot {
    std::vector<std::byte> piece;
    TensorView out;
    Flight flight;
    Direction direction = Direction::kForward;
    bool busy = false, accumulate = false;
  };

  DType dtype_;
  Shape piece_;
  std::unique_ptr<BlockExchange> first_, second_;
  std::vector<Slot> slots_;
};

}  // namespace tenon::comm
