// Checks of devices: memory that is clean and aligned, copies, and the operators of the families that most
// layers use, against plain loops in double. Absent families are skipped.
#include "device_rig.hpp"

#include "base/at.hpp"

#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/ops/update.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <functional>
#include <thread>

namespace tenon::conformance {
namespace {

/// Tolerance of sums of up to a few hundred terms, relative to the largest element of the result.
double bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-11 : dtype == DType::kF32 ? 3e-5 : 2e-2;
}

void expect_near(const std::string& what, DType dtype, const Values& found, const Values& expected) {
  const double error = testing::relative_error(found, expected);
  if (error <= bound(dtype)) return;
  std::size_t worst = 0;
  for (std::size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    if (!(std::abs(found[i] - expected[i]) <= std::abs(found[worst] - expected[worst]))) worst = i;
  }
  fail(fmt::format(
      "{} in {} is {:.3g} away from plain loops in double, relative to the largest element; expected at "
      "most {}. Element {} is {:.9g}, expected {:.9g}",
      what, dtype_name(dtype), error, bound(dtype), worst, found[worst], expected[worst]));
}

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

void gives_clean_memory(Subject& subject) {
  DeviceRig rig(subject);
  for (int round = 0; round < 3; ++round) {
    for (const std::size_t bytes : {1, 63, 64, 65, 4096, 1 << 20}) {
      void* const memory = rig.device().allocate(bytes);
      if (reinterpret_cast<std::uintptr_t>(memory) % 64 != 0)
        fail(fmt::format("allocate({}) is not aligned to 64 bytes", bytes));
      const TensorView view{memory, Shape{static_cast<std::int64_t>(bytes)}, DType::kU8,
                            rig.device().space()};
      for (const double value : rig.values(view)) {
        if (value != 0) {
          fail(fmt::format("allocate({}) gives memory that is not zero{}", bytes,
                           round > 0 ? " where it was used before" : ""));
        }
      }
      testing::write(rig.device(), view, Values(bytes, 255.0));
      rig.device().release(memory, bytes);
    }
  }
}

void copies(Subject& subject) {
  DeviceRig rig(subject);
  for (const DType dtype : kActivations) {
    for (const std::int64_t n : {1, 17, 4099}) {
      // Whole numbers that every type holds exactly, so that copying errors in both directions show.
      Values sent = testing::integers(n, 200, "copied");
      for (double& value : sent) value += 1;
      const TensorView from = rig.tensor(dtype, {n}), to = rig.tensor(dtype, {n});
      testing::write(rig.device(), from, sent);
      rig.device().copy(from, to);
      rig.device().synchronize();
      if (rig.values(from) != sent || rig.values(to) != sent)
        fail(fmt::format("a copy of {} elements of {} differs from what was copied", n, dtype_name(dtype)));
    }
  }
}

void multiply(DeviceRig& rig, Blas& blas, const GemmSpec& spec) {
  const TensorView a =
      rig.drawn(spec.a, spec.transpose_a ? Shape{spec.k, spec.m} : Shape{spec.m, spec.k}, "a");
  const TensorView b =
      rig.drawn(spec.b, spec.transpose_b ? Shape{spec.n, spec.k} : Shape{spec.k, spec.n}, "b");
  const TensorView c = rig.drawn(spec.c, {spec.m, spec.n}, "c");
  TensorView bias;
  if (spec.bias) bias = rig.drawn(spec.c == DType::kF64 ? DType::kF64 : DType::kF32, {spec.n}, "bias");
  const Values x = rig.values(a), y = rig.values(b), before = rig.values(c), added = rig.values(bias);
  Values expected;
  for (std::int64_t i = 0; i < spec.m; ++i) {
    for (std::int64_t j = 0; j < spec.n; ++j) {
      double sum = spec.accumulate ? base::at(before, i * spec.n + j) : 0;
      if (spec.bias) sum += base::at(added, j);
      for (std::int64_t l = 0; l < spec.k; ++l) {
        sum += base::at(x, spec.transpose_a ? l * spec.m + i : i * spec.k + l) *
               base::at(y, spec.transpose_b ? j * spec.k + l : l * spec.n + j);
      }
      expected.push_back(sum);
    }
  }
  const std::unique_ptr<Gemm> gemm = blas.gemm(spec);
  const TensorView scratch = rig.tensor(DType::kU8, {static_cast<std::int64_t>(gemm->scratch_bytes())});
  gemm->run(a, b, c, bias, 1.0F, scratch);
  rig.device().synchronize();
  expect_near(fmt::format("a product with m = {}, n = {}, k = {}{}{}{}{}", spec.m, spec.n, spec.k,
                          spec.transpose_a ? ", A transposed" : "", spec.transpose_b ? ", B transposed" : "",
                          spec.accumulate ? ", added to C" : "", spec.bias ? ", with bias" : ""),
              spec.a, rig.values(c), expected);
}

void multiplies(Subject& subject) {
  DeviceRig rig(subject);
  Blas& blas = rig.family<Blas>();
  for (const DType dtype : kActivations) {
    for (const auto& [m, n, k] : {std::array{1, 1, 1}, {5, 7, 3}, {33, 17, 64}, {64, 48, 130}}) {
      for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
          GemmSpec spec;
          spec.m = m, spec.n = n, spec.k = k;
          spec.transpose_a = transpose_a;
          spec.transpose_b = transpose_b;
          spec.a = spec.b = spec.c = dtype;
          multiply(rig, blas, spec);
          spec.accumulate = true;
          multiply(rig, blas, spec);
          spec.accumulate = false;
          spec.bias = true;
          multiply(rig, blas, spec);
        }
      }
    }
  }
}

void maps_elements(Subject& subject) {
  DeviceRig rig(subject);
  auto& maps = rig.family<Elementwise>();
  for (const DType dtype : kActivations) {
    for (const std::int64_t n : {1, 15, 40003}) {
      const TensorView a = rig.drawn(dtype, {n}, "a"), b = rig.drawn(dtype, {n}, "b"),
                       y = rig.tensor(dtype, {n});
      const Values x = rig.values(a), z = rig.values(b);
      const auto expect = [&](const char* what, TensorView found,
                              const std::function<double(std::size_t)>& value) {
        Values expected;
        for (std::size_t i = 0; i < x.size(); ++i) expected.push_back(value(i));
        rig.device().synchronize();
        expect_near(fmt::format("{} of {} elements", what, n), dtype, rig.values(found), expected);
      };
      maps.add(a, b, y);
      expect("add", y, [&](std::size_t i) { return x[i] + z[i]; });
      maps.subtract(a, b, y);
      expect("subtract", y, [&](std::size_t i) { return x[i] - z[i]; });
      maps.fill(y, 0.75);
      expect("fill", y, [](std::size_t) { return 0.75; });
      rig.device().copy(b, y);
      maps.axpy(-0.5, a, y);
      expect("axpy", y, [&](std::size_t i) { return z[i] - 0.5 * x[i]; });
      rig.device().copy(b, y);
      maps.lerp(y, a, 0.25);
      expect("lerp", y, [&](std::size_t i) { return z[i] + 0.25 * (x[i] - z[i]); });
      rig.device().copy(b, y);
      maps.scale(y, -1.5);
      expect("scale", y, [&](std::size_t i) { return -1.5 * z[i]; });
    }
  }
}

void reduces(Subject& subject) {
  DeviceRig rig(subject);
  auto& reduce = rig.family<ReduceOps>();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    for (const std::int64_t n : {1, 100, 40003}) {
      const TensorView view = rig.drawn(dtype, {n}, "x");
      double sum = 0, squares = 0, largest = 0, absolute = 0;
      for (const double x : rig.values(view)) {
        sum += x;
        squares += x * x;
        absolute += std::abs(x);
        largest = std::max(largest, std::abs(x));
      }
      const auto expect = [&](const char* what, double found, double expected, double size) {
        if (std::abs(found - expected) <= bound(dtype) * size) return;
        fail(fmt::format("{} of {} elements of {} is {:.9g}, expected {:.9g}", what, n, dtype_name(dtype),
                         found, expected));
      };
      expect("sum", reduce.sum(view), sum, absolute);
      expect("sum_of_squares", reduce.sum_of_squares(view), squares, squares);
      expect("absolute_max", reduce.absolute_max(view), largest, largest);
      if (reduce.first_non_finite(view) != -1) fail("first_non_finite finds something in finite numbers");
      Values spoiled = rig.values(view);
      spoiled[spoiled.size() / 2] = std::nan("");
      testing::write(rig.device(), view, spoiled);
      if (reduce.first_non_finite(view) != n / 2) {
        fail(fmt::format("first_non_finite of {} elements of {} is {}, expected {}, where a NaN is", n,
                         dtype_name(dtype), reduce.first_non_finite(view), n / 2));
      }
    }
  }
}

void updates(Subject& subject) {
  DeviceRig rig(subject);
  auto& rules = rig.family<UpdateOps>();
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    constexpr std::int64_t kCount = 1003;
    const TensorView w = rig.drawn(dtype, {kCount}, "w"), g = rig.drawn(dtype, {kCount}, "g");
    const TensorView m = rig.tensor(dtype, {kCount}), v = rig.tensor(dtype, {kCount});
    Values weight = rig.values(w), first(kCount, 0.0), second(kCount, 0.0);
    const Values gradient = rig.values(g);
    for (int count = 1; count <= 3; ++count) {
      rules.adamw(w, g, m, v, {.lr = 0.01, .decay = 0.1, .count = count, .gradient_scale = 0.5});
      for (std::size_t i = 0; i < weight.size(); ++i) {
        const double x = 0.5 * gradient[i];
        first[i] += 0.1 * (x - first[i]);
        second[i] += 0.001 * (x * x - second[i]);
        weight[i] -= 0.01 * 0.1 * weight[i];
        weight[i] -= 0.01 * (first[i] / (1 - std::pow(0.9, count))) /
                     (std::sqrt(second[i] / (1 - std::pow(0.999, count))) + 1e-8);
      }
    }
    rig.device().synchronize();
    expect_near("three updates of adamw", dtype, rig.values(w), weight);
    for (int count = 1; count <= 3; ++count) {
      rules.sgd(w, g, m, {.lr = 0.1, .momentum = 0.9, .first = count == 1, .gradient_scale = 0.5});
      for (std::size_t i = 0; i < weight.size(); ++i) {
        first[i] = count == 1 ? 0.5 * gradient[i] : 0.9 * first[i] + 0.5 * gradient[i];
        weight[i] -= 0.1 * first[i];
      }
    }
    rig.device().synchronize();
    expect_near("three updates of sgd with momentum", dtype, rig.values(w), weight);
  }
}

void serves_two_threads(Subject& subject) {
  DeviceRig rig(subject);
  Blas& blas = rig.family<Blas>();
  constexpr std::int64_t kSize = 48;
  GemmSpec spec;
  spec.m = spec.n = spec.k = kSize;
  struct Worker {
    TensorView a, b, c, scratch;
    std::unique_ptr<Gemm> gemm;
    Values alone;
    bool same = true;
  };
  std::vector<Worker> workers(2);
  for (Worker& worker : workers) {
    const std::string name = fmt::format("worker {}", &worker - workers.data());
    worker.a = rig.drawn(DType::kF32, {kSize, kSize}, name + " a");
    worker.b = rig.drawn(DType::kF32, {kSize, kSize}, name + " b");
    worker.c = rig.tensor(DType::kF32, {kSize, kSize});
    worker.gemm = blas.gemm(spec);
    worker.scratch = rig.tensor(DType::kU8, {static_cast<std::int64_t>(worker.gemm->scratch_bytes())});
    worker.gemm->run(worker.a, worker.b, worker.c, {}, 1.0F, worker.scratch);
    rig.device().synchronize();
    worker.alone = rig.values(worker.c);
  }
  std::vector<std::thread> threads;
  for (Worker& worker : workers) {
    threads.emplace_back([&rig, &worker] {
      for (int i = 0; i < 300 && worker.same; ++i) {
        worker.gemm->run(worker.a, worker.b, worker.c, {}, 1.0F, worker.scratch);
        worker.same = rig.values(worker.c) == worker.alone;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (!workers[0].same || !workers[1].same) {
    fail(
        "two threads that multiply at once, each with a plan of its own, get other bits than one alone: "
        "plans share "
        "nothing that is written");
  }
}

constexpr const char* kDeviceKind = "device/1";
constexpr Check kDeviceChecks[] = {
    {"device.gives_clean_memory", kDeviceKind,
     "memory is zero and aligned to 64 bytes, also where it was used before", gives_clean_memory},
    {"device.copies", kDeviceKind, "a copy has the bits of what was copied", copies},
    {"device.multiplies", kDeviceKind, "products of every transposition, added to or not, with bias or not",
     multiplies},
    {"device.maps_elements", kDeviceKind, "elementwise maps of short and long tensors", maps_elements},
    {"device.reduces", kDeviceKind, "sums, largest elements, and the first that is not finite", reduces},
    {"device.updates", kDeviceKind, "adamw and sgd move weights as their definitions say", updates},
    {"device.serves_two_threads", kDeviceKind,
     "two threads with plans of their own do not disturb each other", serves_two_threads},
};

}  // namespace

std::span<const Check> device_checks() {
  return kDeviceChecks;
}

}  // namespace tenon::conformance
