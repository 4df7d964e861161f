// One rank's view of the model grid of its replica: where it stands and whom it can reach. Layers get it from
// InferContext::grid(); exchanges between layouts are planned on it (sdk/block_exchange.hpp,
// sdk/linear_map.hpp).
#pragma once

#include <tenon/layout.hpp>
#include <tenon/transport.hpp>

#include <string>
#include <vector>

TENON_ABI_BEGIN

/// Communicators belong to the caller and outlive the grid. One thread at a time.
class ModelGrid {
 public:
  /// One rank alone.
  ModelGrid() = default;
  /// `index`: of this rank, row-major in `extents`. `all`: every rank of the grid in that order, null for
  /// one. `axes`: per axis the ranks along it, null where it has one.
  ModelGrid(std::vector<int> extents, int index, Communicator* all, std::vector<Communicator*> axes,
            int replica = 0);

  int size() const noexcept { return size_; }
  int index() const noexcept { return index_; }
  int axes() const noexcept { return static_cast<int>(extents_.size()); }
  int extent(int axis) const { return extents_.at(static_cast<std::size_t>(axis)); }
  int coordinate(int axis) const { return coordinates_.at(static_cast<std::size_t>(axis)); }
  std::span<const int> extents() const noexcept { return extents_; }
  GridPlace place() const noexcept { return {extents_, coordinates_, replica_}; }

  Communicator* all() const noexcept { return all_; }
  Communicator* axis(int axis) const { return axis_.at(static_cast<std::size_t>(axis)); }

  /// A number for the messages of one plan. All ranks make their plans in the same order, so it is the same
  /// on all.
  int next_tag() noexcept { return next_tag_++; }

  /// Collective. `problem`: why this rank cannot go on, or empty. Unless no rank has one and all give the
  /// same `text`, throws the same Error(kConfig) on all, which begins with `what` and names the first such
  /// rank.
  void agree(const std::string& what, const std::string& text, const std::string& problem = "");

 private:
  std::vector<int> extents_, coordinates_;
  int size_ = 1, index_ = 0, replica_ = 0, next_tag_ = 0;
  Communicator* all_ = nullptr;
  std::vector<Communicator*> axis_;
};

TENON_ABI_END
