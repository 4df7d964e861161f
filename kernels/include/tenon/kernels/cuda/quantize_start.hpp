// Chooses the kernel body of a quantizer, and its number of threads. `launch(grid, body)` starts a body: on a
// stream, or on the host in tests. Nothing is started for empty matrices.
#pragma once

#include <tenon/kernels/cuda/launch.hpp>
#include <tenon/kernels/cuda/quantize_largest.hpp>
#include <tenon/kernels/cuda/quantize_lines.hpp>
#include <tenon/kernels/cuda/quantize_stats.hpp>
#include <tenon/kernels/cuda/quantize_tile.hpp>

#include <type_traits>

namespace tenon::kernels::cuda {

/// Calls fn(std::integral_constant<Element, ...>) for the element format of `element`.
template <class Fn>
void with_element(Element element, Fn fn) {
  switch (element) {
    case Element::kE2M1:
      return fn(std::integral_constant<Element, Element::kE2M1>{});
    case Element::kE2M3:
      return fn(std::integral_constant<Element, Element::kE2M3>{});
    case Element::kE3M2:
      return fn(std::integral_constant<Element, Element::kE3M2>{});
    case Element::kE4M3:
      return fn(std::integral_constant<Element, Element::kE4M3>{});
    case Element::kE5M2:
      return fn(std::integral_constant<Element, Element::kE5M2>{});
  }
}

/// Starts a body that keeps blocks in registers, for the shapes of blocks in which kElement is used; false:
/// there is none.
template <class S, Element kElement, class Launch>
bool start_lines(const QuantizeArgs<S>& args, Launch launch) {
  const auto start = [&](const auto& body) {
    launch(grid_for(body.items()), body);
    return true;
  };
  const auto is = [&](std::int64_t rows, std::int64_t columns) {
    return args.block_rows == rows && args.block_columns == columns;
  };
  if (args.four_over_six) return false;
  if constexpr (kElement == Element::kE2M1) {
    if (is(1, 16) && !args.rotate) return start(QuantizeRows<S, kElement, 2>{args});
    if (is(16, 1)) return start(QuantizeColumns<S, kElement, 16>{args});
  }
  if constexpr (layout_of(kElement).bits == 8) {
    if (is(1, 128)) return start(QuantizeRows<S, kElement, 16>{args});
  }
  if constexpr (layout_of(kElement).bits != 6) {  // which are rare, and each body takes its time to compile
    if (is(1, 32)) return start(QuantizeRows<S, kElement, 4>{args});
    if (is(32, 1)) return start(QuantizeColumns<S, kElement, 32>{args});
  }
  return false;
}

/// Equivalent of QuantizeOps::quantize, for the whole matrix at once; pointers are the device's.
template <class S, class Launch>
void start_quantize(const QuantizeArgs<S>& args, Launch launch) {
  if (args.rows == 0 || args.columns == 0) return;
  with_element(args.element, [&](auto element) {
    if (args.scaling == Scaling::kTensor)
      return launch(grid_for(args.rows * pieces_of(args.columns, kQuantizeRun)),
                    QuantizeWhole<S, element()>{args});
    if (start_lines<S, element()>(args, launch)) return;
    const QuantizeTile tile = tile_of(args);
    if (tile.rows > 0)
      return launch(Grid{tiles_of(args, tile), kThreads, tile.bytes},
                    QuantizeTiles<S, element()>{args, tile});
    launch(grid_for(QuantizeBlocks<S>::items(args)), QuantizeBlocks<S>{args});
  });
}

/// Equivalent of QuantizeOps::dequantize.
template <class S, class Launch>
void start_dequantize(const QuantizeArgs<S>& args, Launch launch) {
  if (args.rows == 0 || args.columns == 0) return;
  with_element(args.element, [&](auto element) {
    launch(grid_for(reference::written_rows(args) * pieces_of(args.columns, kQuantizeRun)),
           Dequantize<S, element()>{args});
  });
}

/// Raises *largest to the bits of the largest magnitude.
template <class S, class Launch>
void start_largest(Magnitudes<S> of, std::uint32_t* largest, Launch launch) {
  if (of.rows == 0 || of.columns == 0) return;
  // Contiguous rows are one, unless 16 of them rotate together.
  if (!of.rotated && of.stride == of.columns) of = {of.x, 1, of.rows * of.columns, of.rows * of.columns};
  launch(grid_for(of.high() * of.across(), kThreads * sizeof(std::uint32_t)), LargestOfAll<S>{of, largest});
}

/// The same for each row, or for each column with `down`.
template <class S, class Launch>
void start_largest_of_lines(const Magnitudes<S>& of, std::uint32_t* largest, Launch launch) {
  if (of.rows == 0 || of.columns == 0) return;
  const std::int64_t threads =
      of.down ? pieces_of(of.high(), LargestOfLines<S>::kPieces) * of.columns : of.rows * kThreads;
  launch(grid_for(threads, kThreads * sizeof(std::uint32_t)), LargestOfLines<S>{of, largest});
}

/// parts[0] = errors of the codes of `args`, with values and scales as they were written, against x. `parts`
/// has kMostParts elements; `limit` is the largest element plus what rounding of scales may add to it.
template <class S, class Launch>
void start_measure(const QuantizeArgs<S>& args, double limit, MeasuredPart* parts, Launch launch) {
  const std::int64_t tiles =
      pieces_of(reference::written_rows(args), kMeasuredTile) * pieces_of(args.columns, kMeasuredTile);
  const std::int64_t blocks = tiles < 1 ? 1 : tiles < kMostParts ? tiles : kMostParts;
  launch(Grid{blocks, kThreads, Measure<S>::kShared}, Measure<S>{args, limit, parts});
  launch(Grid{1, kThreads, JoinMeasured::kShared}, JoinMeasured{parts, blocks});
}

}  // namespace tenon::kernels::cuda
