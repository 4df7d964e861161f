// Convolutions of planes: the bits of the reference, for images, windows and channels that fill no vector,
// tile or region; any split of the items; memory of exactly the stated sizes; and nothing read that the sums
// have not.
#include "testing.hpp"

#include <tenon/kernels/reference/convolution.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tenon::kernels::convolution_test {
namespace {

using namespace testing;

struct Case {
  const char* name;
  std::int64_t batch, channels, features;
  Window window;  ///< without `out`
  std::int64_t pad_high[2] = {0, 0};
};

const Case kCases[] = {
    {"rows of whole vectors", 2, 5, 29, {.in = {1, 6, 32}, .kernel = {1, 3, 3}, .pad = {0, 1, 1}}, {1, 1}},
    {"rows of half a vector", 3, 18, 14, {.in = {1, 8, 8}, .kernel = {1, 3, 3}, .pad = {0, 1, 1}}, {1, 1}},
    {"many small images", 70, 3, 13, {.in = {1, 4, 4}, .kernel = {1, 3, 3}, .pad = {0, 1, 1}}, {1, 1}},
    {"no padding", 11, 6, 16, {.in = {1, 14, 14}, .kernel = {1, 5, 5}}},
    {"one row", 1, 4, 7, {.in = {1, 1, 30}, .kernel = {1, 1, 5}, .pad = {0, 0, 2}}, {0, 2}},
    {"one column", 1, 4, 7, {.in = {1, 30, 1}, .kernel = {1, 5, 1}, .pad = {0, 2, 0}}, {2, 0}},
    {"one of everything", 1, 1, 1, {.in = {1, 3, 3}}},
    {"odd, stride 2",
     3,
     17,
     30,
     {.in = {1, 9, 11}, .kernel = {1, 3, 3}, .stride = {1, 2, 2}, .pad = {0, 1, 1}},
     {1, 1}},
    {"even, stride 2",
     2,
     9,
     26,
     {.in = {1, 64, 32}, .kernel = {1, 3, 3}, .stride = {1, 2, 2}, .pad = {0, 1, 1}},
     {1, 1}},
    {"points", 3, 20, 33, {.in = {1, 24, 32}}},
    {"points of small planes", 70, 5, 14, {.in = {1, 2, 16}}},
    {"points of many channels", 2, 600, 5, {.in = {1, 10, 256}}},
    {"points in rows of no whole vector", 9, 7, 9, {.in = {1, 5, 13}}},
    {"points, stride 2", 5, 20, 33, {.in = {1, 7, 8}, .stride = {1, 2, 2}}},
    {"stride 2 down",
     2,
     3,
     8,
     {.in = {1, 11, 16}, .kernel = {1, 3, 3}, .stride = {1, 2, 1}, .pad = {0, 1, 1}},
     {1, 1}},
    {"stride 2 across", 2, 3, 8, {.in = {1, 6, 33}, .kernel = {1, 1, 3}, .stride = {1, 1, 2}}},
    {"dilated",
     2,
     8,
     9,
     {.in = {1, 11, 13}, .kernel = {1, 3, 3}, .dilation = {1, 2, 2}, .pad = {0, 2, 1}},
     {1, 2}},
    {"padding of more than the window",
     1,
     2,
     3,
     {.in = {1, 5, 6}, .kernel = {1, 2, 3}, .pad = {0, 4, 3}},
     {3, 5}},
    {"bands of rows",
     1,
     2,
     3,
     {.in = {1, 70, 50}, .kernel = {1, 7, 7}, .stride = {1, 2, 2}, .pad = {0, 3, 3}},
     {3, 3}},
    {"long rows", 1, 1, 2, {.in = {1, 3, 1500}, .kernel = {1, 3, 3}, .pad = {0, 1, 1}}, {1, 1}},
};

ConvolutionArgs shape_of(const Case& c) {
  ConvolutionArgs args;
  args.window = c.window;
  for (int d = 1; d < 3; ++d) {
    const Window& w = c.window;
    args.window.out[d] =
        (w.in[d] + w.pad[d] + c.pad_high[d - 1] - w.dilation[d] * (w.kernel[d] - 1) - 1) / w.stride[d] + 1;
  }
  args.batch = c.batch, args.channels = c.channels, args.features = c.features;
  return args;
}

/// Operands, each in memory of its own that ends with it.
struct Operands {
  std::vector<float> x, w, bias, dy;
  explicit Operands(const ConvolutionArgs& args)
      : x(random_values<float>(args.batch * args.channels * args.window.in[1] * args.window.in[2], 1)),
        w(random_values<float>(args.features * args.channels * args.window.kernel[1] * args.window.kernel[2],
                               2)),
        bias(random_values<float>(args.features, 3)),
        dy(random_values<float>(args.batch * args.features * args.window.out[1] * args.window.out[2], 4)) {}
};

struct Results {
  std::vector<float> y, dx, dw;
};

using Compute = std::function<void(const ConvolutionArgs&)>;

/// All three products; gradients begin with x and w where they are added.
Results results_of(ConvolutionArgs args, const Operands& of, bool more, const Compute& forward,
                   const Compute& input, const Compute& weight) {
  Results r{of.dy, of.x, of.w};
  args.x = of.x.data(), args.w = of.w.data(), args.dy = of.dy.data();
  args.bias = more ? of.bias.data() : nullptr, args.accumulate = more;
  args.y = r.y.data(), args.dx = r.dx.data(), args.dw = r.dw.data();
  forward(args);
  input(args);
  weight(args);
  return r;
}

/// Runs a pass in pieces of so many items, last ones first, in memory that holds NaN and is bounded by marks.
void run(const ConvolutionPass& pass, const ConvolutionArgs& args, std::int64_t piece) {
  constexpr float kMark = 12345.0f;
  constexpr float kNothing = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> shared(pass.shared(args) + 1, kNothing), workspace(pass.workspace(args) + 1, kNothing);
  shared.back() = workspace.back() = kMark;
  const auto in_pieces = [&](std::int64_t items, auto call) {
    for (std::int64_t begin = (items - 1) / piece * piece; items > 0 && begin >= 0; begin -= piece)
      call(begin, std::min(items, begin + piece));
  };
  in_pieces(pass.prepare_items(args),
            [&](std::int64_t begin, std::int64_t end) { pass.prepare(args, begin, end, shared.data()); });
  in_pieces(pass.items(args), [&](std::int64_t begin, std::int64_t end) {
    pass.run(args, begin, end, shared.data(), workspace.data());
    std::fill(workspace.begin(), workspace.end() - 1, kNothing);
  });
  in_pieces(pass.finish_items(args),
            [&](std::int64_t begin, std::int64_t end) { pass.finish(args, begin, end, shared.data()); });
  EXPECT_EQ(shared.back(), kMark);
  EXPECT_EQ(workspace.back(), kMark);
}

Results results_of(const ConvolutionOps& ops, const ConvolutionArgs& args, const Operands& of, bool more,
                   std::int64_t piece) {
  const auto by = [&](const ConvolutionPass& pass) {
    return [&pass, piece](const ConvolutionArgs& all) { run(pass, all, piece); };
  };
  return results_of(args, of, more, by(ops.forward), by(ops.backward_input), by(ops.backward_weight));
}

Results reference_of(const ConvolutionArgs& args, const Operands& of, bool more) {
  return results_of(args, of, more, reference::convolution_forward, reference::convolution_backward_input,
                    reference::convolution_backward_weight);
}

TEST(Convolution, ProductsHaveTheBitsOfTheReference) {
  for (const Case& c : kCases) {
    const ConvolutionArgs args = shape_of(c);
    const Operands of(args);
    for (const bool more : {false, true}) {
      const Results expected = reference_of(args, of, more);
      for (const KernelTable* set : all_sets()) {
        EXPECT_EQ(set->convolution.forward.run != nullptr, fuses(*set)) << set->name;
        if (!fuses(*set)) continue;
        SCOPED_TRACE(std::string(set->name) + ", " + c.name + (more ? ", with a bias, added" : ""));
        for (const std::int64_t piece : {1, 5, 1000}) {
          const Results found = results_of(set->convolution, args, of, more, piece);
          EXPECT_TRUE(same_bits(found.y, expected.y)) << "y";
          EXPECT_TRUE(same_bits(found.dx, expected.dx)) << "dx";
          EXPECT_TRUE(same_bits(found.dw, expected.dw)) << "dw";
        }
      }
    }
  }
}

/// The reference against sums in double, each of so many terms of magnitude at most 1.
TEST(Convolution, TheReferenceIsTheSumOverWindows) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    const ConvolutionArgs args = shape_of(c);
    const Operands of(args);
    const Window& w = args.window;
    const Results found = reference_of(args, of, false);
    std::vector<double> y(of.dy.size()), dx(of.x.size()), dw(of.w.size());
    const std::int64_t offsets = w.kernel[1] * w.kernel[2];
    std::size_t place = 0;
    for (std::int64_t b = 0; b < args.batch; ++b)
      for (std::int64_t f = 0; f < args.features; ++f)
        for (std::int64_t i = 0; i < w.out[1]; ++i)
          for (std::int64_t j = 0; j < w.out[2]; ++j, ++place)
            for (std::int64_t k = 0; k < args.channels * offsets; ++k) {
              const std::int64_t row = i * w.stride[1] - w.pad[1] + k % offsets / w.kernel[2] * w.dilation[1],
                                 column = j * w.stride[2] - w.pad[2] + k % w.kernel[2] * w.dilation[2];
              if (row < 0 || row >= w.in[1] || column < 0 || column >= w.in[2]) continue;
              const std::size_t at = ((b * args.channels + k / offsets) * w.in[1] + row) * w.in[2] + column,
                                weight = f * args.channels * offsets + k;
              y[place] += static_cast<double>(of.x[at]) * of.w[weight];
              dx[at] += static_cast<double>(of.dy[place]) * of.w[weight];
              dw[weight] += static_cast<double>(of.dy[place]) * of.x[at];
            }
    // n additions of products of at most 1 are off by at most n n / 2 half units (Higham, 3.1).
    const auto bound = [](std::int64_t terms) {
      const auto n = static_cast<double>(terms);
      return [n](std::size_t) { return n * n * kFloatRoundoff; };
    };
    EXPECT_TRUE(within(found.y, y, bound(args.channels * offsets))) << "y";
    EXPECT_TRUE(within(found.dx, dx, bound(args.features * offsets))) << "dx";
    EXPECT_TRUE(within(found.dw, dw, bound(args.batch * w.out[1] * w.out[2]))) << "dw";
  }
}

// A NaN reaches the sums that have it as a term, and no others: vectors that read beyond a row, a plane or
// the last points of a region drop what they read.
TEST(Convolution, NothingElseReachesASum) {
  const Case c{"", 3, 3, 5, {.in = {1, 5, 5}, .kernel = {1, 3, 3}, .pad = {0, 1, 1}}, {1, 1}};
  const ConvolutionArgs args = shape_of(c);
  Operands of(args);
  of.x[25 * 4 + 24] = std::numeric_limits<float>::quiet_NaN();  // sample 1, channel 1, the last element
  of.dy[25 * 7 + 20] = std::numeric_limits<float>::infinity();  // sample 1, feature 2, the last row
  const Results expected = reference_of(args, of, false);
  for (const KernelTable* set : all_sets()) {
    if (!fuses(*set)) continue;
    const Results found = results_of(set->convolution, args, of, false, 1);
    const auto same_kinds = [&](const std::vector<float>& a, const std::vector<float>& b, const char* what) {
      for (std::size_t i = 0; i < a.size(); ++i)
        EXPECT_EQ(std::isfinite(a[i]), std::isfinite(b[i])) << set->name << ", " << what << ", element " << i;
    };
    same_kinds(found.y, expected.y, "y");
    same_kinds(found.dx, expected.dx, "dx");
    same_kinds(found.dw, expected.dw, "dw");
  }
}

TEST(Convolution, RegionsCoverEachPointOnce) {
  for (const std::int64_t batch : {1, 3, 64})
    for (const std::int64_t rows : {1, 4, 33})
      for (const std::int64_t columns : {1, 4, 100, 2000}) {
        const ConvolutionRegions r = convolution_regions(batch, rows, columns, 512);
        std::vector<int> seen(batch * rows);
        for (std::int64_t region = 0; region < r.count; ++region)
          for (std::int64_t b = region / r.bands * r.samples, last = std::min(batch, b + r.samples); b < last;
               ++b)
            for (std::int64_t i = region % r.bands * r.rows, end = std::min(rows, i + r.rows); i < end; ++i)
              ++seen[b * rows + i];
        EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), batch * rows)
            << batch << " " << rows << " " << columns;
        EXPECT_TRUE(r.samples == 1 || r.bands == 1);
      }
}

}  // namespace
}  // namespace tenon::kernels::convolution_test
