// Kernel bodies of sliding windows: unfolding and folding (the data movement of convolutions). Folding
// gathers: one thread owns an element of x and adds its copies with ascending offsets, so nothing is added
// atomically and the bits are those of reference/window.hpp. Pooling: pool.hpp.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/storage.hpp>
#include <tenon/kernels/window.hpp>

namespace tenon::kernels::cuda {

TENON_BOTH inline std::int64_t volume(const std::int64_t* extents) {
  return extents[0] * extents[1] * extents[2];
}

/// WindowCoordinates of a row-major number within three extents.
struct WindowCoordinates {
  std::int64_t at[3];
  TENON_BOTH WindowCoordinates(std::int64_t number, const std::int64_t* extents)
      : at{number / extents[2] / extents[1], number / extents[2] % extents[1], number % extents[2]} {}
};

/// Coordinate along dimension d that offset `k` of the window at place `p` covers; in_plane says whether it
/// exists.
TENON_BOTH inline std::int64_t covered_along(const Window& w, int d, std::int64_t p, std::int64_t k) {
  return p * w.stride[d] + k * w.dilation[d] - w.pad[d];
}
TENON_BOTH inline bool in_plane(const Window& w, int d, std::int64_t coordinate) {
  return coordinate >= 0 && coordinate < w.in[d];
}

/// Place along dimension d whose window covers coordinate `i` with offset `k`, or -1.
TENON_BOTH inline std::int64_t covering_along(const Window& w, int d, std::int64_t i, std::int64_t k) {
  const std::int64_t from = i + w.pad[d] - k * w.dilation[d];
  if (from < 0 || from % w.stride[d] != 0) return -1;
  const std::int64_t place = from / w.stride[d];
  return place < w.out[d] ? place : -1;
}

/// Calls f(element) for the elements of the plane that the window at `place` covers, offsets ascending.
template <class F>
TENON_BOTH void for_each_covered(const Window& w, std::int64_t place, F f) {
  const WindowCoordinates p(place, w.out);
  for (std::int64_t k0 = 0; k0 < w.kernel[0]; ++k0) {
    const std::int64_t i0 = covered_along(w, 0, p.at[0], k0);
    if (!in_plane(w, 0, i0)) continue;
    for (std::int64_t k1 = 0; k1 < w.kernel[1]; ++k1) {
      const std::int64_t i1 = covered_along(w, 1, p.at[1], k1);
      if (!in_plane(w, 1, i1)) continue;
      for (std::int64_t k2 = 0; k2 < w.kernel[2]; ++k2) {
        const std::int64_t i2 = covered_along(w, 2, p.at[2], k2);
        if (in_plane(w, 2, i2)) f((i0 * w.in[1] + i1) * w.in[2] + i2);
      }
    }
  }
}

/// Calls f(place, offset) for every window that covers `element`, offsets ascending.
template <class F>
TENON_BOTH void for_each_covering(const Window& w, std::int64_t element, F f) {
  const WindowCoordinates e(element, w.in);
  for (std::int64_t k0 = 0; k0 < w.kernel[0]; ++k0) {
    const std::int64_t p0 = covering_along(w, 0, e.at[0], k0);
    if (p0 < 0) continue;
    for (std::int64_t k1 = 0; k1 < w.kernel[1]; ++k1) {
      const std::int64_t p1 = covering_along(w, 1, e.at[1], k1);
      if (p1 < 0) continue;
      for (std::int64_t k2 = 0; k2 < w.kernel[2]; ++k2) {
        const std::int64_t p2 = covering_along(w, 2, e.at[2], k2);
        if (p2 >= 0) f((p0 * w.out[1] + p1) * w.out[2] + p2, (k0 * w.kernel[1] + k1) * w.kernel[2] + k2);
      }
    }
  }
}

/// A tile of a matrix that is read along one side and written along the other: `across` times `along`
/// elements, kept in shared memory. Both are powers of two, so narrow matrices fill their tiles, too.
struct WindowTile {
  static constexpr std::int64_t kElements = 1024, kWidest = 32;
  std::int64_t across = kWidest;

  /// For a matrix of this many columns.
  static constexpr WindowTile for_columns(std::int64_t columns) {
    std::int64_t across = 1;
    while (across < columns && across < kWidest) across *= 2;
    return {across};
  }
  TENON_BOTH constexpr std::int64_t along() const { return kElements / across; }
  /// One more element in a line of `along` spreads the threads of a warp over different banks.
  TENON_BOTH constexpr std::int64_t at(std::int64_t row, std::int64_t column) const {
    return column * (along() + 1) + row;
  }
  constexpr std::size_t bytes(std::size_t element) const {
    return static_cast<std::size_t>(across * (along() + 1)) * element;
  }
  constexpr std::int64_t tiles(std::int64_t rows, std::int64_t columns) const {
    return ((rows + along() - 1) / along()) * ((columns + across - 1) / across);
  }
};

/// Columns row by row: x is read along places, columns are written along their own rows.
template <class S>
struct Unfold {
  UnfoldArgs<S> args;
  WindowTile tile;

  Grid mesh() const {
    const std::int64_t columns = args.channels * volume(args.window.kernel);
    return {tile.tiles(args.batch * volume(args.window.out), columns), kThreads, tile.bytes(sizeof(S))};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const Unfold& a = *this;
    const Window& w = args.window;
    const std::int64_t places = volume(w.out), offsets = volume(w.kernel), elements = volume(w.in),
                       rows = args.batch * places, width = args.channels * offsets,
                       tiles_across = (width + tile.across - 1) / tile.across,
                       first_row = block.index() / tiles_across * tile.along(),
                       first_column = block.index() % tiles_across * tile.across;
    S* const shared = block.shared<S>();
    block.each([&](int thread) {
      for (std::int64_t t = thread; t < WindowTile::kElements; t += block.threads()) {
        const std::int64_t r = t % a.tile.along(), c = t / a.tile.along(), row = first_row + r,
                           column = first_column + c;
        if (row >= rows || column >= width) continue;
        const WindowCoordinates place(row % places, w.out), offset(column % offsets, w.kernel);
        std::int64_t element = 0;
        bool inside = true;
        for (int d = 0; d < 3; ++d) {
          const std::int64_t i = covered_along(w, d, place.at[d], offset.at[d]);
          inside = inside && in_plane(w, d, i);
          element = element * w.in[d] + i;
        }
        const S* const plane = a.args.x + row / places * a.args.sample_stride + column / offsets * elements;
        shared[a.tile.at(r, c)] = inside ? plane[element] : put<S>(Arith<S>{0});
      }
    });
    block.each([&](int thread) {
      for (std::int64_t t = thread; t < WindowTile::kElements; t += block.threads()) {
        const std::int64_t r = t / a.tile.across, c = t % a.tile.across, row = first_row + r,
                           column = first_column + c;
        if (row < rows && column < width) a.args.columns[row * width + column] = shared[a.tile.at(r, c)];
      }
    });
  }
};

/// A tile is elements of the planes times channels: columns are read along channels, whose copies are close
/// together, and x is written along its planes.
template <class S>
struct Fold {
  FoldArgs<S> args;
  WindowTile tile;

  Grid mesh() const {
    return {args.batch * tile.tiles(volume(args.window.in), args.channels), kThreads,
            tile.bytes(sizeof(Arith<S>))};
  }

  TENON_BOTH void operator()(const Block& block) const {
    const Fold& a = *this;
    const Window& w = args.window;
    const std::int64_t places = volume(w.out), offsets = volume(w.kernel), elements = volume(w.in),
                       width = args.channels * offsets,
                       tiles_across = (args.channels + tile.across - 1) / tile.across,
                       tiles_along = (elements + tile.along() - 1) / tile.along(),
                       sample = block.index() / (tiles_across * tiles_along),
                       first_element = block.index() / tiles_across % tiles_along * tile.along(),
                       first_channel = block.index() % tiles_across * tile.across;
    Arith<S>* const sums = block.shared<Arith<S>>();
    block.each([&](int thread) {
      for (std::int64_t t = thread; t < WindowTile::kElements; t += block.threads()) {
        const std::int64_t e = t / a.tile.across, c = t % a.tile.across, element = first_element + e,
                           channel = first_channel + c;
        if (element >= elements || channel >= a.args.channels) continue;
        const S* const columns = a.args.columns + sample * places * width + channel * offsets;
        Arith<S> sum = 0;
        for_each_covering(w, element, [&](std::int64_t place, std::int64_t offset) {
          sum += get(columns[place * width + offset]);
        });
        sums[a.tile.at(e, c)] = sum;
      }
    });
    block.each([&](int thread) {
      for (std::int64_t t = thread; t < WindowTile::kElements; t += block.threads()) {
        const std::int64_t e = t % a.tile.along(), c = t / a.tile.along(), element = first_element + e,
                           channel = first_channel + c;
        if (element >= elements || channel >= a.args.channels) continue;
        S& x = a.args.x[sample * a.args.sample_stride + channel * elements + element];
        const Arith<S> sum = sums[a.tile.at(e, c)];
        x = put<S>(a.args.accumulate ? get(x) + sum : sum);
      }
    });
  }
};

}  // namespace tenon::kernels::cuda
