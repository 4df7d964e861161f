// Speed of products on two threads relative to one: the gain from a second core on this machine at this
// moment.
#pragma once

#include "step_bench.hpp"

#include <tenon/ops/dense.hpp>
#include <tenon/parallel.hpp>
#include <tenon/testing/components.hpp>

#include <atomic>
#include <chrono>
#include <thread>

namespace tenon::bench {

inline double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Median seconds of `body(rank)` on one thread per rank; all begin together.
inline double on_ranks(int ranks, int repeats, const std::function<void(int)>& body) {
  std::vector<std::vector<double>> seconds(ranks);
  std::atomic<int> arrived{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      set_parallel_threads(1);
      for (int i = 0; i < repeats; ++i) {
        ++arrived;
        while (arrived.load() < ranks * (i + 1)) std::this_thread::yield();
        const double begin = now();
        body(rank);
        seconds[rank].push_back(now() - begin);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return median(seconds[0]);
}

/// [m, k] times [k, n].
struct Products {
  std::int64_t m = 1024, n = 1536, k = 384;
};

/// Products per second of `ranks` threads, each with its own, relative to one thread's.
inline double product_scaling(Registry& registry, Host& host, const Products& products) {
  double rates[2];
  for (const int ranks : {1, 2}) {
    std::vector<testing::Made<Device>> devices;
    std::vector<std::unique_ptr<Gemm>> gemms;
    std::vector<std::vector<float>> a, b, c;
    GemmSpec spec;
    spec.m = products.m, spec.n = products.n, spec.k = products.k;
    spec.transpose_b = true;
    set_parallel_threads(1);
    for (int r = 0; r < ranks; ++r) {
      devices.push_back(testing::make<Device>(registry, host, "cpu", ""));
      devices.back()->open({r, 1, "auto"});
      gemms.push_back(devices.back()->family<Blas>().gemm(spec));
      a.emplace_back(static_cast<std::size_t>(spec.m * spec.k), 1.0f);
      b.emplace_back(static_cast<std::size_t>(spec.n * spec.k), 1.0f);
      c.emplace_back(static_cast<std::size_t>(spec.m * spec.n), 0.0f);
    }
    std::vector<std::vector<std::byte>> scratch(ranks);
    const double seconds = on_ranks(ranks, 9, [&](int rank) {
      const std::size_t r = rank;
      const auto bytes = gemms[r]->scratch_bytes();
      scratch[r].resize(bytes);
      const auto view = [](std::vector<float>& data, std::int64_t rows, std::int64_t columns) {
        return TensorView{data.data(), Shape{rows, columns}, DType::kF32, MemorySpace::kHost};
      };
      gemms[r]->run(
          view(a[r], spec.m, spec.k), view(b[r], spec.n, spec.k), view(c[r], spec.m, spec.n), {}, 1.0f,
          {scratch[r].data(), Shape{static_cast<std::int64_t>(bytes)}, DType::kU8, MemorySpace::kHost});
    });
    rates[ranks - 1] = ranks / seconds;
  }
  return rates[1] / rates[0];
}

}  // namespace tenon::bench
