// Starts kernel bodies (block.hpp): on a CUDA stream where nvcc compiles, by loops on the host elsewhere.
// Both use the same description of a launch. Nothing is owned, allocated on a device or waited for here.
#pragma once

#include <tenon/kernels/cuda/block.hpp>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include <vector>
#endif

namespace tenon::kernels::cuda {

/// Number of blocks and of threads that run a body, and the bytes of shared memory of each block.
struct Grid {
  std::int64_t blocks = 1;
  int threads = kThreads;
  std::size_t shared = 0;
};

/// Enough blocks for n elements that are spread over all threads, but no more than keep a device busy.
constexpr Grid grid_for(std::int64_t n, std::size_t shared = 0) {
  constexpr std::int64_t kBusy = std::int64_t{132} * 16;
  const std::int64_t blocks = (n + kThreads - 1) / kThreads;
  return {blocks < 1 ? 1 : blocks > kBusy ? kBusy : blocks, kThreads, shared};
}

/// The order in which the host launcher runs blocks, and threads within a phase. A body whose result depends
/// on it has a race on the device.
enum class LaunchOrder : std::uint8_t { kAscending, kDescending };

#if defined(__CUDACC__)

template <class Body>
__global__ void run_body(const Body body) {
  // Tensor cores require tiles at multiples of 32 bytes.
  extern __shared__ __align__(128) std::byte tenon_shared[];
#if defined(__CUDA_ARCH__)
  body(Block(tenon_shared));
#endif
}

/// Launches on `stream`; requests shared memory beyond the default limit of kernels first. Returns CUDA's own
/// code.
template <class Body>
cudaError_t launch(cudaStream_t stream, const Grid& grid, const Body& body) {
  constexpr std::size_t kGranted = std::size_t{48} << 10;
  if (grid.blocks < 1 || grid.blocks > kMostBlocks) return cudaErrorInvalidConfiguration;
  if (grid.shared > kGranted) {
    const cudaError_t error =
        cudaFuncSetAttribute(reinterpret_cast<const void*>(&run_body<Body>),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared));
    if (error != cudaSuccess) return error;
  }
  run_body<Body>
      <<<static_cast<unsigned>(grid.blocks), static_cast<unsigned>(grid.threads), grid.shared, stream>>>(
          body);
  return cudaGetLastError();
}

#endif

#if !defined(__CUDACC__)

/// Launches on the calling thread, one block after the other. `shared` has room for grid.shared bytes, which
/// begin as 0xA5 in every block, since a device does not clear them.
template <class Body>
void launch_on_host(const Grid& grid, const Body& body, LaunchOrder order, std::byte* shared) {
  const bool descending = order == LaunchOrder::kDescending;
  for (std::int64_t turn = 0; turn < grid.blocks; ++turn) {
    for (std::size_t i = 0; i < grid.shared; ++i) shared[i] = std::byte{0xA5};
    body(Block(descending ? grid.blocks - 1 - turn : turn, grid.blocks, grid.threads, descending, shared));
  }
}

/// The same with memory of its own.
template <class Body>
void launch_on_host(const Grid& grid, const Body& body, LaunchOrder order = LaunchOrder::kAscending) {
  std::vector<std::max_align_t> memory(grid.shared / sizeof(std::max_align_t) + 1);
  launch_on_host(grid, body, order, reinterpret_cast<std::byte*>(memory.data()));
}

#endif

}  // namespace tenon::kernels::cuda
