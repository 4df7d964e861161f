// Conversion between float and bfloat16 on CUDA, by the very functions that define it on the CPU (bf16.hpp), so both agree
// bit for bit. Launches only; no memory is owned and nothing is synchronised here.
#include <cuda_runtime.h>

#include <tenon/kernels/bf16.hpp>

namespace tenon::kernels::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void convert_to_bf16(const float* x, Bf16* y, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) y[i] = to_bf16(x[i]);
}

__global__ void convert_to_float(const Bf16* x, float* y, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) y[i] = to_float(x[i]);
}

unsigned blocks_for(std::int64_t n) { return static_cast<unsigned>((n + kThreads - 1) / kThreads); }

}  // namespace

cudaError_t f32_to_bf16(const float* x, Bf16* y, std::int64_t n, cudaStream_t stream) {
  if (n > 0) convert_to_bf16<<<blocks_for(n), kThreads, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}

cudaError_t bf16_to_f32(const Bf16* x, float* y, std::int64_t n, cudaStream_t stream) {
  if (n > 0) convert_to_float<<<blocks_for(n), kThreads, 0, stream>>>(x, y, n);
  return cudaGetLastError();
}

}  // namespace tenon::kernels::cuda
