// Products per mode on the device: shapes, threads and refusals. The sums themselves are tested with the
// kernels.
#include "device_test.hpp"

#include <tenon/ops/spectral.hpp>

namespace tenon::testing::batched_complex_gemms_test {
namespace {

class Products : public OnEveryChoice {
 protected:
  struct Results {
    std::vector<double> y, dx, dw;
    bool operator==(const Results&) const = default;
  };

  Results run(const BatchedComplexGemmSpec& spec) {
    const auto product = device_.family<BatchedComplexGemms>().prepare(spec);
    const DType real = spec.dtype == DType::kC128 ? DType::kF64 : DType::kF32;
    const Shape inputs{spec.batch, spec.in, spec.modes}, outputs{spec.batch, spec.out, spec.modes},
        weights{spec.in, spec.out, spec.modes, 2};
    const Owned scratch(device_, Shape{static_cast<std::int64_t>(product->scratch_bytes())}, DType::kU8),
        x(device_, inputs, spec.dtype, normals(2 * inputs.elements(), "x")),
        w(device_, weights, real, normals(weights.elements(), "w")),
        dy(device_, outputs, spec.dtype, normals(2 * outputs.elements(), "dy")),
        y(device_, outputs, spec.dtype), dx(device_, inputs, spec.dtype), dw(device_, weights, real);
    const auto all = [&] {
      product->forward(x, w, y, scratch);
      product->backward_input(w, dy, dx, scratch);
      product->backward_weight(x, dy, dw, false, scratch);
      product->backward_weight(x, dy, dw, true, scratch);
    };
    expect_no_allocations(device_, all);
    return {y.values(), dx.values(), dw.values()};
  }
};

// <y, dy> = <x, dx> = <w, dw> for a map that is linear in x and in w: one number ties all three together.
TEST_P(Products, P2_AreAdjointInBothArguments) {
  for (const auto& [dtype, bound] : {std::pair{DType::kC64, 1e-5}, std::pair{DType::kC128, 1e-13}}) {
    const BatchedComplexGemmSpec spec{.batch = 3, .in = 4, .out = 5, .modes = 37, .dtype = dtype};
    const Results r = run(spec);
    const auto dot = [](const std::vector<double>& a, const std::vector<double>& b) {
      double sum = 0;
      for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
      return sum;
    };
    const double expected = dot(r.y, normals(static_cast<std::int64_t>(r.y.size()), "dy"));
    const double scale = std::sqrt(dot(r.y, r.y) * static_cast<double>(r.y.size()));
    EXPECT_NEAR(dot(r.dx, normals(static_cast<std::int64_t>(r.dx.size()), "x")), expected, bound * scale);
    // Added up twice.
    EXPECT_NEAR(dot(r.dw, normals(static_cast<std::int64_t>(r.dw.size()), "w")), 2 * expected, bound * scale);
  }
}

TEST_P(Products, AreTheSameForAnyNumberOfThreads) {
  const BatchedComplexGemmSpec spec{.batch = 2, .in = 3, .out = 4, .modes = 100};
  set_parallel_threads(1);
  const Results one = run(spec);
  for (const int threads : {2, 3, 7}) {
    set_parallel_threads(threads);
    EXPECT_TRUE(run(spec) == one) << threads;
  }
}

TEST_P(Products, RefuseWhatDoesNotFit) {
  BatchedComplexGemms& family = device_.family<BatchedComplexGemms>();
  EXPECT_THROW(family.prepare({.batch = 1, .in = 1, .out = 1, .modes = 1, .dtype = DType::kF32}), Error);
  const auto product = family.prepare({.batch = 1, .in = 2, .out = 3, .modes = 4});
  const Owned scratch(device_, Shape{static_cast<std::int64_t>(product->scratch_bytes()) + 1}, DType::kU8),
      x(device_, Shape{1, 2, 4}, DType::kC64), w(device_, Shape{2, 3, 4, 2}, DType::kF32),
      y(device_, Shape{1, 3, 4}, DType::kC64), reals(device_, Shape{1, 3, 4}, DType::kF32);
  product->forward(x, w, y, scratch);
  EXPECT_THROW(product->forward(y, w, y, scratch), Error);
  EXPECT_THROW(product->forward(x, w, reals, scratch), Error);
  EXPECT_THROW(product->forward(x, x, y, scratch), Error) << "weights are pairs of reals";
}

INSTANTIATE_TEST_SUITE_P(Device, Products, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::batched_complex_gemms_test
