// The norm of gated values (family GatedNorms) against its formula written out in double: the gate multiplies
// before the norm, and every group of columns has a norm of its own.
#include "device_test.hpp"

#include <tenon/sdk/ops/ssd.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::testing::gated_norm_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};

struct Sizes {
  std::int64_t rows, groups, group_width;
};
const Sizes kSizes[] = {{1, 1, 1}, {5, 3, 7}, {130, 1, 64}, {3, 2, 300}, {70, 8, 16}};

struct Problem {
  GatedNormSpec spec;
  std::vector<double> y, projected, weight, dout;

  std::int64_t width() const { return spec.groups * spec.group_width; }
  std::int64_t gate_at(std::int64_t row, std::int64_t c) const {
    for (const ColumnRun& run : spec.gates) {
      if (c < run.width) return row * spec.columns + run.first + c;
      c -= run.width;
    }
    return -1;
  }
};

Problem make_problem(const Sizes& sizes, DType dtype, DType parameter, int seed = 0) {
  Problem p;
  const std::int64_t width = sizes.groups * sizes.group_width, first = width / 3;
  p.spec.rows = sizes.rows, p.spec.groups = sizes.groups, p.spec.group_width = sizes.group_width;
  p.spec.columns = width + 4;
  p.spec.gates = {{width - first + 3, first}, {1, width - first}};
  p.spec.dtype = dtype, p.spec.parameter = parameter;
  const std::string name = "gated norm " + std::to_string(seed) + " ";
  p.y = numbers(sizes.rows * width, name + "y", dtype);
  p.projected = numbers(sizes.rows * p.spec.columns, name + "projected", dtype);
  p.weight = numbers(width, name + "weight", parameter);
  p.dout = numbers(sizes.rows * width, name + "dout", dtype);
  return p;
}

struct Results {
  std::vector<double> out, y, projected, weight;  ///< all but out are gradients
};

Results oracle(const Problem& p) {
  const std::int64_t n = p.spec.group_width;
  Results r;
  r.out.resize(p.y.size()), r.y.resize(p.y.size()), r.weight.resize(p.weight.size());
  r.projected.assign(p.projected.size(), 7.0);
  for (std::int64_t row = 0; row < p.spec.rows; ++row)
    for (std::int64_t c0 = 0; c0 < p.width(); c0 += n) {
      const auto gate = [&](std::int64_t c) { return p.projected[p.gate_at(row, c)]; };
      const auto sigmoid = [&](std::int64_t c) { return 1 / (1 + std::exp(-gate(c))); };
      const auto v = [&](std::int64_t c) { return p.y[row * p.width() + c] * gate(c) * sigmoid(c); };
      double squares = 0, dot = 0;
      for (std::int64_t c = c0; c < c0 + n; ++c) {
        squares += v(c) * v(c);
        dot += p.dout[row * p.width() + c] * p.weight[c] * v(c);
      }
      const double mean = squares / static_cast<double>(n) + p.spec.eps, scale = 1 / std::sqrt(mean);
      for (std::int64_t c = c0; c < c0 + n; ++c) {
        const std::int64_t i = row * p.width() + c;
        r.out[i] = p.weight[c] * v(c) * scale;
        r.weight[c] += p.dout[i] * v(c) * scale;
        const double dv = scale * (p.dout[i] * p.weight[c] - v(c) * dot / mean / static_cast<double>(n));
        r.y[i] = dv * gate(c) * sigmoid(c);
        r.projected[p.gate_at(row, c)] = dv * p.y[i] * sigmoid(c) * (1 + gate(c) * (1 - sigmoid(c)));
      }
    }
  return r;
}

double bound(DType dtype) {
  return dtype == DType::kF64 ? 1e-12 : dtype == DType::kF32 ? 1e-5 : 4 * unit(DType::kBF16);
}

std::string text_of(const Problem& p) {
  return std::string(dtype_name(p.spec.dtype)) + " with weights in " +
         std::string(dtype_name(p.spec.parameter)) + ", rows " + std::to_string(p.spec.rows) + " groups " +
         std::to_string(p.spec.groups) + " of " + std::to_string(p.spec.group_width);
}

class GatedNormFamily : public OnEveryChoice {
 protected:
  GatedNorms& family() { return device_.family<GatedNorms>(); }

  /// In place: out is y, and dy is dout. Other columns of the gradient than gates have 7 before, the weight's
  /// gradient 0.5.
  Results run(const Problem& p, bool in_place = false, bool accumulate = false) {
    const auto kernel = family().prepare(p.spec);
    const Shape shape{p.spec.rows, p.width()}, wide{p.spec.rows, p.spec.columns};
    const Owned y(device_, shape, p.spec.dtype, p.y), projected(device_, wide, p.spec.dtype, p.projected),
        weight(device_, {p.width()}, p.spec.parameter, p.weight), out(device_, shape, p.spec.dtype),
        dout(device_, shape, p.spec.dtype, p.dout), dy(device_, shape, p.spec.dtype),
        dprojected(device_, wide, p.spec.dtype, std::vector<double>(p.projected.size(), 7.0)),
        dweight(device_, {p.width()}, p.spec.parameter, std::vector<double>(p.weight.size(), 0.5)),
        room(device_, Shape{static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
    kernel->backward(y, projected, weight, dout, in_place ? dout : dy, dprojected, dweight, accumulate, room);
    kernel->forward(y, projected, weight, in_place ? y : out);
    return {(in_place ? y : out).values(), (in_place ? dout : dy).values(), dprojected.values(),
            dweight.values()};
  }
  std::vector<double> forward(const Problem& p) {
    const Shape shape{p.spec.rows, p.width()};
    const Owned y(device_, shape, p.spec.dtype, p.y),
        projected(device_, {p.spec.rows, p.spec.columns}, p.spec.dtype, p.projected),
        weight(device_, {p.width()}, p.spec.parameter, p.weight), out(device_, shape, p.spec.dtype);
    family().prepare(p.spec)->forward(y, projected, weight, out);
    return out.values();
  }
};

TEST_P(GatedNormFamily, N5_ValuesAndGradientsAreThoseOfTheFormula) {
  for (const DType dtype : kActivations)
    for (const bool narrow : {false, true})
      for (const Sizes& sizes : kSizes) {
        if (narrow && dtype == DType::kF64) continue;
        const DType parameter = narrow ? DType::kBF16 : arithmetic(dtype);
        const Problem p = make_problem(sizes, dtype, parameter);
        const Results expected = oracle(p), found = run(p);
        EXPECT_LE(relative_error(found.out, expected.out), bound(dtype)) << text_of(p);
        EXPECT_LE(relative_error(found.y, expected.y), bound(dtype)) << text_of(p);
        EXPECT_LE(relative_error(found.projected, expected.projected), bound(dtype)) << text_of(p);
        EXPECT_LE(relative_error(found.weight, expected.weight), bound(parameter)) << text_of(p);
        for (std::int64_t row = 0; row < sizes.rows; ++row)
          EXPECT_EQ(found.projected[row * p.spec.columns], 7.0) << "no gate: " << text_of(p);
        const Results again = run(p, true);
        EXPECT_EQ(again.out, found.out) << "in place, " << text_of(p);
        EXPECT_EQ(again.y, found.y) << "in place, " << text_of(p);
        EXPECT_EQ(again.projected, found.projected) << "in place, " << text_of(p);
        EXPECT_EQ(again.weight, found.weight) << "in place, " << text_of(p);
      }
}

TEST_P(GatedNormFamily, N5_GradientsAreCentralDifferences) {
  for (const int seed : {1, 2}) {
    const Problem p = make_problem({3, 2, 5}, DType::kF64, DType::kF64, seed);
    const Results found = run(p);
    constexpr double kStep = 1e-5;
    const auto objective = [&](const Problem& q) {
      const std::vector<double> out = forward(q);
      return std::inner_product(out.begin(), out.end(), p.dout.begin(), 0.0);
    };
    const auto check = [&](const char* name, std::vector<double> Problem::*input,
                           const std::vector<double>& gradient) {
      std::vector<double> differences;
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        Problem up = p, down = p;
        (up.*input)[i] += kStep, (down.*input)[i] -= kStep;
        differences.push_back((objective(up) - objective(down)) / (2 * kStep));
      }
      EXPECT_LE(relative_error(gradient, differences), 1e-8) << name << ", seed " << seed;
    };
    std::vector<double> gates = found.projected;
    for (double& value : gates)
      if (value == 7.0) value = 0;  // nothing depends on the other columns
    check("y", &Problem::y, found.y);
    check("gates", &Problem::projected, gates);
    check("weight", &Problem::weight, found.weight);
  }
}

TEST_P(GatedNormFamily, AddsToTheGradientOfItsWeightOnRequest) {
  const Problem p = make_problem({40, 2, 9}, DType::kF64, DType::kF64, 3);
  const Results plain = run(p), added = run(p, false, true);
  for (std::size_t i = 0; i < plain.weight.size(); ++i)
    EXPECT_NEAR(added.weight[i], plain.weight[i] + 0.5, 1e-12);
  EXPECT_EQ(added.y, plain.y);
  EXPECT_EQ(added.projected, plain.projected);
}

TEST_P(GatedNormFamily, GivesTheSameBitsWithAnyNumberOfThreads) {
  for (const DType dtype : kActivations) {
    const Problem p = make_problem({200, 3, 40}, dtype, arithmetic(dtype), 4);
    const Results one = run(p);
    for (const int threads : {2, 3}) {
      set_parallel_threads(threads);
      const Results found = run(p);
      for (const auto member : {&Results::out, &Results::y, &Results::projected, &Results::weight})
        EXPECT_EQ(found.*member, one.*member) << threads << " threads, " << text_of(p);
    }
    set_parallel_threads(1);
  }
}

// Closed gates leave eps alone under the root.
TEST_P(GatedNormFamily, ClosedGatesGiveZeros) {
  Problem p = make_problem({3, 2, 8}, DType::kF32, DType::kF32, 5);
  p.projected.assign(p.projected.size(), -1e4);
  const Results found = run(p);
  EXPECT_EQ(found.out, std::vector<double>(p.y.size(), 0.0));
  EXPECT_EQ(found.y, std::vector<double>(p.y.size(), 0.0));
  EXPECT_EQ(found.weight, std::vector<double>(p.weight.size(), 0.0));
}

TEST_P(GatedNormFamily, RefusesWhatItCannotDo) {
  const Problem p = make_problem({2, 2, 3}, DType::kF32, DType::kF32);
  const auto says = [&](auto change) {
    GatedNormSpec spec = p.spec;
    change(spec);
    return message_of([&] { family().prepare(spec); });
  };
  EXPECT_EQ(says([](GatedNormSpec&) {}), "");
  EXPECT_EQ(
      says([](GatedNormSpec& s) { s.groups = 0; }),
      device_says("gated norm needs groups and group_width of at least 1, and rows of at least 0, found 0, "
                  "3 and 2"));
  EXPECT_EQ(says([](GatedNormSpec& s) { s.eps = 0; }),
            device_says("gated norm needs eps above 0, found 0.000000"));
  EXPECT_EQ(says([](GatedNormSpec& s) { s.groups = 1; }),
            device_says("gated norm: gates: the runs have 6 columns together, expected 3"));
  EXPECT_EQ(says([](GatedNormSpec& s) {
              s.gates = {{5, 6}};
            }),
            device_says("gated norm: gates: the run of columns [5, 11) leaves a row of 10"));
  EXPECT_EQ(says([](GatedNormSpec& s) { s.parameter = DType::kI32; }),
            device_says("gated norm: parameters are i32, expected f32 or bf16 for values in f32"));
  EXPECT_THAT(says([](GatedNormSpec& s) { s.dtype = DType::kI8; }),
              ::testing::AllOf(::testing::HasSubstr(device_says("gated norm")), ::testing::HasSubstr("i8")));
  const auto kernel = family().prepare(p.spec);
  const Owned y(device_, {2, 6}, DType::kF32), projected(device_, {2, 10}, DType::kF32),
      weight(device_, {6}, DType::kF32), small(device_, {5}, DType::kF32);
  const auto forward = [&](const TensorView& a, const TensorView& b, const TensorView& c,
                           const TensorView& d) { return message_of([&] { kernel->forward(a, b, c, d); }); };
  const auto part = [](const char* name) {
    return ::testing::HasSubstr(device_says(std::string("gated norm: ") + name + " is"));
  };
  EXPECT_THAT(forward(small, projected, weight, y), part("y"));
  EXPECT_THAT(forward(y, small, weight, y), part("projected"));
  EXPECT_THAT(forward(y, projected, small, y), part("weight"));
  EXPECT_THAT(forward(y, projected, weight, small), part("out"));
}

INSTANTIATE_TEST_SUITE_P(Device, GatedNormFamily, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::gated_norm_test
