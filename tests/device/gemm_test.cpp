// Products against loops in double: every dtype, transposition, tail and way of adding to C, at sizes that
// are no multiple of anything; the same bits for one and two threads; no allocation in run().
#include "device_test.hpp"

#include <tenon/ops/norm.hpp>

#include <cmath>
#include <new>
#include <tuple>

namespace tenon::testing::gemm_test {
namespace {

double map(Epilogue epilogue, double x) {
  switch (epilogue) {
    case Epilogue::kNone:
      return x;
    case Epilogue::kGeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Epilogue::kGeluExact:
      return x / 2 * (1 + std::erf(x / std::sqrt(2.0)));
    case Epilogue::kRelu:
      return std::max(x, 0.0);
    case Epilogue::kSilu:
      return x / (1 + std::exp(-x));
    case Epilogue::kSquaredRelu:
      return std::pow(std::max(x, 0.0), 2);
  }
  return x;
}

/// Normal numbers that repeat after a while: drawing large operands should not take the test longer than the
/// product.
std::vector<double> repeated(std::int64_t count, std::string_view purpose, DType dtype) {
  constexpr std::int64_t kPeriod = 10007;
  std::vector<double> values = numbers(std::min(count, kPeriod), purpose, dtype);
  values.reserve(count);
  for (std::int64_t i = kPeriod; i < count; ++i) values.push_back(values[i - kPeriod]);
  return values;
}

/// Operands of one product, and the result in double.
struct Problem {
  GemmSpec spec;
  double factor = 1;
  std::vector<double> a, b, c, bias, expected;

  explicit Problem(const GemmSpec& s) : spec(s), factor(s.alpha ? 0.5 : 1.0) {
    a = repeated(s.batch * s.m * s.k, "a", s.a);
    b = repeated(s.batch * s.k * s.n, "b", s.b);
    c = repeated(s.batch * s.m * s.n, "c", s.c);
    bias = numbers(s.n, "bias", arithmetic(s.a));
    expected.resize(c.size());
    for (std::int64_t p = 0; p < s.batch; ++p)
      for (std::int64_t i = 0; i < s.m; ++i)
        for (std::int64_t j = 0; j < s.n; ++j) {
          double sum = 0;
          for (std::int64_t l = 0; l < s.k; ++l)
            sum += at(a, p * s.m * s.k + (s.transpose_a ? l * s.m + i : i * s.k + l)) *
                   at(b, p * s.k * s.n + (s.transpose_b ? j * s.k + l : l * s.n + j));
          const std::int64_t out = (p * s.m + i) * s.n + j;
          sum = (s.accumulate ? at(c, out) : 0) + factor * sum + (s.bias ? at(bias, j) : 0);
          expected[out] = map(s.epilogue, sum);
        }
  }

  static double at(const std::vector<double>& values, std::int64_t i) { return values[i]; }

  std::string name() const {
    return std::string(dtype_name(spec.a)) + " x " + std::string(dtype_name(spec.b)) + " -> " +
           std::string(dtype_name(spec.c)) + ", " + std::to_string(spec.batch) + " of " +
           std::to_string(spec.m) + " " + std::to_string(spec.n) + " " + std::to_string(spec.k) +
           (spec.transpose_a ? ", A'" : "") + (spec.transpose_b ? ", B'" : "") +
           (spec.accumulate ? ", added" : "") + (spec.bias ? ", bias" : "") + (spec.alpha ? ", alpha" : "") +
           ", epilogue " + std::to_string(static_cast<int>(spec.epilogue));
  }

  /// Relative to the largest element: k roundings of a sum of k products of normal numbers, whose size is
  /// sqrt(k); the factor 4 covers the tail of the distribution. Then one rounding to the dtype of C.
  double bound() const {
    const double chain = 4 * std::sqrt(static_cast<double>(spec.k)) * unit(arithmetic(spec.a));
    return chain + 8 * unit(arithmetic(spec.a)) + 1.01 * unit(spec.c);
  }
};

class Gemms : public OnEveryChoice {
 protected:
  struct Ready {
    Owned a, b, c, bias;
    std::unique_ptr<Gemm> gemm;
    Owned scratch;
    Ready(Device& device, const Problem& p)
        : a(device, Shape{static_cast<std::int64_t>(p.a.size())}, p.spec.a, p.a),
          b(device, Shape{static_cast<std::int64_t>(p.b.size())}, p.spec.b, p.b),
          c(device, Shape{static_cast<std::int64_t>(p.c.size())}, p.spec.c, p.c),
          bias(device, Shape{p.spec.n}, arithmetic(p.spec.a), p.bias),
          gemm(device.family<Blas>().gemm(p.spec)),
          scratch(device, Shape{static_cast<std::int64_t>(gemm->scratch_bytes())}, DType::kU8) {}
    void run(const Problem& p) {
      gemm->run(a, b, c, p.spec.bias ? TensorView(bias) : TensorView{}, static_cast<float>(p.factor),
                scratch);
    }
  };

  void check(const GemmSpec& spec) {
    const Problem problem(spec);
    Ready ready(device_, problem);
    ready.run(problem);
    EXPECT_LE(relative_error(ready.c.values(), problem.expected), problem.bound()) << problem.name();
  }
};

constexpr DType kF32 = DType::kF32, kF64 = DType::kF64, kBF16 = DType::kBF16;
constexpr std::tuple<DType, DType, DType> kDtypes[] = {
    {kF32, kF32, kF32},  {kF64, kF64, kF64},  {kBF16, kBF16, kBF16}, {kBF16, kBF16, kF32},
    {kF32, kF32, kBF16}, {kF32, kBF16, kF32}, {kBF16, kF32, kBF16}};

TEST_P(Gemms, ComputeEveryCombination) {
  for (const auto& [a, b, c] : kDtypes)
    for (const bool transpose_a : {false, true})
      for (const bool transpose_b : {false, true})
        for (const bool accumulate : {false, true})
          for (const bool alpha : {false, true}) {
            GemmSpec spec{.m = 37, .n = 53, .k = 29, .transpose_a = transpose_a, .transpose_b = transpose_b};
            spec.a = a, spec.b = b, spec.c = c;
            spec.accumulate = accumulate, spec.alpha = alpha;
            check(spec);
            spec.bias = true;
            check(spec);
            spec.batch = 3;
            check(spec);
          }
}

TEST_P(Gemms, ApplyEpilogues) {
  for (const auto& [a, b, c] : kDtypes)
    for (const Epilogue epilogue : {Epilogue::kGeluTanh, Epilogue::kGeluExact, Epilogue::kRelu,
                                    Epilogue::kSilu, Epilogue::kSquaredRelu})
      for (const bool everything : {false, true}) {
        GemmSpec spec{.m = 21, .n = 130, .k = 40, .transpose_b = true};
        spec.a = a, spec.b = b, spec.c = c;
        spec.bias = true, spec.epilogue = epilogue;
        spec.accumulate = spec.alpha = everything;
        check(spec);
      }
}

// A NaN must survive the activation too; a fused activation has the bits of a separate one.
TEST_P(Gemms, MapAsTheMapAloneAndKeepNaNs) {
  for (const Epilogue epilogue : {Epilogue::kRelu, Epilogue::kSilu, Epilogue::kSquaredRelu})
    for (const DType dtype : {kF32, DType::kF64}) {
      GemmSpec spec{.m = 5, .n = 40, .k = 33, .a = dtype, .b = dtype, .c = dtype};
      std::vector<double> values = numbers(5 * 33, "a", dtype);
      values[40] = std::nan("");
      const Owned a(device_, Shape{5, 33}, dtype, values),
          b(device_, Shape{33, 40}, dtype, numbers(33 * 40, "b", dtype)), plain(device_, Shape{5, 40}, dtype),
          mapped(device_, Shape{5, 40}, dtype);
      const auto run = [&](const Owned& c) {
        const auto gemm = device_.family<Blas>().gemm(spec);
        const Owned scratch(device_, Shape{static_cast<std::int64_t>(gemm->scratch_bytes())}, DType::kU8);
        gemm->run(a, b, c, {}, 1, scratch);
      };
      run(plain);
      device_.family<NeuralOps>().activation(epilogue, plain, plain);
      spec.epilogue = epilogue;
      run(mapped);
      EXPECT_EQ(mapped.bytes(), plain.bytes()) << dtype_name(dtype) << static_cast<int>(epilogue);
      EXPECT_TRUE(std::isnan(mapped.values()[40])) << dtype_name(dtype) << static_cast<int>(epilogue);
    }
}

TEST_P(Gemms, TakeAwkwardSizes) {
  const std::tuple<int, int, int, int> sizes[] = {{1, 1, 1, 1},     {1, 257, 3, 1},  {97, 1, 129, 1},
                                                  {100, 131, 1, 2}, {3, 3, 1000, 1}, {193, 129, 257, 1},
                                                  {1, 1, 7, 5}};
  for (const auto& [a, b, c] : kDtypes)
    for (const auto& [m, n, k, batch] : sizes)
      for (const bool transposed : {false, true}) {
        GemmSpec spec{
            .m = m, .n = n, .k = k, .batch = batch, .transpose_a = transposed, .transpose_b = !transposed};
        spec.a = a, spec.b = b, spec.c = c;
        check(spec);
      }
}

TEST_P(Gemms, HandleEmptyProducts) {
  GemmSpec spec{.m = 3, .n = 2, .k = 0, .bias = true};
  check(spec);  // bias alone
  spec.accumulate = true;
  check(spec);
  for (const GemmSpec& empty : {GemmSpec{.m = 0, .n = 2, .k = 3}, GemmSpec{.m = 2, .n = 0, .k = 3},
                                GemmSpec{.m = 2, .n = 2, .k = 3, .batch = 0}}) {
    const auto gemm = device_.family<Blas>().gemm(empty);
    const Owned a(device_, Shape{empty.batch * empty.m * empty.k}, kF32),
        b(device_, Shape{empty.batch * empty.k * empty.n}, kF32), c(device_, Shape{0}, kF32);
    EXPECT_NO_THROW(gemm->run(a, b, c, {}, 1, {}));
  }
}

TEST_P(Gemms, AddIntoBf16WithOneRounding) {
  // 1 + 2^-8 + 2^-17 is above the middle of two neighbours; if the product were rounded first, 2^-17 would be
  // lost and the tie would go to 1.
  GemmSpec spec{.m = 1, .n = 1, .k = 2, .a = kBF16, .b = kBF16, .c = kBF16, .accumulate = true};
  Problem problem(spec);
  problem.a = {0x1p-8, 0x1p-17};
  problem.b = {1, 1};
  problem.c = {1};
  Ready ready(device_, problem);
  ready.run(problem);
  EXPECT_EQ(ready.c.values()[0], 1 + 0x1p-7);
}

TEST_P(Gemms, GiveTheSameBitsAgain) {
  for (const auto& [a, b, c] : kDtypes) {
    GemmSpec spec{.m = 130, .n = 200, .k = 100, .transpose_a = true};
    spec.a = a, spec.b = b, spec.c = c, spec.bias = true, spec.epilogue = Epilogue::kGeluTanh;
    const Problem problem(spec);
    std::vector<std::byte> first;
    // Threads do not change the bits of our own kernels; oneDNN guarantees its bits for one number of
    // threads.
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Ready ready(device_, problem);
      ready.run(problem);
      const std::vector<std::byte> once = ready.c.bytes();
      ready.run(problem);
      EXPECT_EQ(ready.c.bytes(), once) << problem.name();
      if (threads == 1) first = once;
      if (!uses_onednn()) {
        EXPECT_EQ(once, first) << problem.name() << " with " << threads << " threads";
      }
    }
  }
}

TEST_P(Gemms, RunWithoutAllocation) {
  for (const auto& [a, b, c] : kDtypes) {
    GemmSpec spec{.m = 70, .n = 66, .k = 50};
    spec.a = a, spec.b = b, spec.c = c, spec.bias = spec.alpha = true;
    const Problem problem(spec);
    Ready ready(device_, problem);
    ready.run(problem);
    SCOPED_TRACE(problem.name());
    expect_no_allocations(device_, [&] { ready.run(problem); });
  }
  EXPECT_EQ(own_allocations([] { ::operator delete(::operator new(1)); }), 1) << "the counter does not count";
}

TEST_P(Gemms, RefuseWhatTheyCannotDo) {
  Blas& blas = device_.family<Blas>();
  EXPECT_THAT(message_of([&] { blas.gemm({.m = 1, .n = 1, .k = 1, .a = kF64, .b = kF32, .c = kF64}); }),
              ::testing::HasSubstr("f64 and f32 into f64"));
  EXPECT_THAT(
      message_of([&] { blas.gemm({.m = 1, .n = 1, .k = 1, .a = DType::kI32, .b = DType::kI32, .c = kF32}); }),
      ::testing::HasSubstr("i32"));
  EXPECT_THAT(message_of([&] { blas.gemm({.m = -1, .n = 1, .k = 1}); }), ::testing::HasSubstr("m = -1"));
  const auto gemm = blas.gemm({.m = 2, .n = 3, .k = 4});
  const Owned a(device_, Shape{2, 4}, kF32), b(device_, Shape{4, 3}, kF32), c(device_, Shape{2, 3}, kF32);
  const Owned scratch(device_, Shape{static_cast<std::int64_t>(gemm->scratch_bytes())}, DType::kU8);
  EXPECT_THAT(message_of([&] { gemm->run(a, c, c, {}, 1, scratch); }),
              ::testing::HasSubstr("gemm: B is f32 [2, 3], expected 12 elements of f32"));
  EXPECT_THAT(message_of([&] { gemm->run(scratch, b, c, {}, 1, scratch); }),
              ::testing::HasSubstr("gemm: A is u8"));
}

TEST_P(Gemms, SayWhatIsNative) {
  Blas& blas = device_.family<Blas>();
  EXPECT_TRUE(blas.native(kF32));
  EXPECT_TRUE(blas.native(kF64));
  EXPECT_FALSE(blas.native(DType::kI8));
  if (device_.space() != MemorySpace::kHost) return;
  // Without oneDNN, or without a hint of such units in the features, bf16 cannot be native.
  if (!uses_onednn() || device_.features().find("bf16") == std::string_view::npos) {
    EXPECT_FALSE(blas.native(kBF16));
  }
  if (uses_onednn() && device_.features().find("amx_bf16") != std::string_view::npos) {
    EXPECT_TRUE(blas.native(kBF16));
  }
}

/// The other choices split in the same way, and some would take long.
class LargeGemms : public Gemms {};

TEST_P(LargeGemms, AreSplitWhereOperandsAreCopied) {
  // Copies of these would take more than 32 MiB: the product is split along m, along n, and along m with
  // columns of A'.
  const struct {
    GemmSpec spec;
    std::int64_t whole;  // elements that are kept whole
  } cases[] = {
      {{.m = 6001, .n = 1501, .k = 3, .a = kF32, .b = kBF16, .c = kBF16}, 3 * 1501},
      {{.m = 1501, .n = 6001, .k = 3, .transpose_b = true, .a = kF32, .b = kBF16, .c = kBF16}, 3 * 1501},
      {{.m = 1501, .n = 6001, .k = 3, .a = kBF16, .b = kF32, .c = kBF16}, 3 * 1501},
      {{.m = 900'001, .n = 2, .k = 10, .transpose_a = true, .a = kBF16, .b = kF32, .c = kF32}, 20},
      {{.m = 3001, .n = 1001, .k = 3, .batch = 4, .a = kBF16, .b = kF32, .c = kBF16}, 3 * 1001}};
  for (const auto& c : cases) {
    GemmSpec spec = c.spec;
    spec.bias = spec.accumulate = spec.alpha = true;
    spec.epilogue = Epilogue::kRelu;
    check(spec);
    const auto gemm = device_.family<Blas>().gemm(spec);
    EXPECT_LE(gemm->scratch_bytes(), static_cast<std::size_t>(4 * c.whole) + (std::size_t{48} << 20));
  }
}

TEST_P(LargeGemms, PackTheSecondOperandWhereItPays) {
  // Rows of B 8 KiB apart, with A as it is and transposed; many rows of C, in f32 and bf16; B' of bf16.
  const GemmSpec cases[] = {
      {.m = 129, .n = 2048, .k = 24},
      {.m = 131, .n = 2560, .k = 9, .transpose_a = true},
      {.m = 1025, .n = 41, .k = 23},
      {.m = 1025, .n = 41, .k = 23, .a = kBF16, .b = kBF16, .c = kBF16},
      {.m = 2049, .n = 70, .k = 33, .transpose_b = true, .a = kBF16, .b = kBF16, .c = kF32}};
  for (GemmSpec spec : cases) {
    check(spec);
    spec.bias = spec.accumulate = spec.alpha = true;
    check(spec);
    spec.accumulate = false, spec.epilogue = Epilogue::kGeluTanh;
    const Problem problem(spec);
    Ready ready(device_, problem);
    ready.run(problem);
    const std::vector<std::byte> once = ready.c.bytes();
    SCOPED_TRACE(problem.name());
    expect_no_allocations(device_, [&] { ready.run(problem); });
    EXPECT_EQ(ready.c.bytes(), once);
    EXPECT_LE(relative_error(ready.c.values(), problem.expected), problem.bound());
  }
}

// Other devices copy no operands.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LargeGemms);
INSTANTIATE_TEST_SUITE_P(Device, LargeGemms,
                         ::testing::ValuesIn(tested_device() == "cpu" ? std::vector<std::string>{"auto"}
                                                                      : std::vector<std::string>{}));
INSTANTIATE_TEST_SUITE_P(Device, Gemms, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::gemm_test
