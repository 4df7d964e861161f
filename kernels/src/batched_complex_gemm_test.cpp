// Complex products per mode: every set against the double reference within a derived bound, the double
// reference against std::complex, and any split of the modes.
#include "testing.hpp"

#include <complex>

namespace tenon::kernels::batched_complex_gemm_test {
namespace {

using namespace testing;

struct Size {
  std::int64_t batch, in, out, modes;
};
// One of everything; partial groups of modes and blocks of rows and columns; whole ones.
constexpr Size kSizes[] = {{1, 1, 1, 1}, {2, 3, 4, 16}, {3, 5, 7, 21}, {5, 2, 3, 49}, {4, 8, 8, 32}};

template <class T>
struct Problem {
  Size size;
  std::vector<T> x, w, dy;
};

template <class T>
Problem<T> problem(const Size& size) {
  const auto random = [](std::int64_t elements, unsigned seed) {
    return random_values<T>(static_cast<std::size_t>(2 * elements), seed);
  };
  return {size, random(size.batch * size.in * size.modes, 1), random(size.in * size.out * size.modes, 2),
          random(size.batch * size.out * size.modes, 3)};
}

template <class T>
struct Results {
  std::vector<T> y, dx, dw;
};

/// Runs the groups of modes in pieces of `step`; dw begins as w.
template <class T>
Results<T> run(const BatchedComplexGemmOps<T>& ops, const Problem<T>& p, std::int64_t step, bool accumulate) {
  Results<T> r{p.dy, p.x, p.w};
  BatchedComplexGemmArgs<T> args{.batch = p.size.batch,
                                 .in = p.size.in,
                                 .out = p.size.out,
                                 .modes = p.size.modes,
                                 .x = p.x.data(),
                                 .w = p.w.data(),
                                 .y = r.y.data(),
                                 .dy = p.dy.data(),
                                 .dx = r.dx.data(),
                                 .dw = r.dw.data(),
                                 .accumulate_dw = accumulate};
  std::vector<T> workspace(ops.workspace(args), static_cast<T>(NAN));
  args.workspace = workspace.data();
  const std::int64_t groups = (p.size.modes + kModeGroup - 1) / kModeGroup;
  for (std::int64_t g = 0; g < groups; g += step) {
    const std::int64_t end = std::min(groups, g + step);
    ops.forward(args, g, end);
    ops.backward_input(args, g, end);
    ops.backward_weight(args, g, end);
  }
  return r;
}

Problem<double> widened(const Problem<float>& p) {
  return {p.size, to_double(p.x), to_double(p.w), to_double(p.dy)};
}

/// The sums by std::complex, straight from the contract.
Results<double> by_hand(const Problem<double>& p, bool accumulate) {
  const auto [batch, in, out, modes] = p.size;
  const auto at = [modes = modes](const std::vector<double>& v, std::int64_t columns, std::int64_t i,
                                  std::int64_t j, std::int64_t m) {
    const std::size_t index = 2 * ((i * columns + j) * modes + m);
    return std::complex<double>(v[index], v[index + 1]);
  };
  Results<double> r{p.dy, p.x, p.w};
  const auto put = [modes = modes](std::vector<double>& v, std::int64_t columns, std::int64_t i,
                                   std::int64_t j, std::int64_t m, std::complex<double> value) {
    const std::size_t index = 2 * ((i * columns + j) * modes + m);
    v[index] = value.real(), v[index + 1] = value.imag();
  };
  for (std::int64_t m = 0; m < modes; ++m) {
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t o = 0; o < out; ++o) {
        std::complex<double> sum = 0;
        for (std::int64_t i = 0; i < in; ++i) sum += at(p.x, in, b, i, m) * at(p.w, out, i, o, m);
        put(r.y, out, b, o, m, sum);
      }
    for (std::int64_t b = 0; b < batch; ++b)
      for (std::int64_t i = 0; i < in; ++i) {
        std::complex<double> sum = 0;
        for (std::int64_t o = 0; o < out; ++o)
          sum += at(p.dy, out, b, o, m) * std::conj(at(p.w, out, i, o, m));
        put(r.dx, in, b, i, m, sum);
      }
    for (std::int64_t i = 0; i < in; ++i)
      for (std::int64_t o = 0; o < out; ++o) {
        std::complex<double> sum = accumulate ? at(p.w, out, i, o, m) : 0;
        for (std::int64_t b = 0; b < batch; ++b)
          sum += std::conj(at(p.x, in, b, i, m)) * at(p.dy, out, b, o, m);
        put(r.dw, out, i, o, m, sum);
      }
  }
  return r;
}

TEST(BatchedComplexGemmTest, TheReferenceIsTheFormula) {
  for (const Size& size : kSizes)
    for (const bool accumulate : {false, true}) {
      const auto p = problem<double>(size);
      const auto found = run(reference_double_kernels().modes, p, 100, accumulate),
                 expected = by_hand(p, accumulate);
      const auto bound = [](std::size_t) { return 1e-14; };  // values of order 1, at most ten terms
      EXPECT_TRUE(within(found.y, expected.y, bound));
      EXPECT_TRUE(within(found.dx, expected.dx, bound));
      EXPECT_TRUE(within(found.dw, expected.dw, bound));
    }
}

TEST(BatchedComplexGemmTest, EverySetStaysWithinItsBound) {
  for (const Size& size : kSizes)
    for (const bool accumulate : {false, true}) {
      const auto p = problem<float>(size);
      const auto exact = run(reference_double_kernels().modes, widened(p), 100, accumulate);
      // A part is a chain of two products a term, each at most 1, and one more sum where it accumulates.
      const auto bound = [](std::int64_t terms) {
        const double n = static_cast<double>(2 * terms + 2);
        return [n](std::size_t) { return (n + 1) * n * kFloatRoundoff; };
      };
      SameAcrossFusingSets<float> same_y, same_dx, same_dw;
      for (const KernelTable* set : all_sets()) {
        const auto r = run(set->modes, p, 100, accumulate);
        const std::string where = std::string(set->name) + ", modes " + std::to_string(size.modes);
        EXPECT_TRUE(within(r.y, exact.y, bound(size.in))) << where;
        EXPECT_TRUE(within(r.dx, exact.dx, bound(size.out))) << where;
        EXPECT_TRUE(within(r.dw, exact.dw, bound(size.batch))) << where;
        same_y.see(*set, r.y);
        same_dx.see(*set, r.dx);
        same_dw.see(*set, r.dw);
        const auto cut = run(set->modes, p, 1, accumulate);
        EXPECT_TRUE(same_bits(cut.y, r.y) && same_bits(cut.dx, r.dx) && same_bits(cut.dw, r.dw))
            << where << ": another split of the modes gave other bits";
      }
    }
}

TEST(BatchedComplexGemmTest, AModeDoesNotSeeTheOthers) {
  const auto p = problem<float>({3, 5, 7, 21});
  for (const KernelTable* set : all_sets()) {
    const auto whole = run(set->modes, p, 100, false);
    for (const std::int64_t m : {0, 7, 20}) {
      const auto alone = [&](const std::vector<float>& v) {
        std::vector<float> one;
        for (std::size_t i = 0; i < v.size() / 42; ++i)
          for (std::size_t part = 0; part < 2; ++part)
            one.push_back(v[i * 42 + 2 * static_cast<std::size_t>(m) + part]);
        return one;
      };
      const auto r = run(set->modes, {{3, 5, 7, 1}, alone(p.x), alone(p.w), alone(p.dy)}, 100, false);
      EXPECT_TRUE(same_bits(r.y, alone(whole.y)) && same_bits(r.dx, alone(whole.dx)) &&
                  same_bits(r.dw, alone(whole.dw)))
          << set->name << ", mode " << m;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::batched_complex_gemm_test
