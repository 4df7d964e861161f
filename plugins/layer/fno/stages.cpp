// The order of dimensions, and the targets of a dimension's axes when it must become whole.
#include "stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tenon::fno {
namespace {

constexpr int kFirst = 2;  // after batch and channels

/// The layout in which the axes that shard each dimension `from` shard dimension `to` instead, evenly, after
/// those that do so already; a `to` of 0 makes them replicate.
Layout moved(const Layout& layout, const std::map<int, int>& to, std::span<const int> grid) {
  std::map<int, std::vector<int>> axes;
  Layout result{layout.shape};
  for (const DimSharding& sharding : layout.sharding) {
    if (sharding.dim < kFirst) result.sharding.push_back(sharding);
  }
  for (const bool stays : {true, false}) {
    for (const DimSharding& sharding : layout.sharding) {
      const auto target = to.find(sharding.dim);
      if (sharding.dim < kFirst || (target == to.end()) != stays) continue;
      auto& list = axes[stays ? sharding.dim : target->second];
      list.insert(list.end(), sharding.axes.begin(), sharding.axes.end());
    }
  }
  axes.erase(0);
  for (auto& [dim, list] : axes) {
    const DimSharding* before = sharding_of(layout, dim);
    if (before != nullptr && before->axes == list) {
      result.sharding.push_back(*before);
      continue;
    }
    int parts = 1;
    for (const int axis : list) parts *= grid[axis];
    result.sharding.push_back({dim, std::move(list), balanced_offsets(layout.shape[dim], parts)});
  }
  return result;
}

std::vector<int> order_of(const Layout& x, Form form) {
  std::vector<int> whole, sharded;
  for (int dim = x.shape.rank() - 1; dim >= kFirst; --dim)
    (form == Form::kSlab && sharding_of(x, dim) != nullptr ? sharded : whole).push_back(dim);
  whole.insert(whole.end(), sharded.begin(), sharded.end());
  return whole;
}

}  // namespace

Layout resized(Layout layout, int dim, std::int64_t extent) {
  layout.shape[dim] = extent;
  return layout;
}

std::vector<Stage> stages(const Layout& x, std::span<const std::int64_t> modes, Form form,
                          std::span<const int> grid, const std::string& what) {
  const int last = x.shape.rank() - 1, half = kFirst + (x.shape.rank() - kFirst + 1) / 2;
  if (form == Form::kSlab && sharding_of(x, last) != nullptr)
    fail_config(fmt::format(
        "{}: slabs need the last dimension unsharded, found {}; shard another one, or take form = \"pencil\"",
        what, layout_text(x)));
  std::vector<Stage> result;
  std::vector<int> pending = order_of(x, form), done;
  Layout at = x;
  while (!pending.empty()) {
    const int dim = pending.front();
    if (sharding_of(at, dim) != nullptr) {
      std::vector<int> rest = pending;
      std::sort(rest.begin(), rest.end());
      std::sort(done.begin(), done.end());
      std::map<int, int> to;
      if (form == Form::kPencil && dim >= half) {
        // Each dimension of the later half passes its axes to one of the earlier half.
        for (const int one : rest)
          if (one >= half) to[one] = one - half + kFirst;
      } else {
        // The remaining dimensions pass their axes to modes, of which there are few: little moves.
        for (std::size_t i = 0; i < rest.size(); ++i) to[rest[i]] = done.empty() ? 0 : done[i % done.size()];
      }
      at = moved(at, to, grid);
    }
    result.push_back({dim, at});
    at = resized(at, dim, modes[dim - kFirst]);
    pending.erase(pending.begin());
    done.push_back(dim);
  }
  return result;
}

}  // namespace tenon::fno
