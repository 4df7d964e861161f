// Rotary positions against complex numbers: pair i of position t is multiplied by exp(j t base^(-2 i / d)),
// and its gradient by the conjugate.
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <cmath>
#include <complex>
#include <cstdio>

int main() {
  constexpr int kBatch = 2, kTime = 5, kHeads = 2, kPairs = 3, kWidth = kHeads * 2 * kPairs;
  constexpr double kBase = 100;
  tenon::testing::Bench bench("cpu", "auto", 2);
  const auto precision = bench.make_component<tenon::Precision>("fp64", "");
  std::vector<double> x(kBatch * kTime * kWidth), dy(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::sin(1.0 + static_cast<double>(i));
    dy[i] = std::cos(2.0 * static_cast<double>(i));
  }
  const tenon::Shape shape{kBatch, kTime, kWidth};
  tenon::testing::LayerHarness harness(
      {.layers = bench.layers.get(), .device = &*bench.device, .host = &bench.host, .precision = &*precision},
      {{"y", "rotary_pairs", {"x"}, {{"heads", std::int64_t{kHeads}}, {"base", kBase}}}}, {"y"},
      {{"x", shape, tenon::DType::kF64, x}, {"d_y", shape, tenon::DType::kF64, dy}});
  harness.forward();
  harness.backward(1, true);
  const std::vector<double> y = harness.value("y"), dx = harness.input_gradient("x");

  double worst = 0;
  for (int row = 0; row < kBatch * kTime * kHeads; ++row) {
    for (int i = 0; i < kPairs; ++i) {
      const auto pair = [&](const std::vector<double>& values) {
        const auto low = static_cast<std::size_t>(row * 2 * kPairs + i);
        return std::complex<double>(values[low], values[low + kPairs]);
      };
      const std::complex<double> turn =
          std::polar(1.0, row / kHeads % kTime * std::pow(kBase, -2.0 * i / (2 * kPairs)));
      worst = std::max(
          {worst, std::abs(pair(y) - pair(x) * turn), std::abs(pair(dx) - pair(dy) * std::conj(turn))});
    }
  }
  if (!(worst < 1e-14)) {  // a few roundings of numbers near 1
    std::printf("the rotation differs from that of complex numbers by %g\n", worst);
    return 1;
  }
}
