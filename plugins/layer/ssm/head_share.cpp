// Arithmetic of heads and groups over the axes of a mesh.
#include "head_share.hpp"

#include <tenon/transport.hpp>

#include <fmt/format.h>

namespace tenon::ssm {
namespace {

/// Joins two runs that touch.
void append(ColumnRuns& runs, std::int64_t first, std::int64_t width) {
  if (!runs.empty() && runs.back().first + runs.back().width == first)
    runs.back().width += width;
  else
    runs.push_back({first, width});
}

}  // namespace

HeadShare::HeadShare(const HeadSizes& sizes, const Mesh& mesh, const std::vector<int>& axes,
                     std::string& problem)
    : sizes_(sizes), axes_(axes) {
  std::int64_t parts = 1, place = 0, group_parts = 1, group_place = 0;
  for (const int axis : axes) {
    parts *= mesh.extent(axis);
    place = place * mesh.extent(axis) + mesh.coordinate(axis);
    if (group_parts * mesh.extent(axis) == parts && sizes.groups % parts == 0) {
      group_axes_.push_back(axis);
      group_parts = parts, group_place = place;
    }
  }
  groups_of_shard_ = sizes.groups / group_parts;
  const std::int64_t ranks = parts / group_parts;  // that have the same shard of the weight
  if (sizes.heads % parts != 0 || (ranks > 1 && ranks % groups_of_shard_ != 0)) {
    problem = fmt::format(
        "option 'axes' shares {} heads in {} groups among {} ranks, but a rank must have whole groups, or as "
        "many heads of one group as each of the others: heads and groups must divide together; choose axes "
        "of which {} ranks are a divisor or a multiple, and which divide the heads",
        sizes.heads, sizes.groups, parts, sizes.groups);
    return;
  }
  heads_ = sizes.per_group();
  groups_ = groups_of_shard_;
  if (ranks == 1) return;
  const std::int64_t sharing = ranks / groups_of_shard_, within = place - group_place * ranks;
  groups_ = 1;
  heads_ = sizes.per_group() / sharing;
  group_ = within / sharing;
  first_ = within % sharing * heads_;
}

std::vector<int> HeadShare::other_axes() const {
  return {axes_.begin() + static_cast<std::ptrdiff_t>(group_axes_.size()), axes_.end()};
}

ColumnRuns HeadShare::gates() const {
  ColumnRuns runs;
  for (std::int64_t g = 0; g < groups_; ++g)
    append(runs, g * sizes_.group_rows() + first_ * sizes_.head_width, heads_ * sizes_.head_width);
  return runs;
}

ColumnRuns HeadShare::conv_channels() const {
  ColumnRuns runs;
  for (std::int64_t g = 0; g < groups_; ++g)
    for (const ColumnRun& run : kept_channels())
      append(runs, g * sizes_.group_rows() + sizes_.per_group() * sizes_.head_width + run.first, run.width);
  return runs;
}

ColumnRuns HeadShare::kept_channels() const {
  const std::int64_t P = sizes_.head_width;
  ColumnRuns runs;
  append(runs, first_ * P, heads_ * P);
  append(runs, sizes_.per_group() * P, 2 * sizes_.state);
  return runs;
}

ColumnRuns HeadShare::steps() const {
  ColumnRuns runs;
  for (std::int64_t g = 0; g < groups_; ++g)
    append(runs, (g + 1) * sizes_.group_rows() - sizes_.per_group() + first_, heads_);
  return runs;
}

}  // namespace tenon::ssm
