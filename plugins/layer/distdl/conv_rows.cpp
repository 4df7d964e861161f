// Layer `conv`: planes [batch, channels, extent...] to rows of matrices and back. A region that is not all
// there is goes through a box of its own.
#include "conv.hpp"

#include <vector>

namespace tenon::distdl {
namespace {

/// A window of one element, which turns planes of so many into rows and back.
WindowSpec one_of(std::int64_t elements) {
  WindowSpec point;
  point.spatial = 1, point.extent[0] = elements;
  return point;
}

/// fn(region, its rows) for all regions, whose rows follow each other.
template <typename Fn>
void for_regions(const std::vector<WindowRegion>& regions, std::int64_t samples, TensorView rows, Fn&& fn) {
  std::int64_t begin = 0;
  for (const WindowRegion& region : regions) {
    const std::int64_t end = begin + samples * region.window.places();
    fn(region, rows.rows(begin, end));
    begin = end;
  }
}

}  // namespace

TensorView Conv::box(RunContext& context, std::int64_t samples, std::int64_t channels,
                     const std::int64_t* extents) const {
  std::vector<std::int64_t> shape{samples, channels};
  shape.insert(shape.end(), extents, extents + windows_.spatial());
  return tensor(context.workspace(box_), dtype_, Shape(std::span<const std::int64_t>(shape)));
}

TensorView Conv::outputs_box(RunContext& context, std::int64_t samples, std::int64_t features,
                             const WindowRegion& region) const {
  std::int64_t places[3] = {1, 1, 1};
  for (int d = 0; d < windows_.spatial(); ++d) places[d] = region.window.places(d);
  return box(context, samples, features, places);
}

void Conv::rows_of_windows(RunContext& context, const std::vector<WindowRegion>& regions, TensorView planes,
                           const FilterGroup& group, TensorView rows) {
  const std::int64_t samples = planes.shape[0];
  for_regions(regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    if (region.whole) {
      ops_->unfold(region.window, planes, group.first_channel, part);
      return;
    }
    const TensorView read = box(context, samples, plan_.channels, region.window.extent);
    take_box(boxes_, planes, group.first_channel, region.read_from, read);
    ops_->unfold(region.window, read, 0, part);
  });
}

void Conv::rows_of_outputs(RunContext& context, const WindowPass& pass, TensorView planes,
                           const FilterGroup& group, TensorView rows) {
  const std::int64_t samples = planes.shape[0];
  for_regions(pass.regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    const WindowSpec point = one_of(region.window.places());
    if (region.whole) {
      ops_->unfold(point, planes, group.first_feature, part);
      return;
    }
    const TensorView made = outputs_box(context, samples, group.features, region);
    take_box(boxes_, planes, group.first_feature, region.made_from, made);
    ops_->unfold(point, made, 0, part);
  });
}

void Conv::outputs_of_rows(RunContext& context, const WindowPass& pass, TensorView rows,
                           const FilterGroup& group, TensorView planes) {
  const std::int64_t samples = planes.shape[0];
  for_regions(pass.regions, samples, rows, [&](const WindowRegion& region, TensorView part) {
    const WindowSpec point = one_of(region.window.places());
    if (region.whole) {
      ops_->fold(point, part, group.first_feature, planes, false);
      return;
    }
    const TensorView made = outputs_box(context, samples, group.features, region);
    ops_->fold(point, part, 0, made, false);
    put_box(boxes_, made, planes, group.first_feature, region.made_from);
  });
}

}  // namespace tenon::distdl
