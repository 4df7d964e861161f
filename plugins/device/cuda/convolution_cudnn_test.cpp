// Convolutions by cuDNN, on a fake of it (cudnn_fake.cpp): the arguments that are passed, the algorithms
// chosen, what is left to windows, and the effects of failures. The fake's sums are those of
// convolution_sums.hpp, so the bits agree; tests/device shows that they are right.
#include "convolution_library.hpp"
#include "convolution_sums.hpp"
#include "cudnn_fake.hpp"
#include "gemm_test.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace tenon::cuda {
namespace {

using ::testing::HasSubstr;

ConvolutionSpec image() {
  return {
      .window = {.extent = {6, 7}, .kernel = {3, 2}, .stride = {2, 1}, .pad_low = {1, 1}, .pad_high = {1, 1}},
      .batch = 2,
      .channels = 3,
      .features = 4};
}

std::vector<float> floats(const Numbers& numbers) {
  const auto bytes = numbers.bytes();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

class CudnnConvolutions : public ::testing::Test {
 protected:
  CudnnConvolutions() : queue_({.guard = false}) {
    fake_cudnn() = {};
    library_ = ConvolutionLibrary::open(queue_, reason_);
  }

  struct Operands {
    Numbers x, w, y, scratch;
    Operands(Queue& queue, const ConvolutionSpec& s, std::size_t scratch_bytes)
        : x(queue, s.batch * s.channels * s.window.elements(), DType::kF32, 1),
          w(queue, s.features * s.channels * s.window.offsets(), DType::kF32, 2),
          y(queue, s.batch * s.features * s.window.places(), DType::kF32, 3),
          scratch(queue, static_cast<std::int64_t>(scratch_bytes), DType::kU8, 0) {}
    static float* at(const Numbers& numbers) { return numbers.view().as<float>(); }
  };

  /// found = sum, or sum + found.
  template <class Sum>
  static std::vector<float> results(const Sum& sum, const std::vector<float>& old) {
    std::vector<float> values;
    for (std::int64_t i = 0; i < sum.items(); ++i) values.push_back(sum(i) + (old.empty() ? 0.0f : old[i]));
    return values;
  }

  void expect_sums(const ConvolutionSpec& spec) {
    const auto passes = library_->prepare(spec);
    ASSERT_NE(passes, nullptr);
    const Operands o(queue_, spec, passes->scratch_bytes());
    const ConvolutionShape shape = shape_of(spec);
    float *const x = Operands::at(o.x), *const w = Operands::at(o.w), *const y = Operands::at(o.y);
    passes->forward(x, w, y, o.scratch.view().data);
    EXPECT_EQ(floats(o.y), results(ForwardSum{shape, x, w}, {}));
    for (const bool accumulate : {false, true}) {
      const Operands out(queue_, spec, 0);
      const auto old_x = accumulate ? floats(out.x) : std::vector<float>(),
                 old_w = accumulate ? floats(out.w) : std::vector<float>();
      passes->backward_input(w, y, Operands::at(out.x), accumulate, o.scratch.view().data);
      EXPECT_EQ(floats(out.x), results(InputSum{shape, w, y}, old_x));
      passes->backward_weight(x, y, Operands::at(out.w), accumulate, o.scratch.view().data);
      EXPECT_EQ(floats(out.w), results(WeightSum{shape, x, y}, old_w));
    }
  }

  std::string reason_;
  Queue queue_;
  std::unique_ptr<ConvolutionLibrary> library_;
};

TEST_F(CudnnConvolutions, AreHandedOver) {
  ASSERT_NE(library_, nullptr) << reason_;
  EXPECT_EQ(library_->name(), "cuDNN 9.12.3");
  expect_sums(image());
  ConvolutionSpec line = image();
  line.window = {
      .spatial = 1, .extent = {9}, .kernel = {3}, .dilation = {2}, .pad_low = {2}, .pad_high = {2}};
  expect_sums(line);
  ConvolutionSpec volume = image();
  volume.window = {.spatial = 3, .extent = {4, 3, 5}, .kernel = {2, 3, 2}, .stride = {1, 1, 2}};
  expect_sums(volume);
  EXPECT_EQ(fake_cudnn().convolved, 15);
  EXPECT_EQ(fake_cudnn().rounded, 0);
  library_.reset();
  EXPECT_EQ(fake_cudnn().alive, 0);
}

TEST_F(CudnnConvolutions, RoundOperandsWhereTf32IsAskedFor) {
  Queue fast({.tf32 = true, .guard = false});
  library_ = ConvolutionLibrary::open(fast, reason_);
  expect_sums(image());
  EXPECT_EQ(fake_cudnn().rounded, 5);
}

TEST_F(CudnnConvolutions, AreLeftToWindowsWhereTheLibraryHasNone) {
  ConvolutionSpec spec = image();
  spec.window.pad_high[1] = 2;
  EXPECT_EQ(library_->prepare(spec), nullptr) << "pads differ";
  spec = image();
  spec.batch = std::int64_t{1} << 28;
  EXPECT_EQ(library_->prepare(spec), nullptr) << "more elements than the library counts";
  fake_cudnn().ordered = false;
  EXPECT_EQ(library_->prepare(image()), nullptr) << "no algorithm adds in a fixed order";
  fake_cudnn() = {.declines = true};
  EXPECT_EQ(library_->prepare(image()), nullptr) << "no algorithm at all";
}

TEST_F(CudnnConvolutions, KeepTheLibrarysWords) {
  const auto passes = library_->prepare(image());
  const Operands o(queue_, image(), passes->scratch_bytes());
  fake_cudnn().fails = true;
  try {
    passes->forward(Operands::at(o.x), Operands::at(o.w), Operands::at(o.y), o.scratch.view().data);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudnnConvolutionForward: NAME_OF_FAILURE: did not work"));
  }
}

TEST_F(CudnnConvolutions, SayWhyTheLibraryDoesNotStart) {
  fake_cudnn().starts = false;
  EXPECT_EQ(ConvolutionLibrary::open(queue_, reason_), nullptr);
  EXPECT_EQ(reason_, "cudnnCreate: NAME_OF_FAILURE: did not work");
}

}  // namespace
}  // namespace tenon::cuda
