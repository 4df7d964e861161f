// AdEMAMix against its closed form: under a constant gradient c the corrected averages of Adam are c and c^2,
// and the slow one is c (1 - product of its decay rates).
#include <tenon/testing/components.hpp>
#include <tenon/testing/optimizer_harness.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

int main() {
  constexpr double kGradient = 0.25, kRate = 0.01, kAlpha = 3, kFast = 0.9, kSlow = 0.99, kWarmup = 6;
  tenon::testing::Bench bench("cpu", "auto", 1);
  auto optimizer = bench.make_component<tenon::Optimizer>(
      "ademamix", "betas = [0.9, 0.95, 0.99]\nalpha = 3.0\nwarmup = 6\neps = 0.0");
  const double start[] = {1.0}, gradient[] = {2 * kGradient};
  tenon::testing::OptimizerHarness harness(*bench.device, *optimizer, tenon::DType::kF64, start);
  double expected = 1, product = 1;
  for (int t = 1; t <= 12; ++t) {
    harness.step(gradient, kRate, t, 0.5, false);
    // The half-life h of a decay rate b is ln 0.5 / ln b: it grows linearly, and so does alpha.
    const double done = std::min(t / kWarmup, 1.0);
    const double half_life =
        (1 - done) * std::log(0.5) / std::log(kFast) + done * std::log(0.5) / std::log(kSlow);
    product *= std::exp(std::log(0.5) / half_life);
    expected -= kRate * (1 + kAlpha * done * (1 - product));
    const double found = harness.weights()[0];
    if (!(std::abs(found - expected) < 1e-13)) {  // a dozen roundings of numbers near 1
      std::printf("after update %d: expected %.17g, found %.17g\n", t, expected, found);
      return 1;
    }
  }
}
