// Kernel body of the measurement of a quantizer: decoded codes against the original values, in f64. A slow
// pass over tiles of 16 x 16 elements: threads add up their own elements, blocks of threads join in a tree,
// and so do the results of blocks; hence sums depend on the shape alone.
#pragma once

#include <tenon/kernels/cuda/quantize.hpp>

namespace tenon::kernels::cuda {

/// Largest number of blocks of threads that measure.
inline constexpr std::int64_t kMostParts = 1024;
inline constexpr int kMeasuredTile = 16;

struct MeasuredPart {
  double signal, noise, relative;  ///< sums of x^2, (x - decoded)^2, |x - decoded| / |x|
  double scale_min, scale_max;     ///< of decode scales that are not zero; infinity and 0 if there are none
  std::int64_t elements, non_zero, underflow, saturated;
  std::uint32_t amax;

  TENON_BOTH static MeasuredPart none() {
    return {0, 0, 0, std::bit_cast<double>(std::uint64_t{0x7ff0000000000000}), 0, 0, 0, 0, 0, 0};
  }
  /// `limit`: largest magnitude that has not saturated, as a multiple of the scale.
  TENON_BOTH void add(float x, double decoded, double scale, double limit) {
    const double value = x, size = value < 0 ? -value : value, error = value - decoded;
    const double error_size = error < 0 ? -error : error;
    amax = Larger{}(amax, magnitude_bits(x));
    signal += value * value;
    noise += error_size * error_size;
    ++elements;
    if (scale != 0) {
      scale_min = Smaller{}(scale_min, scale);
      scale_max = Larger{}(scale_max, scale);
      saturated += size > limit * scale;
    }
    if (x == 0) return;
    ++non_zero;
    relative += error_size / size;
    underflow += decoded == 0;
  }
};
struct JoinParts {
  TENON_BOTH MeasuredPart operator()(const MeasuredPart& a, const MeasuredPart& b) const {
    return {.signal = a.signal + b.signal,
            .noise = a.noise + b.noise,
            .relative = a.relative + b.relative,
            .scale_min = Smaller{}(a.scale_min, b.scale_min),
            .scale_max = Larger{}(a.scale_max, b.scale_max),
            .elements = a.elements + b.elements,
            .non_zero = a.non_zero + b.non_zero,
            .underflow = a.underflow + b.underflow,
            .saturated = a.saturated + b.saturated,
            .amax = Larger{}(a.amax, b.amax)};
  }
};

/// `args` as they were for quantizing, with values and the scales that were written. One thread per element
/// of a tile: blocks have 256.
template <class S>
struct Measure {
  QuantizeArgs<S> args;
  double limit;
  MeasuredPart* parts;  ///< one per block of threads

  static constexpr int kTile = kMeasuredTile;
  static constexpr std::size_t kPartsAt = kThreads * sizeof(float);
  static constexpr std::size_t kShared = kPartsAt + kThreads * sizeof(MeasuredPart);

  TENON_BOTH void operator()(const Block& block) const {
    const Measure& k = *this;
    float* const tile = block.shared<float>();
    auto* const own = block.shared<MeasuredPart>(kPartsAt);
    const std::int64_t rows = reference::written_rows(args), across = pieces_of(args.columns, kTile);
    const std::int64_t tiles = pieces_of(rows, kTile) * across;
    block.each([&](int thread) { own[thread] = MeasuredPart::none(); });
    for (std::int64_t t = block.index(); t < tiles; t += block.blocks()) {
      const std::int64_t row = t / across * kTile, column = t % across * kTile;
      block.each([&](int thread) {
        const std::int64_t i = row + thread / kTile, j = column + thread % kTile;
        tile[thread] =
            i < k.args.rows && j < k.args.columns ? reference::get(k.args.x[i * k.args.stride + j]) : 0.0f;
      });
      if (args.rotate) block.each([&](int thread) { k.rotate(tile, thread); });
      block.each([&](int thread) {
        const std::int64_t i = row + thread / kTile, j = column + thread % kTile;
        if (i >= rows || j >= k.args.columns) return;
        const double scale = k.decode_scale(i, j);
        // Values include the block's scale already, except an f32 one, and never that of the matrix.
        const double value = static_cast<double>(to_float(k.args.values[i * k.args.values_stride + j])) *
                             (k.args.scaling == Scaling::kFloat ? scale : k.matrix_scale(i, j));
        own[thread].add(tile[thread], value, scale, k.limit);
      });
    }
    reduce_block(block, own, JoinParts{});
    block.each([&](int thread) {
      if (thread == 0) k.parts[block.index()] = own[0];
    });
  }

 private:
  TENON_BOTH void rotate(float* tile, int line) const {
    if (line >= kTile) return;
    const int first = reference::runs_down(args) ? line : line * kTile;
    const int step = reference::runs_down(args) ? kTile : 1;
    rotate_group<float>([&](int e) -> float& { return tile[first + e * step]; });
  }
  TENON_BOTH double matrix_scale(std::int64_t i, std::int64_t j) const {
    return args.lines != nullptr ? args.lines[reference::runs_down(args) ? j : i].decode : args.tensor.decode;
  }
  TENON_BOTH double decode_scale(std::int64_t i, std::int64_t j) const {
    if (args.scaling == Scaling::kTensor) return args.tensor.decode;
    const std::int64_t block = i / args.block_rows * args.scales_stride + j / args.block_columns;
    switch (args.scaling) {
      case Scaling::kTwoLevel:
        return static_cast<double>(decode(args.scales[block], Element::kE4M3)) * matrix_scale(i, j);
      case Scaling::kPower:
        return decode_e8m0(args.scales[block]);
      default:
        return args.float_scales[block];
    }
  }
};

/// parts[0] = all of them, by one block of threads.
struct JoinMeasured {
  MeasuredPart* parts;
  std::int64_t n;
  static constexpr std::size_t kShared = kThreads * sizeof(MeasuredPart);

  TENON_BOTH void operator()(const Block& block) const {
    const JoinMeasured& a = *this;
    auto* const own = block.shared<MeasuredPart>();
    block.each([&](int thread) {
      own[thread] = MeasuredPart::none();
      for (std::int64_t i = thread; i < a.n; i += block.threads())
        own[thread] = JoinParts{}(own[thread], a.parts[i]);
    });
    reduce_block(block, own, JoinParts{});
    block.each([&](int thread) {
      if (thread == 0) a.parts[0] = own[0];
    });
  }
};

}  // namespace tenon::kernels::cuda
