// Convolutions from images against sums over coordinates in double, if the device has them.
#include "device_test.hpp"

#include <tenon/ops/convolution.hpp>
#include <tenon/ops/dense.hpp>

#include <cmath>

namespace tenon::testing::convolution_test {
namespace {

struct ConvolutionCase {
  const char* name;
  std::int64_t batch, channels, features;
  WindowSpec window;
};
const ConvolutionCase kConvolutions[] = {
    {"image", 3, 16, 32, {.extent = {6, 7}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"odd channels", 2, 3, 5, {.extent = {8, 6}, .kernel = {5, 3}, .pad_low = {2, 0}, .pad_high = {2, 0}}},
    {"one channel", 4, 1, 6, {.extent = {9, 9}, .kernel = {5, 5}, .pad_low = {2, 2}, .pad_high = {2, 2}}},
    {"strided",
     2,
     16,
     16,
     {.extent = {9, 8}, .kernel = {3, 3}, .stride = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"point", 2, 32, 16, {.extent = {5, 4}, .stride = {2, 2}}},
    {"points of few channels", 4, 4, 8, {.extent = {28, 28}, .stride = {2, 2}}},
    {"dilated",
     2,
     16,
     16,
     {.extent = {9, 9}, .kernel = {3, 3}, .dilation = {2, 2}, .pad_low = {2, 1}, .pad_high = {1, 2}}},
    {"rows of vectors",
     2,
     3,
     13,
     {.extent = {8, 32}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"one row", 1, 5, 7, {.extent = {1, 30}, .kernel = {1, 5}, .pad_low = {0, 2}, .pad_high = {0, 2}}},
    {"padding of two, one image",
     1,
     9,
     17,
     {.extent = {7, 9}, .kernel = {5, 5}, .pad_low = {2, 2}, .pad_high = {2, 2}}},
    {"odd sizes, strided",
     3,
     17,
     30,
     {.extent = {9, 11}, .kernel = {3, 3}, .stride = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"small images", 70, 3, 13, {.extent = {4, 4}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}}},
    {"strides of three",  // which the kernels leave to the library
     2,
     16,
     16,
     {.extent = {11, 10}, .kernel = {3, 3}, .stride = {3, 3}, .pad_low = {2, 0}, .pad_high = {0, 1}}},
    {"line", 2, 16, 16, {.spatial = 1, .extent = {11}, .kernel = {3}, .pad_low = {1}, .pad_high = {1}}},
    {"volume", 2, 16, 16, {.spatial = 3, .extent = {3, 4, 5}, .kernel = {2, 2, 2}}},
};

Shape image_shape(const WindowSpec& w, std::int64_t batch, std::int64_t channels, bool places) {
  std::vector<std::int64_t> extents{batch, channels};
  for (int d = 0; d < w.spatial; ++d) extents.push_back(places ? w.places(d) : w.extent[d]);
  return Shape(extents);
}

/// Calls fn(place, offset, element) for every element inside its window.
template <typename Fn>
void for_window_elements(const WindowSpec& w, Fn fn) {
  for (std::int64_t place = 0; place < w.places(); ++place)
    for (std::int64_t offset = 0; offset < w.offsets(); ++offset) {
      std::int64_t element = 0, scale = 1, p = place, o = offset;
      bool inside = true;
      for (int d = w.spatial - 1; d >= 0; --d) {
        const std::int64_t at =
            p % w.places(d) * w.stride[d] + o % w.kernel[d] * w.dilation[d] - w.pad_low[d];
        p /= w.places(d), o /= w.kernel[d];
        inside = inside && at >= 0 && at < w.extent[d];
        element += at * scale, scale *= w.extent[d];
      }
      if (inside) fn(place, offset, element);
    }
}

/// Sums of products, and of their magnitudes for the bound.
struct Expected {
  std::vector<double> sums, magnitudes;
  explicit Expected(std::int64_t elements)
      : sums(static_cast<std::size_t>(elements)), magnitudes(static_cast<std::size_t>(elements)) {}
  void add(std::int64_t at, double value) {
    sums[at] += value;
    magnitudes[at] += std::abs(value);
  }
};

/// A sum of `terms` products in f32 is off by at most (terms + 1) half units of the sum of magnitudes, in any
/// order (Higham, Accuracy and Stability, 3.1); one more addition if it is added to an old value.
void expect_sums(const std::vector<double>& found, const Expected& expected, std::int64_t terms,
                 const std::string& what) {
  ASSERT_EQ(found.size(), expected.sums.size()) << what;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double bound = static_cast<double>(terms + 2) * unit(DType::kF32) * expected.magnitudes[i];
    ASSERT_LE(std::abs(found[i] - expected.sums[i]), bound) << what << ", element " << i;
  }
}

class DeviceConvolutions : public OnEveryChoice {
 protected:
  Convolutions* family() { return static_cast<Convolutions*>(device_.query(Convolutions::kId)); }
  /// Returns whether oneDNN is used with instruction sets that have loops for all three passes.
  bool has_loops() const {
    const std::string isa = from_environment("ONEDNN_MAX_CPU_ISA", "DEFAULT");
    return uses_onednn() && isa != "AVX" && isa != "SSE41" && has_kernels();
  }
  /// Returns whether the kernel set has convolutions of its own.
  bool has_kernels() const {
    const std::string_view choice = device_.kernel_choice();
    return choice.find("avx") != std::string_view::npos || choice.find("amx") != std::string_view::npos;
  }
};

/// All three passes of one case, each by itself and added to old values.
class Passes {
 public:
  Passes(Device& device, const ConvolutionCase& c)
      : device_(device),
        c_(c),
        x_(numbers(c.batch * c.channels * c.window.elements(), "x", DType::kF32)),
        w_(numbers(c.features * c.channels * c.window.offsets(), "w", DType::kF32)),
        bias_(numbers(c.features, "bias", DType::kF32)),
        dy_(numbers(c.batch * c.features * c.window.places(), "dy", DType::kF32)),
        x_shape_(image_shape(c.window, c.batch, c.channels, false)),
        y_shape_(image_shape(c.window, c.batch, c.features, true)),
        w_shape_{c.features, c.channels * c.window.offsets()} {
    for_products([&](std::int64_t i, std::int64_t j, std::int64_t k) {
      y_sums_.add(k, at(x_, i) * at(w_, j));
      dx_sums_.add(i, at(dy_, k) * at(w_, j));
      dw_sums_.add(j, at(dy_, k) * at(x_, i));
    });
  }

  void check(Convolution& convolution, bool bias, bool relu) {
    const auto bytes = static_cast<std::int64_t>(convolution.scratch_bytes());
    Owned scratch(device_, Shape{bytes}, DType::kU8), x(device_, x_shape_, DType::kF32, x_),
        w(device_, w_shape_, DType::kF32, w_), b(device_, Shape{c_.features}, DType::kF32, bias_),
        dy(device_, y_shape_, DType::kF32, dy_), y(device_, y_shape_, DType::kF32, dy_);
    const std::int64_t window = c_.channels * c_.window.offsets();
    const TensorView added = bias ? TensorView(b) : TensorView{};
    convolution.forward(x, w, added, y, scratch);
    Expected expected_y = products(bias);
    if (relu)
      for (double& value : expected_y.sums) value = std::max(value, 0.0);
    expect_sums(y.values(), expected_y, window + 1, std::string(c_.name) + " y");
    const std::vector<std::byte> first = y.bytes();
    expect_no_allocations(device_, [&] { convolution.forward(x, w, added, y, scratch); });
    EXPECT_EQ(y.bytes(), first) << c_.name;
    for (const bool accumulate : {false, true}) {
      const std::string how = std::string(c_.name) + (accumulate ? " added" : "");
      Owned dx(device_, x_shape_, DType::kF32, x_), dw(device_, w_shape_, DType::kF32, w_);
      convolution.backward_input(w, dy, dx, accumulate, scratch);
      expect_sums(dx.values(), input_gradient(accumulate), c_.features * c_.window.offsets() + 1,
                  how + " dx");
      convolution.backward_weight(x, dy, dw, accumulate, scratch);
      expect_sums(dw.values(), weight_gradient(accumulate), c_.batch * c_.window.places() + 1, how + " dw");
    }
  }

  /// y, dx and dw.
  std::vector<std::vector<std::byte>> bits(Convolution& convolution) {
    Owned scratch(device_, Shape{static_cast<std::int64_t>(convolution.scratch_bytes())}, DType::kU8),
        x(device_, x_shape_, DType::kF32, x_), w(device_, w_shape_, DType::kF32, w_),
        dy(device_, y_shape_, DType::kF32, dy_), y(device_, y_shape_, DType::kF32, dy_),
        dx(device_, x_shape_, DType::kF32, x_), dw(device_, w_shape_, DType::kF32, w_);
    convolution.forward(x, w, {}, y, scratch);
    convolution.backward_input(w, dy, dx, true, scratch);
    convolution.backward_weight(x, dy, dw, true, scratch);
    return {y.bytes(), dx.bytes(), dw.bytes()};
  }

 private:
  /// Calls fn(element of x, of w, of y) for every product.
  template <typename Fn>
  void for_products(Fn fn) const {
    const WindowSpec& window = c_.window;
    for_window_elements(window, [&](std::int64_t place, std::int64_t offset, std::int64_t element) {
      for (std::int64_t b = 0; b < c_.batch; ++b)
        for (std::int64_t f = 0; f < c_.features; ++f)
          for (std::int64_t c = 0; c < c_.channels; ++c)
            fn((b * c_.channels + c) * window.elements() + element,
               (f * c_.channels + c) * window.offsets() + offset,
               (b * c_.features + f) * window.places() + place);
    });
  }
  static double at(const std::vector<double>& values, std::int64_t i) { return values[i]; }

  Expected products(bool bias) const {
    Expected y = y_sums_;
    for (std::int64_t i = 0; bias && i < y_shape_.elements(); ++i)
      y.add(i, at(bias_, i / c_.window.places() % c_.features));
    return y;
  }
  Expected input_gradient(bool accumulate) const {
    Expected dx = dx_sums_;
    for (std::int64_t i = 0; accumulate && i < x_shape_.elements(); ++i) dx.add(i, at(x_, i));
    return dx;
  }
  Expected weight_gradient(bool accumulate) const {
    Expected dw = dw_sums_;
    for (std::int64_t i = 0; accumulate && i < w_shape_.elements(); ++i) dw.add(i, at(w_, i));
    return dw;
  }

  Device& device_;
  const ConvolutionCase c_;
  std::vector<double> x_, w_, bias_, dy_;
  Shape x_shape_, y_shape_, w_shape_;
  Expected y_sums_{y_shape_.elements()}, dx_sums_{x_shape_.elements()}, dw_sums_{w_shape_.elements()};
};

TEST_P(DeviceConvolutions, PassesAreSumsOverTheirWindows) {
  if (family() == nullptr) return;  // optional: layers make windows
  int prepared = 0;
  for (const ConvolutionCase& c : kConvolutions)
    for (const bool bias : {false, true}) {
      ConvolutionSpec spec{
          .window = c.window, .batch = c.batch, .channels = c.channels, .features = c.features};
      spec.bias = bias, spec.epilogue = bias ? Epilogue::kRelu : Epilogue::kNone;
      const auto convolution = family()->prepare(spec);
      if (convolution == nullptr) continue;
      ++prepared;
      Passes(device_, c).check(*convolution, bias, bias);
    }
  // The processor determines the shapes for which the library has fast loops; from AVX2 on it has the usual
  // ones.
  if (has_loops() || tested_device() == "cuda_emulated") {
    EXPECT_GE(prepared, 4);
  }
}

// A library's primitives have separate loops for partial vectors and blocks. Their operands are between guard
// bands here, and inside the plan where guarded_calls is loaded (tests/guards).
TEST_P(DeviceConvolutions, ChannelsThatFillNoVectorInImagesThatFillNoTile) {
  if (family() == nullptr || !uses_onednn()) return;
  const WindowSpec windows[] = {
      {.extent = {7, 5}},
      {.extent = {12, 12}, .stride = {2, 2}},
      {.extent = {4, 12}, .stride = {1, 3}},
      {.extent = {7, 9}, .stride = {2, 2}},
      {.extent = {7, 9}, .kernel = {3, 3}, .pad_low = {1, 1}, .pad_high = {1, 1}},
      {.extent = {7, 9}, .kernel = {3, 3}, .stride = {2, 2}, .pad_low = {1, 1}, .pad_high = {1, 1}}};
  int prepared = 0;
  for (const WindowSpec& window : windows)
    for (const std::int64_t channels : {1, 3, 4, 5, 6, 7, 8, 12, 16, 20})
      for (const std::int64_t features : {5, 8}) {
        std::string name;
        for (const std::int64_t number : {channels, features, window.extent[0], window.extent[1],
                                          window.kernel[0], window.stride[0], window.stride[1]})
          name += " " + std::to_string(number);
        SCOPED_TRACE("channels, features, image, kernel, strides:" + name);
        Passes passes(device_, {name.c_str(), 2, channels, features, window});
        for (const int threads : {1, 2}) {
          SCOPED_TRACE("threads " + std::to_string(threads));
          set_parallel_threads(threads);
          const auto convolution =
              family()->prepare({.window = window, .batch = 2, .channels = channels, .features = features});
          if (convolution == nullptr) continue;
          ++prepared;
          passes.check(*convolution, false, false);
          if (HasFatalFailure()) return;
        }
      }
  EXPECT_EQ(prepared > 0, has_kernels());
}

// oneDNN's sums depend on the number of threads, the kernels' do not.
TEST_P(DeviceConvolutions, KernelsGiveTheSameBitsOnAnyNumberOfThreads) {
  if (family() == nullptr || uses_onednn() || !has_kernels()) return;
  int prepared = 0;
  for (const ConvolutionCase& c : kConvolutions) {
    std::vector<std::vector<std::byte>> first;
    for (const int threads : {1, 2, 3}) {
      SCOPED_TRACE(std::string(c.name) + ", threads " + std::to_string(threads));
      set_parallel_threads(threads);
      const auto convolution = family()->prepare(
          {.window = c.window, .batch = c.batch, .channels = c.channels, .features = c.features});
      if (convolution == nullptr) continue;
      ++prepared;
      const auto found = Passes(device_, c).bits(*convolution);
      if (first.empty()) first = found;
      EXPECT_TRUE(found == first);
    }
  }
  EXPECT_GE(prepared, 3 * 8);
}

TEST_P(DeviceConvolutions, WhatIsNotComputedIsLeftToWindows) {
  if (family() == nullptr) return;
  ConvolutionSpec spec{.window = kConvolutions[0].window, .batch = 3, .channels = 16, .features = 32};
  spec.dtype = DType::kF64;
  EXPECT_EQ(family()->prepare(spec), nullptr);
  spec.dtype = DType::kF32, spec.window.pad_low[0] = -1;
  EXPECT_EQ(family()->prepare(spec), nullptr);
  spec.window.pad_low[0] = 1, spec.batch = 0;
  EXPECT_EQ(family()->prepare(spec), nullptr);
}

TEST_P(DeviceConvolutions, ScratchThatIsTooSmallIsRefused) {
  if (family() == nullptr) return;
  const ConvolutionCase& c = kConvolutions[0];
  const auto convolution = family()->prepare(
      {.window = c.window, .batch = c.batch, .channels = c.channels, .features = c.features});
  if (convolution == nullptr || convolution->scratch_bytes() <= 64) return;
  Owned x(device_, image_shape(c.window, c.batch, c.channels, false), DType::kF32),
      y(device_, image_shape(c.window, c.batch, c.features, true), DType::kF32),
      w(device_, {c.features, c.channels * c.window.offsets()}, DType::kF32),
      scratch(device_, Shape{64}, DType::kU8);
  EXPECT_EQ(message_of([&] { convolution->forward(x, w, {}, y, scratch); }),
            device_says("convolution: scratch must have ") + std::to_string(convolution->scratch_bytes()) +
                " bytes, found 64");
}

INSTANTIATE_TEST_SUITE_P(Device, DeviceConvolutions, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::convolution_test
