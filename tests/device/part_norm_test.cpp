// Normalisations whose elements are in two parts against the operators that process all of them at once.
#include "device_test.hpp"

#include <tenon/ops/norm.hpp>

#include <tuple>

namespace tenon::testing::part_norm_test {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16};

/// x [outer, sets, inner], of which one rank has the first indices of one dimension and another the rest.
struct PartCase {
  Shape x;
  int dim;
  std::int64_t first;
  bool per_set;  ///< gains are the sets'
  bool centred;
};
const PartCase kCases[] = {{{5, 3, 17}, 0, 2, true, true},    {{4, 6, 9}, 2, 8, true, true},
                           {{7, 5, 1}, 0, 7, true, true},     {{1, 11, 33}, 2, 16, false, true},
                           {{1, 67, 130}, 2, 0, false, true}, {{1, 13, 40}, 2, 11, false, false}};

/// Elements of the indices [begin, end) of `dim`.
std::vector<double> stretch(const std::vector<double>& all, const Shape& x, int dim, std::int64_t begin,
                            std::int64_t end) {
  std::vector<double> result;
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::int64_t stride = 1;
    for (int d = dim + 1; d < x.rank(); ++d) stride *= x[d];
    const std::int64_t at = static_cast<std::int64_t>(i) / stride % x[dim];
    if (at >= begin && at < end) result.push_back(all[i]);
  }
  return result;
}

/// The tensors of a case. x is centred at kCentre.
constexpr double kCentre = 2;
struct PartNumbers {
  PartNumbers(const PartCase& c, DType dtype)
      : x(numbers(c.x.elements(), "x", dtype)),
        dy(numbers(c.x.elements(), "dy", dtype)),
        dx_before(numbers(c.x.elements(), "dx", dtype)),
        gain(numbers(c.per_set ? c.x[1] : c.x[2], "gain", arithmetic(dtype))),
        bias(numbers(c.per_set ? c.x[1] : c.x[2], "bias", arithmetic(dtype))) {
    for (double& value : x) value += kCentre;
    x = rounded(x, dtype);
  }
  std::vector<double> x, dy, dx_before, gain, bias;
};

/// A rank that holds the indices [begin, end); without means it has no bias either.
struct PartRank {
  PartRank(Device& device, DType dtype, const PartCase& c, const PartNumbers& all, std::int64_t begin,
           std::int64_t end)
      : shape(part(c, begin, end)),
        x(device, shape, dtype, stretch(all.x, c.x, c.dim, begin, end)),
        dy(device, shape, dtype, stretch(all.dy, c.x, c.dim, begin, end)),
        y(device, shape, dtype),
        dx(device, shape, dtype, stretch(all.dx_before, c.x, c.dim, begin, end)),
        gain(device, Shape{shape[c.per_set ? 1 : 2]}, arithmetic(dtype), vector(c, all.gain, begin, end)),
        bias(device, Shape{shape[c.per_set ? 1 : 2]}, arithmetic(dtype), vector(c, all.bias, begin, end)),
        mean(device, Shape{c.x[1]}, arithmetic(dtype)),
        rstd(device, Shape{c.x[1]}, arithmetic(dtype)),
        running_mean(device, Shape{c.x[1]}, arithmetic(dtype), zeros(c.x[1])),
        running_variance(device, Shape{c.x[1]}, arithmetic(dtype), zeros(c.x[1])),
        sums(device, Shape{c.x[1]}, DType::kF64),
        squares(device, Shape{c.x[1]}, DType::kF64),
        gradient_sums(device, Shape{2, c.x[1]}, DType::kF64) {}

  static std::vector<double> zeros(std::int64_t count) { return std::vector<double>(count, 0.0); }
  static Shape part(const PartCase& c, std::int64_t begin, std::int64_t end) {
    Shape shape = c.x;
    shape[c.dim] = end - begin;
    return shape;
  }
  static std::vector<double> vector(const PartCase& c, const std::vector<double>& all, std::int64_t begin,
                                    std::int64_t end) {
    return c.per_set || c.dim != 2 ? all : std::vector<double>(all.begin() + begin, all.begin() + end);
  }

  Shape shape;
  Owned x, dy, y, dx, gain, bias, mean, rstd, running_mean, running_variance, sums, squares, gradient_sums;
};

/// Both tensors become their sum.
void add_up(Owned& a, Owned& b) {
  std::vector<double> total = a.values();
  const std::vector<double> other = b.values();
  for (std::size_t i = 0; i < total.size(); ++i) total[i] += other[i];
  a.fill(total);
  b.fill(total);
}

class PartNorm : public OnEveryChoice {
 protected:
  static constexpr double kEps = 1e-3, kMomentum = 0.3;
  PartNormOps& ops() { return device_.family<PartNormOps>(); }

  /// Runs the operators of one rank on all elements. gradient_sums stay unchanged.
  void at_once(const PartCase& c, PartRank& all) {
    const TensorView none;
    const Shape matrix{c.x[1], c.x[2]};
    const auto rows = [&](const Owned& tensor) { return TensorView(tensor).reshaped(matrix); };
    auto& norms = device_.family<NormalisationOps>();
    auto& nn = device_.family<NeuralOps>();
    if (c.per_set) {
      norms.batch_norm({.eps = kEps, .momentum = kMomentum}, all.x, all.gain, all.bias, all.running_mean,
                       all.running_variance, all.y, all.mean, all.rstd);
      norms.batch_norm_backward(all.x, all.gain, all.mean, all.rstd, all.dy, all.dx, true, none, none, false);
    } else if (c.centred) {
      nn.layer_norm(rows(all.x), all.gain, all.bias, kEps, rows(all.y), all.mean, all.rstd);
      nn.layer_norm_backward(rows(all.x), all.gain, all.mean, all.rstd, rows(all.dy), rows(all.dx), true,
                             none, none, false, none);
    } else {
      norms.rms_norm(rows(all.x), all.gain, kEps, rows(all.y), all.rstd);
      norms.rms_norm_backward(rows(all.x), all.gain, all.rstd, rows(all.dy), rows(all.dx), true, none, false);
    }
  }

  void in_parts(const PartCase& c, PartRank& a, PartRank& b) {
    const PartNormSpec spec{.count = static_cast<double>(c.per_set ? c.x[0] * c.x[2] : c.x[2]),
                            .eps = kEps,
                            .momentum = kMomentum,
                            .gain_per_set = c.per_set};
    const auto centred = [&](const Owned& vector) { return c.centred ? TensorView(vector) : TensorView{}; };
    for (PartRank* at : {&a, &b}) ops().sums(at->x, at->sums);
    add_up(a.sums, b.sums);
    for (PartRank* at : {&a, &b}) ops().squares(spec, at->x, centred(at->sums), at->squares);
    add_up(a.squares, b.squares);
    for (PartRank* at : {&a, &b}) {
      ops().statistics(spec, centred(at->sums), at->squares, centred(at->mean), at->rstd, at->running_mean,
                       at->running_variance);
      ops().normalise(spec, at->x, at->gain, centred(at->bias), centred(at->mean), at->rstd, at->y);
      ops().backward_sums(spec, at->x, at->gain, centred(at->mean), at->rstd, at->dy, at->gradient_sums);
    }
    add_up(a.gradient_sums, b.gradient_sums);
    for (PartRank* at : {&a, &b}) {
      ops().backward(spec, at->x, at->gain, centred(at->mean), at->rstd, at->dy, at->gradient_sums, at->dx,
                     true);
    }
  }
};

TEST_P(PartNorm, TwoPartsAreTheWhole) {
  for (const PartCase& c : kCases)
    for (const DType dtype : kDTypes) {
      const std::string name = c.x.text() + " " + std::string(dtype_name(dtype));
      const PartNumbers numbers(c, dtype);
      PartRank all(device_, dtype, c, numbers, 0, c.x[c.dim]), a(device_, dtype, c, numbers, 0, c.first),
          b(device_, dtype, c, numbers, c.first, c.x[c.dim]);
      at_once(c, all);
      in_parts(c, a, b);
      // Sums of the whole tensor are made in the arithmetic type: chains of a sample's places. The mean's
      // rounding shifts every element by a unit of the centre.
      const double bound = (32 + static_cast<double>(c.x[2])) * (1 + kCentre) * unit(arithmetic(dtype));
      for (const auto& [part, begin, end] :
           {std::tuple{&a, std::int64_t{0}, c.first}, {&b, c.first, c.x[c.dim]}}) {
        const std::string where = name + " from " + std::to_string(begin);
        const auto expected = [&, begin = begin, end = end](const Owned& whole) {
          return stretch(whole.values(), c.x, c.dim, begin, end);
        };
        EXPECT_LE(relative_error(part->y.values(), expected(all.y)), bound + 2 * unit(dtype)) << where;
        EXPECT_LE(relative_error(part->dx.values(), expected(all.dx)), 4 * bound + 2 * unit(dtype)) << where;
        EXPECT_LE(relative_error(part->rstd.values(), all.rstd.values()), bound) << where;
        if (c.centred) {
          EXPECT_LE(relative_error(part->mean.values(), all.mean.values()), bound) << where;
        }
        if (!c.per_set) continue;
        EXPECT_LE(relative_error(part->running_mean.values(), all.running_mean.values()), bound) << where;
        EXPECT_LE(relative_error(part->running_variance.values(), all.running_variance.values()), bound)
            << where;
      }
    }
}

// The gradients of a channel's gain and bias.
TEST_P(PartNorm, TotalsAreTheGradientsOfGainAndBias) {
  const PartCase& c = kCases[0];
  for (const DType dtype : kDTypes) {
    const DType wide = arithmetic(dtype);
    const PartNumbers numbers(c, dtype);
    PartRank all(device_, dtype, c, numbers, 0, c.x[c.dim]), a(device_, dtype, c, numbers, 0, c.first),
        b(device_, dtype, c, numbers, c.first, c.x[c.dim]);
    at_once(c, all);
    in_parts(c, a, b);
    Owned dgain(device_, Shape{c.x[1]}, wide), dbias(device_, Shape{c.x[1]}, wide);
    device_.family<NormalisationOps>().batch_norm_backward(all.x, all.gain, all.mean, all.rstd, all.dy, {},
                                                           false, dgain, dbias, false);
    std::vector<double> expected = dbias.values();
    for (const double dot : dgain.values()) expected.push_back(dot);
    const double terms = static_cast<double>(c.x[0] * c.x[2]);
    EXPECT_LE(relative_error(a.gradient_sums.values(), expected), 8 * terms * (1 + kCentre) * unit(wide))
        << dtype_name(dtype);
  }
}

TEST_P(PartNorm, DoesNotDependOnThreads) {
  const Shape shape{4, 37, 91};
  for (const DType dtype : kDTypes) {
    const DType wide = arithmetic(dtype);
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Owned x(device_, shape, dtype, numbers(shape.elements(), "x", dtype)), y(device_, shape, dtype),
          mean(device_, Shape{37}, wide), rstd(device_, Shape{37}, wide),
          sums(device_, Shape{37}, DType::kF64), squares(device_, Shape{37}, DType::kF64),
          both(device_, Shape{2, 37}, DType::kF64);
      const PartNormSpec spec{.count = 4 * 91};
      ops().sums(x, sums);
      ops().squares(spec, x, sums, squares);
      ops().statistics(spec, sums, squares, mean, rstd, {}, {});
      ops().normalise(spec, x, {}, {}, mean, rstd, y);
      ops().backward_sums(spec, x, {}, mean, rstd, y, both);
      ops().backward(spec, x, {}, mean, rstd, y, both, x, true);
      const std::vector<std::vector<std::byte>> found = {x.bytes(), y.bytes(), squares.bytes(), both.bytes()};
      if (threads == 1) first = found;
      EXPECT_EQ(found, first) << dtype_name(dtype) << " with " << threads << " threads";
    }
  }
}

TEST_P(PartNorm, NamesAViewThatDoesNotFit) {
  Owned x(device_, Shape{2, 3, 4}, DType::kF32), flat(device_, Shape{24}, DType::kF32),
      sums(device_, Shape{3}, DType::kF64), narrow(device_, Shape{3}, DType::kF32);
  const auto refusal = [&](TensorView of, TensorView out) -> std::string {
    try {
      ops().sums(of, out);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(x, sums), "");
  EXPECT_EQ(refusal(flat, sums), device_says("part norm sums: x must be [outer, sets, inner], found [24]"));
  EXPECT_THAT(
      refusal(x, narrow),
      ::testing::StartsWith(device_says("part norm sums: sums is f32 [3], expected 3 elements of f64")));
}

INSTANTIATE_TEST_SUITE_P(Device, PartNorm, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::part_norm_test
