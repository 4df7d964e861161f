// Products per mode on the host launcher: the bits of the reference, for either order of threads and however
// many rows and columns a thread has.
#include "testing.hpp"

#include <tenon/kernels/cuda/batched_complex_gemm.hpp>
#include <tenon/kernels/reference/gemm.hpp>

namespace tenon::kernels::cuda::batched_complex_gemm_test {
namespace {

using testing::random_values;
using testing::same_bits;

template <class T>
struct CudaBatchedComplexGemmTest : ::testing::Test {};
using Reals = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CudaBatchedComplexGemmTest, Reals);

constexpr LaunchOrder kOrders[] = {LaunchOrder::kAscending, LaunchOrder::kDescending};

struct Size {
  std::int64_t batch, in, out, modes;
};
constexpr Size kSizes[] = {{1, 1, 1, 1}, {4, 8, 4, 16}, {5, 3, 7, 33}, {2, 9, 6, 5}, {3, 0, 2, 4}};

/// Results begin as random numbers.
template <class T>
struct Problem {
  std::vector<T> x, w, dy, y, dx, dw;
  BatchedComplexGemmArgs<T> args;

  Problem(const Size& s, bool accumulate) {
    const auto values = [](std::int64_t n, unsigned seed) {
      return random_values<T>(static_cast<std::size_t>(2 * n), seed);
    };
    x = values(s.batch * s.in * s.modes, 1), dx = values(s.batch * s.in * s.modes, 2);
    w = values(s.in * s.out * s.modes, 3), dw = values(s.in * s.out * s.modes, 4);
    y = values(s.batch * s.out * s.modes, 5), dy = values(s.batch * s.out * s.modes, 6);
    args.batch = s.batch, args.in = s.in, args.out = s.out, args.modes = s.modes;
    args.x = x.data(), args.w = w.data(), args.y = y.data();
    args.dy = dy.data(), args.dx = dx.data(), args.dw = dw.data();
    args.accumulate_dw = accumulate;
  }
};

template <class T, int kSide>
void expect_reference(const Size& size, bool accumulate, LaunchOrder order) {
  Problem<T> expected(size, accumulate), own(size, accumulate);
  const std::int64_t groups = (size.modes + kModeGroup - 1) / kModeGroup;
  reference::batched_complex_gemm_forward(expected.args, 0, groups);
  reference::batched_complex_gemm_backward_input(expected.args, 0, groups);
  reference::batched_complex_gemm_backward_weight(expected.args, 0, groups);
  launch_on_host(Grid{3, 64}, mode_forward<T, kSide>(own.args), order);
  launch_on_host(Grid{1, 256}, mode_backward_input<T, kSide>(own.args), order);
  launch_on_host(Grid{5, 32}, mode_backward_weight<T, kSide>(own.args), order);
  EXPECT_TRUE(same_bits(own.y, expected.y)) << size.modes << " modes, side " << kSide;
  EXPECT_TRUE(same_bits(own.dx, expected.dx)) << size.modes << " modes, side " << kSide;
  EXPECT_TRUE(same_bits(own.dw, expected.dw)) << size.modes << " modes, side " << kSide;
}

TYPED_TEST(CudaBatchedComplexGemmTest, GivesTheBitsOfTheReference) {
  for (const Size& size : kSizes)
    for (const bool accumulate : {false, true})
      for (const LaunchOrder order : kOrders) {
        expect_reference<TypeParam, 1>(size, accumulate, order);
        expect_reference<TypeParam, kModeSide>(size, accumulate, order);
      }
}

}  // namespace
}  // namespace tenon::kernels::cuda::batched_complex_gemm_test
