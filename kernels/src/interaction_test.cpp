// Pairwise dot products: every set against the double reference within a derived bound, and any split of the
// samples. The tests of the device check the reference against plain loops over coordinates.
#include "testing.hpp"

namespace tenon::kernels::interaction_test {
namespace {

using namespace testing;

template <class S>
struct InteractionTest : ::testing::Test {};
TYPED_TEST_SUITE(InteractionTest, Storages);

struct Size {
  std::int64_t samples, vectors, width;
};
// One vector alone; partial groups of four and tiles of sixteen; more vectors and longer ones than a tile.
constexpr Size kSizes[] = {{3, 1, 5},   {3, 2, 1},   {4, 5, 16},  {3, 27, 16},
                           {2, 17, 20}, {1, 33, 64}, {1, 70, 300}};

template <class S>
struct Problem {
  Size size;
  bool itself;
  std::vector<S> z0, z, dy;

  std::int64_t columns() const {
    return size.width + (itself ? size.vectors * (size.vectors + 1) : size.vectors * (size.vectors - 1)) / 2;
  }
};

template <class S>
Problem<S> problem(Size size, bool itself) {
  Problem<S> p{size, itself, {}, {}, {}};
  p.z0 = random_values<S>(static_cast<std::size_t>(size.samples * size.width), 1);
  p.z = random_values<S>(static_cast<std::size_t>(size.samples * (size.vectors - 1) * size.width), 2);
  p.dy = random_values<S>(static_cast<std::size_t>(size.samples * p.columns()), 3);
  return p;
}

Problem<double> widened(const auto& p) {
  return {p.size, p.itself, to_double(p.z0), to_double(p.z), to_double(p.dy)};
}

template <class S>
struct Results {
  std::vector<S> y, dz0, dz;
};

/// Runs the samples in pieces of `step`; gradients begin as the vectors.
template <class S>
Results<S> run(const InteractionOps<S>& ops, const Problem<S>& p, std::int64_t step, bool accumulate) {
  Results<S> r{p.dy, p.z0, p.z};
  const InteractionArgs<S> args{p.size.vectors, p.size.width, p.columns(), p.itself,
                                p.z0.data(),    p.z.data(),   r.y.data(),  p.dy.data(),
                                r.dz0.data(),   r.dz.data(),  accumulate,  accumulate};
  for (std::int64_t i = 0; i < p.size.samples; i += step)
    ops.forward(args, i, std::min(p.size.samples, i + step));
  for (std::int64_t i = 0; i < p.size.samples; i += step)
    ops.backward(args, i, std::min(p.size.samples, i + step));
  return r;
}

/// The same sums over magnitudes, to which roundings are relative.
Problem<double> magnitudes(Problem<double> p) {
  for (auto* values : {&p.z0, &p.z, &p.dy})
    for (double& value : *values) value = std::abs(value);
  return p;
}

TYPED_TEST(InteractionTest, EverySetStaysWithinItsBound) {
  using S = TypeParam;
  for (const Size size : kSizes)
    for (const bool itself : {false, true})
      for (const bool accumulate : {false, true}) {
        const auto p = problem<S>(size, itself);
        const auto& exact_ops = reference_double_kernels().f64.interaction;
        const auto exact = run(exact_ops, widened(p), size.samples, accumulate),
                   large = run(exact_ops, magnitudes(widened(p)), size.samples, accumulate);
        // A chain of n products and sums errs by at most n + 1 roundings of its magnitude; storing rounds
        // once.
        const auto bound = [&](const std::vector<double>& magnitude, std::int64_t terms) {
          return [&magnitude, terms](std::size_t i) {
            const double chain = static_cast<double>(terms + 3) * kFloatRoundoff * magnitude[i];
            return chain + roundoff<S>() * (magnitude[i] + chain);
          };
        };
        SameAcrossFusingSets<S> same_y, same_dz;
        for (const KernelTable* set : all_sets()) {
          const auto r = run(ops<S>(*set).interaction, p, size.samples, accumulate);
          const std::string where = std::string(set->name) + ", vectors " + std::to_string(size.vectors) +
                                    ", width " + std::to_string(size.width);
          EXPECT_TRUE(within(r.y, exact.y, bound(large.y, size.width))) << where;
          EXPECT_TRUE(within(r.dz0, exact.dz0, bound(large.dz0, size.vectors))) << where;
          EXPECT_TRUE(within(r.dz, exact.dz, bound(large.dz, size.vectors))) << where;
          same_y.see(*set, r.y);
          same_dz.see(*set, r.dz);
          const auto cut = run(ops<S>(*set).interaction, p, 1, accumulate);
          EXPECT_TRUE(same_bits(cut.y, r.y) && same_bits(cut.dz0, r.dz0) && same_bits(cut.dz, r.dz))
              << where << ": another split of the samples gave other bits";
        }
      }
}

TYPED_TEST(InteractionTest, WritesTheGradientsThatAreAskedForAlone) {
  using S = TypeParam;
  const auto p = problem<S>({3, 27, 16}, false);
  for (const KernelTable* set : all_sets()) {
    const auto whole = run(ops<S>(*set).interaction, p, 3, false);
    for (const bool first : {false, true}) {
      std::vector<S> out = first ? p.z0 : p.z;
      const InteractionArgs<S> args{27,
                                    16,
                                    p.columns(),
                                    false,
                                    p.z0.data(),
                                    p.z.data(),
                                    nullptr,
                                    p.dy.data(),
                                    first ? out.data() : nullptr,
                                    first ? nullptr : out.data(),
                                    false,
                                    false};
      ops<S>(*set).interaction.backward(args, 0, 3);
      EXPECT_TRUE(same_bits(out, first ? whole.dz0 : whole.dz)) << set->name;
    }
  }
}

}  // namespace
}  // namespace tenon::kernels::interaction_test
