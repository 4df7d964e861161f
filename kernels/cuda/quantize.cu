// Quantizers on CUDA: the loops over blocks around the functions that define the result on the CPU
// (reference/quantize.hpp), hence the same bits. NVFP4 1x16, 16x1 (rotated too) and 16x16, MX, FP8 per tensor and per
// block. One thread owns one block: the definition on the device, not its fastest form. Launches only; no memory is owned
// and nothing is synchronised here. Compiled for sm_90a and sm_100a by .ci/check_cuda; it has not run on hardware yet, where
// a test has to compare its bits with the CPU's before anything relies on it.
#include <cuda_runtime.h>

#include <tenon/kernels/reference/quantize.hpp>

namespace tenon::kernels::cuda {
namespace {

constexpr int kThreads = 128;

unsigned grids_for(std::int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

__device__ std::int64_t thread_index() { return std::int64_t{blockIdx.x} * kThreads + threadIdx.x; }

/// Columns of blocks that one thread owns: two where two share the bytes of packed codes.
template <class S>
__host__ __device__ std::int64_t blocks_together(const QuantizeArgs<S>& a) {
  return a.packed && a.block_columns == 1 ? 2 : 1;
}

template <class S>
__host__ __device__ std::int64_t blocks_across(const QuantizeArgs<S>& a) {
  return (a.columns + a.block_columns - 1) / a.block_columns;
}

template <class S>
__host__ __device__ std::int64_t threads_across(const QuantizeArgs<S>& a) {
  return (blocks_across(a) + blocks_together(a) - 1) / blocks_together(a);
}

template <class S>
__host__ __device__ std::int64_t blocks_down(const QuantizeArgs<S>& a) {
  return (reference::written_rows(a) + a.block_rows - 1) / a.block_rows;
}

/// fn(block, index of its scale, its line) for the blocks of this thread.
template <class S, class Fn>
__device__ void for_own_blocks(const QuantizeArgs<S>& a, Fn fn) {
  const std::int64_t thread = thread_index(), across = threads_across(a);
  if (thread >= blocks_down(a) * across) return;
  const std::int64_t down = thread / across, rows = reference::written_rows(a);
  for (std::int64_t k = 0; k < blocks_together(a); ++k) {
    const std::int64_t column = thread % across * blocks_together(a) + k;
    if (column >= blocks_across(a)) return;
    const std::int64_t row = down * a.block_rows, left = column * a.block_columns;
    const std::int64_t bottom = row + a.block_rows < rows ? row + a.block_rows : rows;
    const std::int64_t right = left + a.block_columns < a.columns ? left + a.block_columns : a.columns;
    fn(reference::Block{row, bottom, left, right}, down * a.scales_stride + column,
       reference::runs_down(a) ? left : row);
  }
}

template <class S>
__global__ void quantize_blocks(QuantizeArgs<S> a) {
  for_own_blocks(a, [&](const reference::Block& block, std::int64_t index, std::int64_t line) {
    const std::uint32_t largest = reference::quantize_block(a, block, index, line);
    if (a.magnitude != nullptr) atomicMax(a.magnitude, largest);
  });
}

template <class S>
__global__ void dequantize_blocks(QuantizeArgs<S> a) {
  for_own_blocks(a, [&](const reference::Block& block, std::int64_t index, std::int64_t) {
    reference::dequantize_block(a, block, index);
  });
}

/// A maximum does not depend on the order in which threads arrive.
template <class S>
__global__ void largest_of_rows(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                std::uint32_t* largest) {
  std::uint32_t own = 0;
  for (std::int64_t at = thread_index(); at < rows * columns; at += std::int64_t{gridDim.x} * kThreads) {
    const std::uint32_t bits = magnitude_bits(reference::get(x[at / columns * stride + at % columns]));
    own = bits > own ? bits : own;
  }
  atomicMax(largest, own);
}

template <class S>
__global__ void largest_of_groups(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                  bool along_rows, std::uint32_t* largest) {
  const std::int64_t across = along_rows ? columns : (columns + 15) / 16;
  const std::int64_t down = along_rows ? (rows + 15) / 16 : rows;
  const std::int64_t thread = thread_index();
  if (thread >= down * across) return;
  const std::int64_t i = thread / across, j = thread % across;
  float v[16];
  reference::rotated_group(x, rows, columns, stride, along_rows, along_rows ? i * 16 : i, along_rows ? j : j * 16, v);
  std::uint32_t own = 0;
  for (const float y : v) own = magnitude_bits(y) > own ? magnitude_bits(y) : own;
  atomicMax(largest, own);
}

/// One scale for the matrix: a row is a block, so that rows spread over threads; packed rows share no byte.
template <class S>
QuantizeArgs<S> with_blocks(QuantizeArgs<S> args) {
  if (args.scaling == Scaling::kTensor) {
    args.block_rows = 1;
    args.block_columns = args.columns > 0 ? args.columns : 1;
  }
  return args;
}

template <class S>
cudaError_t refused(const QuantizeArgs<S>& a) {
  const bool shared_bytes = a.packed && a.block_columns % 2 != 0 && a.block_columns > 1 && a.columns > a.block_columns;
  return a.block_rows < 1 || a.block_columns < 1 || shared_bytes ? cudaErrorInvalidValue : cudaSuccess;
}

template <class S>
cudaError_t launch_quantize(QuantizeArgs<S> a, cudaStream_t stream) {
  a = with_blocks(a);
  if (const cudaError_t error = refused(a); error != cudaSuccess) return error;
  const std::int64_t threads = blocks_down(a) * threads_across(a);
  if (threads > 0) quantize_blocks<<<grids_for(threads), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

template <class S>
cudaError_t launch_dequantize(QuantizeArgs<S> a, cudaStream_t stream) {
  a = with_blocks(a);
  if (const cudaError_t error = refused(a); error != cudaSuccess) return error;
  const std::int64_t threads = blocks_down(a) * threads_across(a);
  if (threads > 0) dequantize_blocks<<<grids_for(threads), kThreads, 0, stream>>>(a);
  return cudaGetLastError();
}

template <class S>
cudaError_t launch_amax(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                        std::uint32_t* largest, cudaStream_t stream) {
  constexpr std::int64_t kMostGrids = 4096;
  const std::int64_t n = rows * columns;
  if (n > 0) {
    const std::int64_t grids = grids_for(n) < kMostGrids ? grids_for(n) : kMostGrids;
    largest_of_rows<<<static_cast<unsigned>(grids), kThreads, 0, stream>>>(x, rows, columns, stride, largest);
  }
  return cudaGetLastError();
}

template <class S>
cudaError_t launch_amax_rotated(const S* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                bool along_rows, std::uint32_t* largest, cudaStream_t stream) {
  const std::int64_t groups = along_rows ? (rows + 15) / 16 * columns : rows * ((columns + 15) / 16);
  if (groups > 0)
    largest_of_groups<<<grids_for(groups), kThreads, 0, stream>>>(x, rows, columns, stride, along_rows, largest);
  return cudaGetLastError();
}

}  // namespace

// Pointers in the arguments (x, codes, values, scales, lines, magnitude) are device memory. `largest` is raised, not set.
cudaError_t quantize(const QuantizeArgs<float>& args, cudaStream_t stream) { return launch_quantize(args, stream); }
cudaError_t quantize(const QuantizeArgs<Bf16>& args, cudaStream_t stream) { return launch_quantize(args, stream); }
cudaError_t dequantize(const QuantizeArgs<float>& args, cudaStream_t stream) { return launch_dequantize(args, stream); }
cudaError_t dequantize(const QuantizeArgs<Bf16>& args, cudaStream_t stream) { return launch_dequantize(args, stream); }
cudaError_t amax(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::uint32_t* largest,
                 cudaStream_t stream) {
  return launch_amax(x, rows, columns, stride, largest, stream);
}
cudaError_t amax(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, std::uint32_t* largest,
                 cudaStream_t stream) {
  return launch_amax(x, rows, columns, stride, largest, stream);
}
cudaError_t amax_rotated(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool along_rows,
                         std::uint32_t* largest, cudaStream_t stream) {
  return launch_amax_rotated(x, rows, columns, stride, along_rows, largest, stream);
}
cudaError_t amax_rotated(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, bool along_rows,
                         std::uint32_t* largest, cudaStream_t stream) {
  return launch_amax_rotated(x, rows, columns, stride, along_rows, largest, stream);
}

}  // namespace tenon::kernels::cuda
