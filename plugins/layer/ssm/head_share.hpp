// The heads of a `mamba2` layer that one rank of a mesh computes, and where their values stand in the rows of
// the projection and of the convolution. Parameters stand group after group, so a rank with whole groups has
// contiguous rows of every parameter; ranks that share a group hold all rows of it.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/sdk/ops/ssd.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace tenon::ssm {

/// Sizes of the whole layer.
struct HeadSizes {
  std::int64_t heads = 0, head_width = 0, groups = 1, state = 0;

  std::int64_t per_group() const { return heads / groups; }
  std::int64_t inner() const { return heads * head_width; }
  /// Rows of the projection, and channels of the convolution, of one group.
  std::int64_t group_rows() const { return 2 * per_group() * head_width + 2 * state + per_group(); }
  std::int64_t group_channels() const { return per_group() * head_width + 2 * state; }
};

/// A rank has `groups` whole groups, or a part of the heads of one.
class HeadShare {
 public:
  HeadShare() = default;
  /// `axes`: of the mesh, that share the heads. Returns why they cannot, in `problem`.
  HeadShare(const HeadSizes& sizes, const Mesh& mesh, const std::vector<int>& axes, std::string& problem);

  std::int64_t groups() const { return groups_; }
  std::int64_t heads() const { return groups_ * heads_; }
  std::int64_t columns() const { return heads() * sizes_.head_width; }
  std::int64_t channels() const { return columns() + 2 * groups_ * sizes_.state; }
  /// Rows of the projection that a rank computes: those of all its groups, heads of others included.
  std::int64_t rows() const { return groups_ * sizes_.group_rows(); }
  /// The first of these in this rank's shard of the weight, and likewise of the convolution's channels.
  std::int64_t first_row() const { return group_ * sizes_.group_rows(); }
  std::int64_t first_channel() const { return group_ * sizes_.group_channels(); }
  /// Whether other ranks have heads of the same group.
  bool shared() const { return heads_ < sizes_.per_group(); }
  /// Groups of this rank's shard, and the one of them that it has heads of where it shares it.
  std::int64_t groups_of_shard() const { return groups_of_shard_; }
  std::int64_t group() const { return group_; }

  /// Axes that shard the heads, those of them that shard the groups, and the others.
  const std::vector<int>& axes() const { return axes_; }
  const std::vector<int>& group_axes() const { return group_axes_; }
  std::vector<int> other_axes() const;

  /// In a row of the projection, and in one of the channels of a group.
  ColumnRuns gates() const, conv_channels() const, steps() const;
  /// The channels of this rank's heads among those of one group that is shared.
  ColumnRuns kept_channels() const;

 private:
  HeadSizes sizes_;
  std::vector<int> axes_, group_axes_;
  std::int64_t groups_ = 1, heads_ = 0;  ///< of this rank; heads by group
  std::int64_t groups_of_shard_ = 1, group_ = 0;
  std::int64_t first_ = 0;  ///< head of its group
};

}  // namespace tenon::ssm
