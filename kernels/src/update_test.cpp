// Optimizer updates: equal bits in every set, and the formulas against a step worked in double from the
// definitions.
#include "testing.hpp"

namespace tenon::kernels::update_test {
namespace {

using namespace testing;

struct State {
  std::vector<float> p, first, second;
  std::vector<Bf16> copy;
};

TEST(Adamw, EverySetGivesTheSameBits) {
  for (const std::size_t n : {1, 16, 37, 200}) {
    const auto run = [&](const KernelTable& set) {
      State s{random_values<float>(n, 1), std::vector<float>(n), std::vector<float>(n), std::vector<Bf16>(n)};
      for (int step = 1; step <= 3; ++step) {
        const auto grad = random_values<float>(n, 10 + static_cast<unsigned>(step));
        const auto c = adamw_coefficients<float>(1e-2, 0.9, 0.95, 1e-8, 0.1, step, 0.5);
        set.update.adamw(c, grad.data(), s.p.data(), s.first.data(), s.second.data(), s.copy.data(),
                         static_cast<std::int64_t>(n));
      }
      return s;
    };
    const State expected = run(reference_kernels());
    for (const KernelTable* set : all_sets()) {
      const State s = run(*set);
      EXPECT_TRUE(same_bits(s.p, expected.p) && same_bits(s.first, expected.first) &&
                  same_bits(s.second, expected.second))
          << set->name;
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(s.copy[i].bits, to_bf16(s.p[i]).bits) << set->name;
    }
  }
}

// Algorithm 2 of the paper, moments as plain weighted sums, bias corrections by explicit powers.
TEST(Adamw, FollowsThePaper) {
  const double lr = 3e-2, beta1 = 0.9, beta2 = 0.99, eps = 1e-6, decay = 0.2;
  double p = 0.7, m = 0, v = 0, q = 0.7, qm = 0, qv = 0;
  for (int t = 1; t <= 20; ++t) {
    const double g = std::sin(t) * 0.3;
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    const double m_hat = m / (1 - std::pow(beta1, t)), v_hat = v / (1 - std::pow(beta2, t));
    p = p - lr * (m_hat / (std::sqrt(v_hat) + eps) + decay * p);
    const auto c = adamw_coefficients<double>(lr, beta1, beta2, eps, decay, t, 2.0);
    const double half = g / 2;
    reference_double_kernels().update.adamw(c, &half, &q, &qm, &qv, nullptr, 1);
    ASSERT_NEAR(q, p, 1e-13) << t;
  }
}

struct SgdCase {
  float momentum, dampening, decay;
  bool nesterov;
};
constexpr SgdCase kSgd[] = {{0, 0, 0, false},
                            {0, 0, 0.1f, false},
                            {0.9f, 0, 0.1f, false},
                            {0.9f, 0.2f, 0, false},
                            {0.9f, 0, 0.05f, true}};

TEST(Sgd, EverySetGivesTheSameBits) {
  constexpr std::size_t n = 53;
  for (const SgdCase& c : kSgd) {
    const auto run = [&](const KernelTable& set) {
      State s{random_values<float>(n, 1), std::vector<float>(n, 9.0f), {}, std::vector<Bf16>(n)};
      for (int step = 0; step < 3; ++step) {
        const auto grad = random_values<float>(n, 20 + static_cast<unsigned>(step));
        set.update.sgd({1.5f, 0.1f, c.decay, c.momentum, 1 - c.dampening, c.nesterov, step == 0}, grad.data(),
                       s.p.data(), c.momentum == 0 ? nullptr : s.first.data(), s.copy.data(), n);
      }
      return s;
    };
    const State expected = run(reference_kernels());
    for (const KernelTable* set : all_sets()) {
      const State s = run(*set);
      EXPECT_TRUE(same_bits(s.p, expected.p) && same_bits(s.first, expected.first)) << set->name;
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(s.copy[i].bits, to_bf16(s.p[i]).bits) << set->name;
    }
  }
}

// Without decay and dampening, momentum from rest gives p_t = p_0 - lr sum_s g (1 - mu^(t - s + 1)) / (1 -
// mu) for a constant g; Nesterov is one momentum step ahead.
TEST(Sgd, ConstantGradientHasAClosedForm) {
  const double lr = 0.1, mu = 0.8, g = 0.5;
  for (const bool nesterov : {false, true}) {
    double p = 1.0, buffer = 0.0, expected = 1.0;
    for (int t = 1; t <= 10; ++t) {
      reference_double_kernels().update.sgd({1.0, lr, 0.0, mu, 1.0, nesterov, t == 1}, &g, &p, &buffer,
                                            nullptr, 1);
      const double velocity = g * (1 - std::pow(mu, t)) / (1 - mu);
      expected -= lr * (nesterov ? g + mu * velocity : velocity);
      ASSERT_NEAR(p, expected, 1e-13) << t;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::update_test
