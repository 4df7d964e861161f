// Rules as loops over host memory, against steps worked in double from the definitions, and what is refused.
// Devices are compared with these loops in tests/device.
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::update_rule_test {
namespace {

TensorView view(std::vector<double>& values) {
  return {values.data(), Shape{static_cast<std::int64_t>(values.size())}, DType::kF64, MemorySpace::kHost};
}

// Algorithm 2 of the paper, moments as plain weighted sums, bias corrections by explicit powers.
TEST(AdamWRule, FollowsThePaper) {
  const double lr = 3e-2, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = 0.2;
  double p = 0.7, m = 0, v = 0;
  std::vector<double> q{0.7}, half{0}, qm{0}, qv{0};
  for (int t = 1; t <= 20; ++t) {
    const double g = std::sin(t) * 0.3;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    p = p - lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * p);
    half[0] = g / 2;
    update_here(AdamWRule({.lr = lr,
                           .beta1 = beta1,
                           .beta2 = beta2,
                           .eps = eps,
                           .decay = decay,
                           .count = t,
                           .gradient_scale = 2}),
                std::array{view(q), view(half), view(qm), view(qv)});
    ASSERT_NEAR(q[0], p, 1e-13) << t;
  }
}

// Without decay and dampening, momentum from rest gives p_t = p_0 - lr sum_s g (1 - mu^(t - s + 1)) / (1 -
// mu) for a constant g; Nesterov is one momentum step ahead.
TEST(SgdRule, HasAClosedFormForAConstantGradient) {
  const double lr = 0.1, mu = 0.8, g = 0.5;
  for (const bool nesterov : {false, true}) {
    std::vector<double> p{1}, gradient{g}, buffer{9};
    double expected = 1.0;
    for (int t = 1; t <= 10; ++t) {
      with_sgd_rule({.lr = lr, .momentum = mu, .nesterov = nesterov, .first = t == 1}, [&](const auto& rule) {
        update_here(rule, std::array{view(p), view(gradient), view(buffer)});
      });
      const double velocity = g * (1 - std::pow(mu, t)) / (1 - mu);
      expected -= lr * (nesterov ? g + mu * velocity : velocity);
      ASSERT_NEAR(p[0], expected, 1e-13) << t;
    }
  }
}

TEST(UpdateHere, SumsDoNotDependOnTheNumberOfThreads) {
  std::vector<double> w(30001), g(w.size(), 0.5), m(w.size()), v(w.size());
  for (std::size_t i = 0; i < w.size(); ++i) w[i] = std::sin(static_cast<double>(i));
  const LambMomentsRule rule{.beta1 = 1, .beta2 = 1, .direction = {1, 1, 1, 1}};  // the moments stay
  std::array<double, 2> first{};
  for (const int threads : {1, 2, 3}) {
    set_parallel_threads(threads);
    std::array<double, 2> sums{-1, -1};
    update_here(rule, std::array{view(w), view(g), view(m), view(v)}, sums);
    if (threads == 1) first = sums;
    EXPECT_EQ(sums, first) << threads;
    EXPECT_EQ(sums[0], sums[1]) << "the direction is the weights'";
  }
  double exact = 0;
  for (const double x : w) exact += x * x;
  EXPECT_NEAR(first[0], exact, 2e-12 * exact);
}

TEST(UpdateHere, RefusesWhatDoesNotFit) {
  const auto message = [](std::vector<TensorView> tensors) -> std::string {
    try {
      update_here(SgdRule<false>({.lr = 1}), tensors);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  std::vector<double> four(4), three(3);
  TensorView narrow = view(four);
  narrow.dtype = DType::kBF16;
  EXPECT_THAT(message({view(four)}), ::testing::HasSubstr("an update of 2 tensors was given 1"));
  EXPECT_THAT(message({view(four), view(three)}), ::testing::HasSubstr("3 of f64 beside 4 of f64"));
  EXPECT_THAT(message({view(four), narrow}), ::testing::HasSubstr("4 of bf16 beside 4 of f64"));
  EXPECT_THAT(message({narrow, narrow}), ::testing::HasSubstr("f32 and f64, found bf16"));
}

}  // namespace
}  // namespace tenon::update_rule_test
