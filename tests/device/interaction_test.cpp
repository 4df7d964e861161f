// Interactions of vectors against loops over coordinates: order of the pairs, gradients, and refusals.
#include "device_test.hpp"

#include <tenon/sdk/ops/interaction.hpp>

namespace tenon::testing::interaction_test {
namespace {

constexpr DType kActivations[] = {DType::kF32, DType::kF64, DType::kBF16};
constexpr Interaction kKinds[] = {Interaction::kDot, Interaction::kDotItself, Interaction::kConcatenate,
                                  Interaction::kSum};

class Interactions : public OnEveryChoice {
 protected:
  InteractionOps& ops() { return device_.family<InteractionOps>(); }
};

struct Problem {
  std::int64_t batch, count, width;
  std::vector<double> z0, z;

  /// Element k of vector i of a sample, vector 0 being z0.
  double vector(std::int64_t sample, std::int64_t i, std::int64_t k) const {
    return i == 0 ? z0[sample * width + k] : z[sample * count * width + (i - 1) * width + k];
  }
};

/// Calls visit(column, i, k, j) for every product of which a column of y is the sum: element k of vector i
/// times that of vector j, or times 1 where j is -1. Returns the number of columns.
template <typename Visit>
std::int64_t for_columns(Interaction kind, const Problem& p, Visit visit) {
  std::int64_t column = 0;
  for (std::int64_t k = 0; k < p.width; ++k, ++column) {
    visit(column, 0, k, -1);
    if (kind != Interaction::kSum) continue;
    for (std::int64_t t = 1; t <= p.count; ++t) visit(column, t, k, -1);
  }
  if (kind == Interaction::kConcatenate) {
    for (std::int64_t t = 1; t <= p.count; ++t)
      for (std::int64_t k = 0; k < p.width; ++k, ++column) visit(column, t, k, -1);
  }
  if (kind == Interaction::kDot || kind == Interaction::kDotItself) {
    for (std::int64_t i = 0; i <= p.count; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        if (i == j && kind == Interaction::kDot) continue;
        for (std::int64_t k = 0; k < p.width; ++k) visit(column, i, k, j);
        ++column;
      }
  }
  return column;
}

// Small integers: every sum is exact in float32 and float64; results beyond 256 are rounded in bfloat16,
// once.
TEST_P(Interactions, GiveTheSumsAndGradientsOfPlainLoops) {
  for (const Interaction kind : kKinds)
    for (const DType dtype : kActivations)
      for (const auto& [batch, count, width] :
           {std::tuple{3, 26, 16}, {2, 1, 3}, {5, 4, 7}, {1, 0, 4}, {300, 2, 1}}) {
        Problem p{batch, count, width, integers(batch * width, 7, "z0"),
                  integers(batch * count * width, 5, "z")};
        const std::int64_t columns = for_columns(kind, p, [](auto, auto, auto, auto) {});
        const auto dy = integers(batch * columns, 5, "dy");
        std::vector<double> y(batch * columns, 0.0), dz0(p.z0.size(), 0.0), dz(p.z.size(), 0.0);
        for (std::int64_t s = 0; s < batch; ++s) {
          const auto gradient = [&](std::int64_t i, std::int64_t k) -> double& {
            return i == 0 ? dz0[s * p.width + k] : dz[(s * p.count + i - 1) * p.width + k];
          };
          for_columns(kind, p, [&](std::int64_t column, std::int64_t i, std::int64_t k, std::int64_t j) {
            const std::size_t at = s * columns + column;
            const double other = j < 0 ? 1.0 : p.vector(s, j, k);
            y[at] += p.vector(s, i, k) * other;
            gradient(i, k) += dy[at] * other;
            if (j >= 0) gradient(j, k) += dy[at] * p.vector(s, i, k);
          });
        }
        const auto old0 = integers(batch * width, 9, "old0"), old = integers(batch * count * width, 9, "old");
        Owned z0_t(device_, {batch, width}, dtype, p.z0), z_t(device_, {batch, count, width}, dtype, p.z),
            y_t(device_, {batch, columns}, dtype), dy_t(device_, {batch, columns}, dtype, dy),
            dz0_t(device_, {batch, width}, dtype, old0), dz_t(device_, {batch, count, width}, dtype, old);
        const std::string where = "kind " + std::to_string(static_cast<int>(kind)) + " " +
                                  std::string(dtype_name(dtype)) + " count " + std::to_string(count);
        ops().interact(kind, z0_t, z_t, y_t);
        EXPECT_EQ(y_t.values(), rounded(y, dtype)) << where;
        ops().interact_backward(kind, z0_t, z_t, dy_t, dz0_t, false, dz_t, false);
        EXPECT_EQ(dz0_t.values(), rounded(dz0, dtype)) << where;
        EXPECT_EQ(dz_t.values(), rounded(dz, dtype)) << where;
        dz0_t.fill(old0);
        dz_t.fill(old);
        ops().interact_backward(kind, z0_t, z_t, dy_t, dz0_t, true, dz_t, true);
        for (std::size_t i = 0; i < dz0.size(); ++i) dz0[i] += old0[i];
        for (std::size_t i = 0; i < dz.size(); ++i) dz[i] += old[i];
        EXPECT_EQ(dz0_t.values(), rounded(dz0, dtype)) << where;
        EXPECT_EQ(dz_t.values(), rounded(dz, dtype)) << where;
        dz0_t.fill(old0);
        ops().interact_backward(kind, z0_t, z_t, dy_t, {}, false, dz_t, false);
        EXPECT_EQ(dz0_t.values(), rounded(old0, dtype)) << where << ": nobody asked for dz0";
      }
}

TEST_P(Interactions, DoNotDependOnTheNumberOfThreads) {
  const std::int64_t batch = 333, count = 26, width = 16, columns = width + 27 * 13;
  for (const DType dtype : kActivations) {
    Owned z0(device_, {batch, width}, dtype, numbers(batch * width, "z0", dtype)),
        z(device_, {batch, count, width}, dtype, numbers(batch * count * width, "z", dtype)),
        dy(device_, {batch, columns}, dtype, numbers(batch * columns, "dy", dtype)),
        y(device_, {batch, columns}, dtype), dz0(device_, {batch, width}, dtype),
        dz(device_, {batch, count, width}, dtype);
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      ops().interact(Interaction::kDot, z0, z, y);
      ops().interact_backward(Interaction::kDot, z0, z, dy, dz0, false, dz, false);
      const std::vector<std::vector<std::byte>> all = {y.bytes(), dz0.bytes(), dz.bytes()};
      if (threads == 1) first = all;
      EXPECT_EQ(all, first) << threads;
    }
  }
}

TEST_P(Interactions, RefuseShapesThatDoNotFit) {
  Owned z0(device_, {2, 3}, DType::kF32), z(device_, {2, 4, 3}, DType::kF32),
      wide(device_, {2, 4, 5}, DType::kF32), y(device_, {2, 13}, DType::kF32);
  const auto message = [&](Interaction kind, TensorView a, TensorView b, TensorView c) {
    try {
      ops().interact(kind, a, b, c);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message(Interaction::kDot, z0, z, y), "accepted");
  EXPECT_THAT(message(Interaction::kDot, z0, wide, y),
              ::testing::HasSubstr(device_says(
                  "interact: expected z0 [batch, width] and z [batch, count, width], found [2, 3] "
                  "and [2, 4, 5]")));
  EXPECT_THAT(message(Interaction::kDot, z, z0, y), ::testing::HasSubstr("expected z0"));
  EXPECT_THAT(message(Interaction::kDotItself, z0, z, y), ::testing::HasSubstr("y"));
}

INSTANTIATE_TEST_SUITE_P(Device, Interactions, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::interaction_test
