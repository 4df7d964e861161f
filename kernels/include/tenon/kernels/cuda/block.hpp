// A kernel body's view of the threads that run it. A body is written once, as a class whose operator() takes
// a Block: nvcc compiles it for CUDA devices, a C++ compiler for the host launcher (launch.hpp), where blocks
// and threads are loops. So the arithmetic of indices, the shared memory and the order of sums are tested on
// any machine.
//
// A body consists of phases: block.each(f) calls f(thread) for every thread of the block, then all threads
// wait for each other. Data that a thread keeps from one phase to the next is in shared memory, or is a
// PerThread. Every thread takes the same path to each(). Where no thread reads what another one wrote,
// each_apart(f) spares the wait; join_neighbours() joins values of neighbouring threads without one.
#pragma once

#include <cstring>
#include <tenon/kernels/types.hpp>
#include <type_traits>

/// Before a loop of constant length over an array that should be in registers.
#if defined(__CUDA_ARCH__)
#define TENON_UNROLL _Pragma("unroll")
#else
#define TENON_UNROLL
#endif

/// Before a function that is rarely called and large: one copy of it instead of one in each caller.
#if defined(__CUDACC__)
#define TENON_NOINLINE __noinline__
#else
#define TENON_NOINLINE
#endif

namespace tenon::kernels::cuda {

/// Default number of threads of a block. A power of two, as trees of sums require.
inline constexpr int kThreads = 256;
/// Blocks are counted in one dimension; a launch of more than this number is refused.
inline constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;

#if defined(__CUDA_ARCH__)

/// On the device: the built-in variables.
class Block {
 public:
  __device__ explicit Block(std::byte* shared) : shared_(shared) {}
  __device__ std::int64_t index() const { return blockIdx.x; }
  __device__ std::int64_t blocks() const { return gridDim.x; }
  __device__ int threads() const { return static_cast<int>(blockDim.x); }
  /// The block's shared memory from byte `offset` on, of the size that the launch requested. Not cleared.
  template <class T>
  __device__ T* shared(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  template <class F>
  __device__ void each(F f) const {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class F>
  __device__ void each_apart(F f) const {
    f(static_cast<int>(threadIdx.x));
  }

 private:
  std::byte* shared_;
};

/// A variable of each thread that lives from one phase to the next, of a block of at most kThreads threads:
/// here a plain variable, in registers where its size and indices are constants. Not cleared.
template <class T>
class PerThread {
 public:
  __device__ T& operator[](int) { return value_; }

 private:
  T value_;
};

#else

/// On the host: set by the launcher.
class Block {
 public:
  Block(std::int64_t index, std::int64_t blocks, int threads, bool descending, std::byte* shared)
      : index_(index), blocks_(blocks), threads_(threads), descending_(descending), shared_(shared) {}
  std::int64_t index() const { return index_; }
  std::int64_t blocks() const { return blocks_; }
  int threads() const { return threads_; }
  template <class T>
  T* shared(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(shared_ + offset);
  }
  template <class F>
  void each(F f) const {
    if (descending_) {
      for (int thread = threads_ - 1; thread >= 0; --thread) f(thread);
    } else {
      for (int thread = 0; thread < threads_; ++thread) f(thread);
    }
  }
  template <class F>
  void each_apart(F f) const {
    each(f);
  }

 private:
  std::int64_t index_, blocks_;
  int threads_;
  bool descending_;
  std::byte* shared_;
};

/// The same: one of each thread, beginning as bytes of 0xA5, so that a test detects what was never set.
template <class T>
class PerThread {
 public:
  PerThread() { std::memset(static_cast<void*>(values_), 0xA5, sizeof(values_)); }
  T& operator[](int thread) { return values_[thread]; }

 private:
  T values_[kThreads];
};

#endif

/// Threads that exchange registers without a barrier.
inline constexpr int kWarpThreads = 32;

#if defined(__CUDA_ARCH__)

/// The value of the thread whose number in the warp differs by `distance`: of the other bit with kCrosswise,
/// else of that many threads above. All threads of a warp call it.
enum class Exchange { kCrosswise, kFromAbove };
template <Exchange kHow, class T>
__device__ T exchanged(const T& value, int distance) {
  static_assert(sizeof(T) % sizeof(unsigned) == 0 && std::is_trivially_copyable_v<T>);
  constexpr int kWords = sizeof(T) / sizeof(unsigned);
  unsigned words[kWords];
  memcpy(words, &value, sizeof(T));
  TENON_UNROLL
  for (int w = 0; w < kWords; ++w)
    words[w] = kHow == Exchange::kCrosswise ? __shfl_xor_sync(0xffffffffu, words[w], distance)
                                            : __shfl_down_sync(0xffffffffu, words[w], distance);
  T result;
  memcpy(&result, words, sizeof(T));
  return result;
}

#endif

/// values[0] = values[0] op ... op values[threads - 1], by halves: one order of sums on every machine. Both
/// values and the number of threads are the block's own; that number is a power of two, and on a device a
/// warp at least, where the last halves are joined in registers. The other values are undefined afterwards.
template <class T, class Op>
TENON_BOTH void reduce_block(const Block& block, T* values, Op op) {
#if defined(__CUDA_ARCH__)
  constexpr int kLast = kWarpThreads;
#else
  constexpr int kLast = 1;
#endif
  for (int half = block.threads() / 2; half >= kLast; half /= 2) {
    block.each([&](int thread) {
      if (thread < half) values[thread] = op(values[thread], values[thread + half]);
    });
  }
#if defined(__CUDA_ARCH__)
  block.each([&](int thread) {
    if (thread >= kWarpThreads) return;
    T own = values[thread];
    for (int half = kWarpThreads / 2; half > 0; half /= 2)
      own = op(own, exchanged<Exchange::kFromAbove>(own, half));
    if (thread == 0) values[0] = own;
  });
#endif
}

/// Every thread's value becomes those of its group joined by halves: a group is kGroup neighbouring threads,
/// a power of two, a warp at most. `op` commutes, so all of a group have the same bits. Threads of a warp
/// exchange registers.
template <int kGroup, class T, class Op>
TENON_BOTH void join_neighbours([[maybe_unused]] const Block& block, PerThread<T>& values, Op op) {
  static_assert(kGroup >= 1 && kGroup <= kWarpThreads && (kGroup & (kGroup - 1)) == 0);
  for (int distance = kGroup / 2; distance > 0; distance /= 2) {
#if defined(__CUDA_ARCH__)
    values[0] = op(values[0], exchanged<Exchange::kCrosswise>(values[0], distance));
#else
    for (int thread = 0; thread < block.threads(); ++thread) {
      if ((thread & distance) != 0) continue;
      values[thread] = op(values[thread], values[thread + distance]);
      values[thread + distance] = values[thread];
    }
#endif
  }
}

struct Add {
  template <class T>
  TENON_BOTH T operator()(T a, T b) const {
    return a + b;
  }
};
struct Larger {
  template <class T>
  TENON_BOTH T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};
struct Smaller {
  template <class T>
  TENON_BOTH T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

/// Calls f(i) for every i in [0, n), spread over all threads of all blocks. One phase.
template <class F>
TENON_BOTH void for_each_element(const Block& block, std::int64_t n, F f) {
  block.each([&](int thread) {
    const std::int64_t stride = block.blocks() * block.threads();
    for (std::int64_t i = block.index() * block.threads() + thread; i < n; i += stride) f(i);
  });
}

// Quotient and remainder of indices. Devices divide 32-bit words several times faster than 64-bit ones, and
// few tensors need more.

struct Divided {
  std::int64_t quotient, remainder;
};

/// n and d are not negative, d is not 0.
TENON_BOTH inline Divided divided(std::int64_t n, std::int64_t d) {
  if (((n | d) >> 32) != 0) return {n / d, n % d};
  const auto top = static_cast<std::uint32_t>(n), bottom = static_cast<std::uint32_t>(d);
  return {top / bottom, top % bottom};
}

// Integers that threads of several blocks raise, lower or add to. The result does not depend on the order in
// which they arrive, which is why there are no such functions for floating point.

/// *place becomes the larger of the two. Most calls find it large enough already.
TENON_BOTH inline void raise(std::uint32_t* place, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  if (*static_cast<volatile std::uint32_t*>(place) < value) atomicMax(place, value);
#else
  if (*place < value) *place = value;
#endif
}

/// *place becomes the smaller of the two.
TENON_BOTH inline void lower(std::uint32_t* place, std::uint32_t value) {
#if defined(__CUDA_ARCH__)
  if (*static_cast<volatile std::uint32_t*>(place) > value) atomicMin(place, value);
#else
  if (*place > value) *place = value;
#endif
}

TENON_BOTH inline void add_to(std::int64_t* place, std::int64_t value) {
#if defined(__CUDA_ARCH__)
  atomicAdd(reinterpret_cast<unsigned long long*>(place), static_cast<unsigned long long>(value));
#else
  *place += value;
#endif
}

}  // namespace tenon::kernels::cuda
