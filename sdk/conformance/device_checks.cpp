// Checks of devices: memory, copies, operators of the families that most layers use, and quantizers.
#include "base/at.hpp"
#include "subject.hpp"

#include <tenon/device.hpp>
#include <tenon/kernels/reference/quantize.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>
#include <tenon/testing/tensors.hpp>

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

namespace tenon::conformance {

// Fixtures shared by the checks of devices.

using Values = std::vector<double>;

/// The device under test, opened, and tensors on it that end with this object.
class DeviceRig {
 public:
  explicit DeviceRig(Subject& subject) : device_(subject.make<Device>()) {
    device_->open({.local_rank = 0, .threads = 1, .kernels = "auto"});
  }
  ~DeviceRig() {
    for (const TensorView& view : tensors_) device_->release(view.data, view.bytes());
  }
  DeviceRig(const DeviceRig&) = delete;
  DeviceRig& operator=(const DeviceRig&) = delete;

  Device& device() { return *device_; }
  TensorView tensor(DType dtype, const Shape& shape) {
    TensorView view{nullptr, shape, dtype, device_->space()};
    view.data = device_->allocate(view.bytes());
    tensors_.push_back(view);
    return view;
  }
  /// Normal numbers, rounded to the dtype.
  TensorView drawn(DType dtype, const Shape& shape, std::string_view purpose) {
    const TensorView view = tensor(dtype, shape);
    testing::write(*device_, view, testing::normals(view.elements(), purpose));
    return view;
  }
  Values values(TensorView view) { return testing::read(*device_, view); }
  template <typename Family>
  Family& family() {
    void* const found = device_->query(Family::kId);
    if (found == nullptr) not_applicable(fmt::format("it has no family {}", Family::kId));
    return *static_cast<Family*>(found);
  }

 private:
  testing::Made<Device> device_;
  std::vector<TensorView> tensors_;
};

// Checks of devices: memory that is clean and aligned, copies, and the operators of the families that most
// layers use, against plain loops in double. Absent families are skipped.

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
  const RuleEvaluator evaluate(&rig.family<FormulaOps>());
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    constexpr std::int64_t kCount = 1003;
    const TensorView w = rig.drawn(dtype, {kCount}, "w"), g = rig.drawn(dtype, {kCount}, "g");
    const TensorView m = rig.tensor(dtype, {kCount}), v = rig.tensor(dtype, {kCount});
    Values weight = rig.values(w), first(kCount, 0.0), second(kCount, 0.0);
    const Values gradient = rig.values(g);
    for (int count = 1; count <= 3; ++count) {
      evaluate(AdamWRule({.lr = 0.01, .decay = 0.1, .count = count, .gradient_scale = 0.5}),
               std::array{w, g, m, v});
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
      with_sgd_rule({.lr = 0.1, .momentum = 0.9, .first = count == 1, .gradient_scale = 0.5},
                    [&](const auto& rule) {
                      evaluate(rule, std::array{w, g, m});
                    });
      for (std::size_t i = 0; i < weight.size(); ++i) {
        first[i] = count == 1 ? 0.5 * gradient[i] : 0.9 * first[i] + 0.5 * gradient[i];
        weight[i] -= 0.1 * first[i];
      }
    }
    rig.device().synchronize();
    expect_near("three updates of sgd with momentum", dtype, rig.values(w), weight);
  }
}

/// y of the place at `position`, for the whole sequence's q, k and v of 4 heads that share 2 key heads.
Values attend(const Values& q, const Values& k, const Values& v, std::int64_t position, std::int64_t width) {
  constexpr std::int64_t kHeads = 4, kGroup = 2;
  Values y(kHeads * width, 0.0);
  for (std::int64_t head = 0; head < kHeads; ++head) {
    Values weights;
    double total = 0;
    const auto key = [&](std::int64_t at) { return (at * kHeads + head) / kGroup * width; };
    for (std::int64_t at = 0; at <= position; ++at) {
      double score = 0;
      for (std::int64_t j = 0; j < width; ++j)
        score += base::at(q, (position * kHeads + head) * width + j) * base::at(k, key(at) + j);
      weights.push_back(std::exp(score / 2));
      total += weights.back();
    }
    for (std::int64_t at = 0; at <= position; ++at)
      for (std::int64_t j = 0; j < width; ++j)
        base::at(y, head * width + j) += base::at(weights, at) / total * base::at(v, key(at) + j);
  }
  return y;
}

void attends_to_kept_keys(Subject& subject) {
  DeviceRig rig(subject);
  auto& attention = rig.family<Attention>();
  constexpr std::int64_t kWidth = 4, kPositions = 7, kSequences = 2, kMost = 3;
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    CachedAttentionSpec spec{.batch = kSequences, .time = kMost, .heads = 4, .head_width = kWidth};
    spec.kv_heads = 2, spec.positions = kPositions, spec.logit_scale = 0.5, spec.dtype = dtype;
    std::unique_ptr<CachedAttentionKernel> kernel;
    try {
      kernel = attention.prepare_cached(spec);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      not_applicable(error.what());
    }
    struct Sequence {
      Values q, k, v;
    };
    std::vector<Sequence> sequences;
    for (std::int64_t i = 0; i < kSequences; ++i) {
      const auto drawn = [&](std::int64_t columns, const char* name) {
        return rig.values(rig.drawn(dtype, {kPositions, columns}, fmt::format("{} of sequence {}", name, i)));
      };
      sequences.push_back({drawn(4 * kWidth, "q"), drawn(2 * kWidth, "k"), drawn(2 * kWidth, "v")});
    }
    const TensorView q = rig.tensor(dtype, {kSequences, kMost, 4 * kWidth}),
                     k = rig.tensor(dtype, {kSequences, kMost, 2 * kWidth}),
                     v = rig.tensor(dtype, {kSequences, kMost, 2 * kWidth}), y = rig.tensor(dtype, q.shape),
                     state = rig.tensor(DType::kU8, {kSequences, kernel->sequence_bytes()}),
                     scratch = rig.tensor(DType::kU8, {static_cast<std::int64_t>(kernel->scratch_bytes())});
    // Passes in which some places are padding.
    std::array<std::int64_t, kSequences> first{}, count{};
    const std::array<std::int64_t, kSequences> kept{1, 0};
    for (const auto& counts : {std::array{3, 2}, std::array{1, 1}, std::array{2, 3}, std::array{0, 1}}) {
      const auto places = [&](const TensorView& view, Values Sequence::*member) {
        const std::int64_t columns = view.shape[2];
        Values all(view.elements(), 0.0);
        for (std::size_t row = 0; row < sequences.size(); ++row)
          for (std::int64_t i = 0; i < counts[row] * columns; ++i)
            base::at(all, static_cast<std::int64_t>(row) * kMost * columns + i) =
                base::at(sequences[row].*member, first[row] * columns + i);
        testing::write(rig.device(), view, all);
      };
      places(q, &Sequence::q), places(k, &Sequence::k), places(v, &Sequence::v);
      Values expected;
      for (std::size_t row = 0; row < sequences.size(); ++row) {
        count[row] = counts[row];
        for (std::int64_t t = 0; t < kMost; ++t) {
          const Sequence& whole = sequences[row];
          const Values place = t < count[row] ? attend(whole.q, whole.k, whole.v, first[row] + t, kWidth)
                                              : Values(4 * kWidth, 0.0);
          expected.insert(expected.end(), place.begin(), place.end());
        }
      }
      kernel->forward(q, k, v, {}, {first, count, kept}, state, y, scratch);
      rig.device().synchronize();
      expect_near(fmt::format("attention to kept keys in {}, from positions {} and {} on", dtype_name(dtype),
                              first[0], first[1]),
                  dtype, rig.values(y), expected);
      for (std::size_t row = 0; row < sequences.size(); ++row) first[row] += count[row];
    }
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
    {"device.updates", kDeviceKind, "the formulas of adamw and sgd move weights as their definitions say",
     updates},
    {"device.attends_to_kept_keys", kDeviceKind,
     "places of a pass see those of the passes before as one whole sequence does, and padding gives zeros",
     attends_to_kept_keys},
    {"device.serves_two_threads", kDeviceKind,
     "two threads with plans of their own do not disturb each other", serves_two_threads},
};

}  // namespace

std::span<const Check> device_checks() {
  return kDeviceChecks;
}

// Checks of a device's quantizers: values, codes, scales and the operand of the product have the bits of the
// plain reference, in every format.

namespace {

constexpr std::int64_t kRows = 37, kColumns = 144;  ///< the last blocks of 16 x 16, 32 and 128 are partial

struct Case {
  const char* name;
  ElementFormat element;
  BlockScale scale;
  std::int64_t block_rows, block_columns;
  RoundingMode rounding = RoundingMode::kNearestEven;
  int random_bits = 8;
  bool rotate = false;
  PowerRule power = PowerRule::kRoundUp;
};
constexpr Case kCases[] = {
    {"NVFP4 1x16", ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16},
    {"NVFP4 16x16", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 16},
    {"NVFP4 1x16, stochastic with 24 bits", ElementFormat::kE2M1, BlockScale::kTwoLevel, 1, 16,
     RoundingMode::kStochastic, 24},
    {"NVFP4 16x1, rotated, stochastic", ElementFormat::kE2M1, BlockScale::kTwoLevel, 16, 1,
     RoundingMode::kStochastic, 8, true},
    {"MXFP4 1x32", ElementFormat::kE2M1, BlockScale::kPower, 1, 32, RoundingMode::kNearestEven, 8, false,
     PowerRule::kFloor},
    {"MXFP6 E3M2 1x32", ElementFormat::kE3M2, BlockScale::kPower, 1, 32},
    {"MXFP8 E4M3 32x1", ElementFormat::kE4M3, BlockScale::kPower, 32, 1},
    {"FP8 E4M3 1x128", ElementFormat::kE4M3, BlockScale::kFloat, 1, 128},
    {"FP8 E4M3 128x128", ElementFormat::kE4M3, BlockScale::kFloat, 128, 128},
    {"FP8 E5M2 per tensor", ElementFormat::kE5M2, BlockScale::kTensor, 1, 16},
};

struct Result {
  Values values, codes, scales;
  float amax = 0, decode = 1;
};

QuantizeSpec spec_of(const Case& c, DType input) {
  QuantizeSpec spec;
  spec.rows = kRows, spec.columns = kColumns;
  spec.input = input;
  spec.element = c.element;
  spec.scale = c.scale;
  spec.power = c.power;
  spec.block_rows = c.block_rows, spec.block_columns = c.block_columns;
  spec.rounding = c.rounding;
  spec.random_bits = c.random_bits;
  spec.rotate = c.rotate;
  return spec;
}

QuantizeDraws draws() {
  QuantizeDraws draws;
  draws.key = random_key(7, "conformance");
  draws.step = 3;
  draws.micro = 1;
  draws.origin_row = draws.origin_column = 32;
  return draws;
}

/// Computed by the reference, one element at a time.
template <class S>
Result expected(const QuantizeSpec& spec, const std::vector<S>& x) {
  const bool down = spec.scale != BlockScale::kTensor && spec.block_rows > spec.block_columns;
  const std::int64_t padded = spec.rotate && down ? (kRows + 15) / 16 * 16 : kRows;
  const bool blocks = spec.scale != BlockScale::kTensor;
  const std::int64_t across = (kColumns + spec.block_columns - 1) / spec.block_columns;
  const std::int64_t count = blocks ? across * ((kRows + spec.block_rows - 1) / spec.block_rows) : 0;
  const QuantizeDraws drawn = draws();
  kernels::QuantizeArgs<S> args;
  args.x = x.data();
  args.rows = kRows, args.columns = args.stride = kColumns;
  args.element = static_cast<kernels::Element>(spec.element);
  args.scaling = static_cast<kernels::Scaling>(spec.scale);
  args.power = static_cast<kernels::PowerRule>(spec.power);
  args.block_rows = spec.block_rows, args.block_columns = spec.block_columns;
  args.stochastic = spec.rounding == RoundingMode::kStochastic;
  args.random_bits = spec.random_bits;
  args.rotate = spec.rotate;
  args.key = drawn.key.words[0] | std::uint64_t{drawn.key.words[1]} << 32;
  args.step = drawn.step, args.micro = drawn.micro;
  args.origin_row = drawn.origin_row, args.origin_column = drawn.origin_column;
  Result result;
  const std::uint32_t largest =
      spec.rotate ? kernels::reference::amax_rotated(x.data(), kRows, kColumns, kColumns, down)
                  : kernels::reference::amax(x.data(), kRows, kColumns, kColumns);
  result.amax = std::bit_cast<float>(largest);
  if (spec.scale == BlockScale::kTensor) args.tensor = kernels::tensor_scale(result.amax, args.element);
  if (spec.scale == BlockScale::kTwoLevel) args.tensor = kernels::two_level_scale(result.amax);
  result.decode = args.tensor.decode;
  std::vector<kernels::Bf16> values(padded * kColumns);
  args.packed = spec.element == ElementFormat::kE2M1;
  args.values = values.data(), args.values_stride = kColumns;
  args.codes_stride = args.packed ? kColumns / 2 : kColumns;
  std::vector<std::uint8_t> codes(padded * args.codes_stride);
  args.codes = codes.data();
  std::vector<std::uint8_t> scales(count);
  std::vector<float> float_scales(count);
  args.scales_stride = across;
  if (spec.scale == BlockScale::kFloat)
    args.float_scales = float_scales.data();
  else if (blocks)
    args.scales = scales.data();
  kernels::reference::quantize(args);
  for (const kernels::Bf16 value : values)
    result.values.push_back(static_cast<double>(kernels::to_float(value)));
  result.codes.assign(codes.begin(), codes.end());
  if (spec.scale == BlockScale::kFloat)
    result.scales.assign(float_scales.begin(), float_scales.end());
  else
    result.scales.assign(scales.begin(), scales.end());
  return result;
}

Result found(DeviceRig& rig, const QuantizeSpec& spec, TensorView x) {
  const auto kernel = rig.family<QuantOps>().quantizer(spec);
  const auto bytes = [&](std::size_t count) {
    return count == 0 ? TensorView{} : rig.tensor(DType::kU8, Shape{static_cast<std::int64_t>(count)});
  };
  QuantizeOutput out;
  out.values = rig.tensor(DType::kBF16, Shape{kernel->padded_rows(), kColumns});
  out.codes = bytes(kernel->code_bytes());
  if (spec.scale == BlockScale::kFloat)
    out.scales =
        rig.tensor(DType::kF32, Shape{static_cast<std::int64_t>(kernel->scale_bytes() / sizeof(float))});
  else
    out.scales = bytes(kernel->scale_bytes());
  const TensorView scratch = bytes(kernel->scratch_bytes());
  Result result;
  result.amax = kernel->needs_amax() ? kernel->amax(x, scratch) : 0;
  result.decode = kernel->run(x, result.amax, draws(), out, scratch, nullptr);
  result.values = rig.values(out.values);
  result.codes = rig.values(out.codes);
  if (!out.scales.empty()) result.scales = rig.values(out.scales);
  const TensorView again = rig.tensor(DType::kBF16, out.values.shape);
  kernel->decode(out.codes, out.scales, again);
  if (rig.values(again) != result.values)
    fail("decode() of the codes and scales that run() wrote gives other values than run() did");
  return result;
}

void expect_same(const std::string& what, const char* part, const Values& found, const Values& expected) {
  if (found.size() != expected.size()) {
    fail(fmt::format("{}: {} {}, expected {}", what, found.size(), part, expected.size()));
  }
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (found[i] == expected[i]) continue;
    fail(fmt::format("{}: {} differ from those of the reference: number {} is {:.9g}, expected {:.9g}", what,
                     part, i, found[i], expected[i]));
  }
}

void quantizes(Subject& subject) {
  DeviceRig rig(subject);
  rig.family<QuantOps>();
  Values numbers = testing::normals(kRows * kColumns, "quantized");
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i % 97 == 0) numbers[i] *= 1e4;    // an outlier, whose block loses its small numbers
    if (i / 16 % 23 == 0) numbers[i] = 0;  // blocks of zeros
    if (i % 101 == 7) numbers[i] = -numbers[i] / 1e6;
  }
  for (const Case& c : kCases) {
    for (const DType input : {DType::kF32, DType::kBF16}) {
      const std::string what = fmt::format("{} of {}", c.name, dtype_name(input));
      const TensorView x = rig.tensor(input, Shape{kRows, kColumns});
      testing::write(rig.device(), x, numbers);
      const Values stored = rig.values(x);
      const QuantizeSpec spec = spec_of(c, input);
      Result wanted;
      if (input == DType::kF32) {
        wanted = expected(spec, std::vector<float>(stored.begin(), stored.end()));
      } else {
        std::vector<kernels::Bf16> narrow;
        for (const double value : stored) narrow.push_back(kernels::to_bf16(static_cast<float>(value)));
        wanted = expected(spec, narrow);
      }
      const Result result = found(rig, spec, x);
      if (spec.scale == BlockScale::kTensor || spec.scale == BlockScale::kTwoLevel)
        expect_same(what, "largest magnitudes", {static_cast<double>(result.amax)},
                    {static_cast<double>(wanted.amax)});
      expect_same(what, "decode scales", {static_cast<double>(result.decode)},
                  {static_cast<double>(wanted.decode)});
      expect_same(what, "block scales", result.scales, wanted.scales);
      expect_same(what, "codes", result.codes, wanted.codes);
      expect_same(what, "values", result.values, wanted.values);
    }
  }
}

constexpr Check kDeviceQuantChecks[] = {
    {"device.quantizes", "device/1", "number formats, scales, rounding and draws with the reference's bits",
     quantizes},
};

}  // namespace

std::span<const Check> device_quant_checks() {
  return kDeviceQuantChecks;
}

}  // namespace tenon::conformance
