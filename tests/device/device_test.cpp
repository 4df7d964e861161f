// The device itself: memory, copies, the names of its kernels and its families.
#include "device_test.hpp"

#include <tenon/executor.hpp>
#include <tenon/ops/attention.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/formula.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/quant.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/ops/spectral.hpp>
#include <tenon/sdk/ops/interaction.hpp>
#include <tenon/sdk/ops/mor.hpp>
#include <tenon/sdk/ops/multiply.hpp>

#include <cstdint>

namespace tenon::testing::device_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(DeviceItself, TakesTheNameOfItsKernelsBackAndNoOther) {
  const TestedDevice bench;
  const std::string name(bench.device->kernel_choice());
  EXPECT_EQ(TestedDevice(name).device->kernel_choice(), name);
  EXPECT_THAT(message_of([] { TestedDevice("avx9"); }),
              AllOf(HasSubstr(device_says("kernels = 'avx9' is not available")), HasSubstr("'auto', ")));
}

TEST(DeviceItself, OffersItsFamiliesAndNoOthers) {
  TestedDevice bench;
  for (const char* id : {Blas::kId, NeuralOps::kId, Attention::kId, EmbeddingOps::kId, Elementwise::kId,
                         ReduceOps::kId, FormulaOps::kId, WindowOps::kId, NormalisationOps::kId,
                         PartNormOps::kId, InteractionOps::kId, SparseAxisOps::kId, QuantOps::kId,
                         MorOps::kId, MultiplyOps::kId, Fft::kId, BatchedComplexGemms::kId}) {
    EXPECT_NE(bench.device->query(id), nullptr) << id;
  }
  for (const char* id : {"tenon.device.blas/2", ""}) EXPECT_EQ(bench.device->query(id), nullptr) << id;
}

TEST(DeviceItself, GivesAlignedZeroedMemory) {
  TestedDevice bench("auto", 2);
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, std::int64_t{63}, std::int64_t{4097},
                                   (std::int64_t{9} << 20) + 5}) {
    for (int round = 0; round < 2; ++round) {  // the second round is likely to get used memory
      void* const place = bench.device->allocate(bytes);
      ASSERT_NE(place, nullptr);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(place) % 64, 0u);
      std::vector<std::byte> found(bytes);
      const TensorView memory{place, Shape{bytes}, DType::kU8, bench.device->space()},
          host{found.data(), Shape{bytes}, DType::kU8, MemorySpace::kHost};
      bench.device->copy(memory, host);
      EXPECT_TRUE(std::all_of(found.begin(), found.end(), [](std::byte b) { return b == std::byte{0}; }))
          << bytes;
      std::fill(found.begin(), found.end(), std::byte{0xff});
      bench.device->copy(host, memory);
      bench.device->release(place, bytes);
    }
  }
}

TEST(DeviceItself, SaysWhatItHadNoMemoryFor) {
  TestedDevice bench;
  for (const std::size_t bytes : {std::size_t{1} << 50, SIZE_MAX}) {
    EXPECT_THAT(message_of([&] { bench.device->allocate(bytes); }),
                AllOf(HasSubstr("out of memory"), HasSubstr(std::to_string(bytes))));
  }
}

TEST(DeviceItself, SaysForWhatThereWasNoMemory) {
  TestedDevice bench;
  ParameterInfo info;
  info.spec.name = "much";
  info.spec.shape = info.local = {std::int64_t{1} << 48};
  info.arena = 0;
  EXPECT_THAT(
      message_of([&] { make_parameter_set("live", {info}, *bench.device, SetContents::kEverything); }),
      AllOf(HasSubstr("out of memory"), HasSubstr("(for 'live': much and what lies beside it)")));
}

TEST(DeviceItself, CopiesEqualViewsOnly) {
  TestedDevice bench("auto", 2);
  Device& device = *bench.device;
  const std::int64_t n = 1'000'003;
  const Owned from(device, Shape{n}, DType::kF32, normals(n, "x")), to(device, Shape{n}, DType::kF32),
      other(device, Shape{1, n}, DType::kF32), narrow(device, Shape{n}, DType::kBF16);
  device.copy(from, to);
  EXPECT_EQ(from.bytes(), to.bytes());
  EXPECT_THAT(message_of([&] { device.copy(from, other); }), HasSubstr("[1, 1000003]"));
  EXPECT_THAT(message_of([&] { device.copy(from, narrow); }), HasSubstr("bf16"));
}

}  // namespace
}  // namespace tenon::testing::device_test
