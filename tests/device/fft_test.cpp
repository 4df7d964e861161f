// Transforms along one dimension: against NumPy's numbers, adjoints under the real inner product, and bits
// that depend on a line alone.
#include "device_test.hpp"

#include "reference/recorded.hpp"

#include <tenon/ops/spectral.hpp>

namespace tenon::testing::fft_test {
namespace {

constexpr FftMap kMaps[] = {FftMap::kForward, FftMap::kInverse, FftMap::kForwardAdjoint,
                            FftMap::kInverseAdjoint};

DType points_type(DType real, bool is_real) {
  if (is_real) return real;
  return real == DType::kF64 ? DType::kC128 : DType::kC64;
}
DType modes_type(DType real) {
  return real == DType::kF64 ? DType::kC128 : DType::kC64;
}

/// Number of reals; a complex element counts as two.
std::int64_t numbers_of(const FftSpec& spec, bool points) {
  const std::int64_t lines = spec.outer * spec.inner;
  return points ? lines * spec.length * (spec.real ? 1 : 2) : lines * (spec.low + spec.high) * 2;
}

class Transforms : public ::testing::Test {
 protected:
  ~Transforms() override { set_parallel_threads(1); }

  std::vector<double> apply(FftSpec spec, FftMap map, DType real, const std::vector<double>& in,
                            const std::vector<double>& before = {}) {
    spec.map = map;
    spec.points = points_type(real, spec.real);
    const auto kernel = device_.family<Fft>().prepare(spec);
    const Shape points{spec.outer, spec.length, spec.inner},
        modes{spec.outer, spec.low + spec.high, spec.inner};
    const bool to_modes = reads_points(map);
    const Owned scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8),
        source(device_, to_modes ? points : modes, to_modes ? spec.points : modes_type(real), in);
    Owned target(device_, to_modes ? modes : points, to_modes ? modes_type(real) : spec.points);
    if (!before.empty()) target.fill(before);
    expect_no_allocations(device_, [&] { kernel->run(source, target, !before.empty(), scratch); });
    return target.values();
  }

  TestedDevice bench_;
  Device& device_ = *bench_.device;
};

struct Case {
  const char* name;
  std::int64_t length, low, high;
  bool real;
};
constexpr Case kCases[] = {
    {"real_even", 8, 3, 0, true},      {"real_whole", 8, 5, 0, true},      {"real_odd", 7, 4, 0, true},
    {"real_prime", 13, 2, 0, true},    {"real_one", 1, 1, 0, true},        {"complex_even", 8, 3, 2, false},
    {"complex_whole", 6, 3, 3, false}, {"complex_odd", 7, 3, 3, false},    {"complex_low", 5, 2, 0, false},
    {"real_long", 150, 4, 0, true},    {"complex_long", 131, 2, 3, false}, {"real_wide", 80, 40, 0, true}};
FftSpec spec_of(const Case& c, std::int64_t outer, std::int64_t inner) {
  return {.outer = outer, .length = c.length, .inner = inner, .low = c.low, .high = c.high, .real = c.real};
}

// Recorded in float64 from float64 inputs, of which float32 and bfloat16 round the inputs.
TEST_F(Transforms, P11_AgreeWithNumPyAndWithTransposedMatrices) {
  const Recorded recorded("spectral");
  for (const Case& c : kCases) {
    const std::string name = std::string("fft_") + c.name + ".";
    const FftSpec spec = spec_of(c, 2, 3);
    for (const auto& [dtype, bound] :
         {std::pair{DType::kF64, 1e-13}, std::pair{DType::kF32, 1e-6}, std::pair{DType::kBF16, 0.02}}) {
      if (dtype == DType::kBF16 && !c.real) continue;
      for (const auto& [map, in, out] : {std::tuple{FftMap::kForward, "x", "forward"},
                                         {FftMap::kInverse, "z", "inverse"},
                                         {FftMap::kForwardAdjoint, "g", "forward_adjoint"},
                                         {FftMap::kInverseAdjoint, "h", "inverse_adjoint"}}) {
        EXPECT_LT(
            relative_error(apply(spec, map, dtype, recorded.values(name + in)), recorded.values(name + out)),
            bound)
            << name << out << " in " << dtype_name(dtype);
      }
    }
  }
}

TEST_F(Transforms, P2_AreAdjointUnderTheRealInnerProduct) {
  for (const Case& c : kCases) {
    const FftSpec spec = spec_of(c, 3, 2);
    for (const auto& [map, adjoint] : {std::pair{FftMap::kForward, FftMap::kForwardAdjoint},
                                       std::pair{FftMap::kInverse, FftMap::kInverseAdjoint}}) {
      const auto x = normals(numbers_of(spec, reads_points(map)), "x"),
                 y = normals(numbers_of(spec, !reads_points(map)), "y");
      const auto fx = apply(spec, map, DType::kF64, x), fy = apply(spec, adjoint, DType::kF64, y);
      double left = 0, right = 0, scale = 0;
      for (std::size_t i = 0; i < y.size(); ++i) left += fx[i] * y[i], scale += std::abs(fx[i] * y[i]);
      for (std::size_t i = 0; i < x.size(); ++i) right += x[i] * fy[i];
      EXPECT_NEAR(left, right, 1e-14 * scale) << c.name;
    }
  }
}

TEST_F(Transforms, P11_ImaginaryPartsOfModesThatAreTheirOwnConjugatesCountAsZero) {
  for (const std::int64_t length : {8, 7, 2, 1}) {
    const FftSpec spec{.outer = 2, .length = length, .inner = 1, .low = length / 2 + 1, .real = true};
    for (const FftMap map : {FftMap::kInverse, FftMap::kForwardAdjoint}) {
      auto z = normals(numbers_of(spec, false), "z");
      const auto expected = apply(spec, map, DType::kF32, z);
      for (std::int64_t line = 0; line < 2; ++line) {
        const auto at = [&](std::int64_t k) {
          return static_cast<std::size_t>(2 * (line * spec.low + k) + 1);
        };
        z[at(0)] += 3;
        if (length % 2 == 0) z[at(length / 2)] = 1e30;
      }
      EXPECT_EQ(apply(spec, map, DType::kF32, z), expected) << length;
      if (length > 2) {
        z[3] += 3;
        EXPECT_NE(apply(spec, map, DType::kF32, z), expected) << "a mode between is read whole";
      }
    }
    for (const FftMap map : {FftMap::kForward, FftMap::kInverseAdjoint}) {
      const auto z = apply(spec, map, DType::kF32, normals(numbers_of(spec, true), "x"));
      EXPECT_EQ(z[1], 0.0);
      if (length % 2 == 0) {
        EXPECT_EQ(z[length + 1], 0.0);
      }
    }
  }
}

/// Elements (o, n, j) of a tensor of `width` numbers an element, for fixed o and j.
std::vector<double> line(const std::vector<double>& all, std::int64_t length, std::int64_t inner, int width,
                         std::int64_t o, std::int64_t j) {
  std::vector<double> result;
  for (std::int64_t n = 0; n < length; ++n)
    for (int part = 0; part < width; ++part)
      result.push_back(all[((o * length + n) * inner + j) * width + part]);
  return result;
}

TEST_F(Transforms, P4_ALineHasTheSameBitsWhereverItLies) {
  for (const bool real : {true, false}) {
    for (const auto& [dtype, length] : {std::pair{DType::kF32, std::int64_t{12}},
                                        {DType::kF32, std::int64_t{150}},
                                        {DType::kF64, std::int64_t{12}}}) {
      const FftSpec spec{.outer = 3,
                         .length = length,
                         .inner = 5,
                         .low = real ? std::int64_t{7} : std::int64_t{4},
                         .high = real ? std::int64_t{0} : std::int64_t{3},
                         .real = real};
      FftSpec alone = spec;
      alone.outer = alone.inner = 1;
      for (const FftMap map : kMaps) {
        const bool to_modes = reads_points(map);
        const std::int64_t kept = spec.low + spec.high, from = to_modes ? spec.length : kept,
                           to = to_modes ? kept : spec.length;
        const int from_width = to_modes && real ? 1 : 2, to_width = !to_modes && real ? 1 : 2;
        const auto in = normals(numbers_of(spec, to_modes), "in");
        set_parallel_threads(1);
        const auto whole = apply(spec, map, dtype, in);
        for (const auto& [o, j] : {std::pair{0, 0}, {1, 3}, {2, 4}}) {
          EXPECT_EQ(apply(alone, map, dtype, line(in, from, spec.inner, from_width, o, j)),
                    line(whole, to, spec.inner, to_width, o, j));
        }
        for (const int threads : {2, 3, 7}) {
          set_parallel_threads(threads);
          EXPECT_EQ(apply(spec, map, dtype, in), whole) << threads << " threads";
        }
      }
    }
  }
}

/// The contract's sums, term by term.
std::vector<double> plain_sums(const FftSpec& spec, FftMap map, const std::vector<double>& in) {
  const bool to_modes = reads_points(map),
             inverse = map == FftMap::kInverse || map == FftMap::kInverseAdjoint;
  const std::int64_t kept = spec.low + spec.high, pair = spec.real ? 1 : 2;
  std::vector<double> out(numbers_of(spec, !to_modes));
  const auto place = [&](std::int64_t line, std::int64_t elements, std::int64_t i, std::int64_t width) {
    return static_cast<std::size_t>(((line / spec.inner * elements + i) * spec.inner + line % spec.inner) *
                                    width);
  };
  for (std::int64_t line = 0; line < spec.outer * spec.inner; ++line)
    for (std::int64_t j = 0; j < kept; ++j) {
      const std::int64_t k = j < spec.low ? j : spec.length - kept + j;
      const bool own = spec.real && (k == 0 || 2 * k == spec.length);
      const double factor =
          inverse ? (spec.real && !own ? 2.0 : 1.0) / static_cast<double>(spec.length) : 1.0;
      const std::size_t mode = place(line, kept, j, 2);
      for (std::int64_t n = 0; n < spec.length; ++n) {
        const double angle = 2 * 3.14159265358979323846 * static_cast<double>(k * n % spec.length) /
                             static_cast<double>(spec.length);
        const double re = factor * std::cos(angle), im = factor * std::sin(angle);
        const std::size_t point = place(line, spec.length, n, pair);
        if (to_modes) {
          const double x = in[point], y = spec.real ? 0 : in[point + 1];
          out[mode] += x * re + y * im;
          if (!own) out[mode + 1] += y * re - x * im;
        } else {
          const double x = in[mode], y = own ? 0 : in[mode + 1];
          out[point] += x * re - y * im;
          if (!spec.real) out[point + 1] += x * im + y * re;
        }
      }
    }
  return out;
}

// Lines of many modes, which a device may pass to a library, and a few hundred at a time.
constexpr Case kLongCases[] = {
    {"real_even", 258, 130, 0, true}, {"real_odd", 257, 128, 0, true}, {"complex", 200, 100, 80, false}};

TEST_F(Transforms, P11_LongLinesOfManyModesAreThePlainSums) {
  for (const Case& c : kLongCases) {
    const FftSpec spec = spec_of(c, 2, 3);
    for (const FftMap map : kMaps) {
      const auto in = normals(numbers_of(spec, reads_points(map)), "in");
      const auto expected = plain_sums(spec, map, in);
      for (const auto& [dtype, bound] :
           {std::pair{DType::kF64, 1e-13}, std::pair{DType::kF32, 1e-6}, std::pair{DType::kBF16, 0.02}}) {
        if (dtype == DType::kBF16 && !c.real) continue;
        EXPECT_LT(relative_error(apply(spec, map, dtype, in), expected), bound)
            << c.name << ", map " << static_cast<int>(map) << " in " << dtype_name(dtype);
      }
    }
  }
}

TEST_F(Transforms, P4_ALongLineHasTheSameBitsAmongMany) {
  for (const Case& c : kLongCases) {
    const FftSpec spec = spec_of(c, 3, 90), alone = spec_of(c, 1, 1);
    for (const FftMap map : {FftMap::kForward, FftMap::kInverse}) {
      const bool to_modes = reads_points(map);
      const std::int64_t kept = spec.low + spec.high, from = to_modes ? spec.length : kept,
                         to = to_modes ? kept : spec.length;
      const int from_width = to_modes && c.real ? 1 : 2, to_width = !to_modes && c.real ? 1 : 2;
      const auto in = normals(numbers_of(spec, to_modes), "in");
      const auto whole = apply(spec, map, DType::kF32, in);
      for (const auto& [o, j] : {std::pair{0, 0}, {2, 75}, {2, 76}, {2, 89}})
        EXPECT_EQ(apply(alone, map, DType::kF32, line(in, from, spec.inner, from_width, o, j)),
                  line(whole, to, spec.inner, to_width, o, j))
            << c.name << ", line " << o << ", " << j;
    }
  }
}

TEST_F(Transforms, AddWhereAsked) {
  for (const FftSpec& spec : {FftSpec{.outer = 2, .length = 6, .inner = 3, .low = 2, .high = 2},
                              spec_of(kLongCases[0], 1, 2), spec_of(kLongCases[2], 1, 2)}) {
    for (const FftMap map : kMaps) {
      const auto in = normals(numbers_of(spec, reads_points(map)), "in"),
                 before = normals(numbers_of(spec, !reads_points(map)), "before");
      auto expected = apply(spec, map, DType::kF64, in);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
      EXPECT_EQ(apply(spec, map, DType::kF64, in, before), expected);
    }
  }
}

std::string refusal(Device& device, const FftSpec& spec) {
  try {
    device.family<Fft>().prepare(spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST_F(Transforms, RefuseModesThatDoNotExist) {
  EXPECT_EQ(
      refusal(device_, {.length = 8, .low = 6, .real = true, .points = DType::kF32}),
      device_says("fft: 8 real points have 5 modes, all of them low, found 6 low and 0 high ones to keep"));
  EXPECT_EQ(
      refusal(device_, {.length = 8, .low = 2, .high = 1, .real = true, .points = DType::kF32}),
      device_says("fft: 8 real points have 5 modes, all of them low, found 2 low and 1 high ones to keep"));
  EXPECT_EQ(refusal(device_, {.length = 7, .low = 4, .high = 4}),
            device_says("fft: 7 complex points have 7 modes, found 4 low and 4 high ones to keep"));
  EXPECT_EQ(refusal(device_, {.length = 7, .low = 4, .high = 3, .points = DType::kF32}),
            device_says("fft: expected complex c64 or c128 points, found f32"));
  EXPECT_EQ(refusal(device_, {.length = 7, .low = 4, .real = true, .points = DType::kC64}),
            device_says("fft: expected real f32, f64 or bf16 points, found c64"));
  EXPECT_THAT(refusal(device_, {.length = 0}), ::testing::HasSubstr("expected lines of 1 to"));
}

TEST_F(Transforms, RefuseViewsThatDoNotFit) {
  const auto kernel =
      device_.family<Fft>().prepare({.outer = 2, .length = 8, .low = 3, .real = true, .points = DType::kF32});
  const Owned scratch(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8),
      x(device_, Shape{2, 8}, DType::kF32), z(device_, Shape{2, 3}, DType::kC64),
      wide(device_, Shape{2, 4}, DType::kC64), doubles(device_, Shape{2, 8}, DType::kF64);
  kernel->run(x, z, false, scratch);
  EXPECT_THROW(kernel->run(x, wide, false, scratch), Error);
  EXPECT_THROW(kernel->run(doubles, z, false, scratch), Error);
  const auto far = device_.family<Fft>().prepare({.outer = 2, .length = 8, .inner = 2, .low = 3});
  const Owned apart(device_, Shape{2, 8, 2}, DType::kC64), few(device_, Shape{2, 3, 2}, DType::kC64);
  if (far->scratch_bytes() > 0) {
    EXPECT_THROW(far->run(apart, few, false, {}), Error) << "without scratch";
  }
  EXPECT_THROW(far->run(few, few, false, scratch), Error);
}

}  // namespace
}  // namespace tenon::testing::fft_test
