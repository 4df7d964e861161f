// Properties of the CPU device alone: kernel choices, free memory in its refusals, steps without the heap,
// and the implementations of oneDNN that it rejects.
#include "device/device_test.hpp"
#include "convolution.hpp"

#include <tenon/ops/attention.hpp>
#include <tenon/ops/copy.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/ops/ssd.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <sys/mman.h>
#include <unistd.h>

namespace tenon::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(CpuDevice, NamesItsKernelsAndTakesTheNameBack) {
  for (const std::string& choice : offered_choices()) {  // of `cpu` unless the environment names others
    const Bench bench("cpu", choice, 1);
    const std::string name(bench.device->kernel_choice());
    if (choice != "auto") {
      EXPECT_EQ(name, choice);
    }
    const Bench again("cpu", name, 1);
    EXPECT_EQ(again.device->kernel_choice(), name);
  }
  EXPECT_EQ(Bench("cpu", "reference", 1).device->kernel_choice(), "reference");
  EXPECT_THAT(message_of([] { Bench("cpu", "avx9", 1); }),
              AllOf(StartsWith("device cpu: kernels = 'avx9' is not available"), HasSubstr("'auto', "),
                    HasSubstr("'reference'")));
  EXPECT_NE(message_of([] { Bench("cpu", "reference+onednn-0.0.0", 1); }), "");
}

TEST(CpuDevice, LeavesWeightGradientsThatOverrunTheirScratch) {
  struct Case {
    const char* implementation;
    std::int64_t channels;  // the largest number that overruns
  };
  for (const auto& [implementation, most] :
       {Case{"jit_1x1:avx2", 7}, Case{"jit_1x1:avx512_core", 15}, Case{"jit_1x1:avx512_core_bf16", 15},
        Case{"jit:avx2", 0}, Case{"brgconv_1x1:avx512_core", 0}, Case{"x64:gemm:jit", 0}}) {
    for (std::int64_t channels = 1; channels <= 32; ++channels) {
      EXPECT_EQ(cpu::overruns_scratch(implementation, channels, true, true), channels <= most)
          << implementation << ", " << channels << " channels";
      EXPECT_FALSE(cpu::overruns_scratch(implementation, channels, false, true)) << "nothing is gathered";
      EXPECT_FALSE(cpu::overruns_scratch(implementation, channels, true, false)) << "blocks are filled up";
    }
  }
}

// Ratios that were measured far from 1 (bench/README.md); plans at about 1 may change sides.
TEST(CpuDevice, ComputesConvolutionsByTheFasterSide) {
  const auto spec = [](std::int64_t batch, std::int64_t channels, std::int64_t features, std::int64_t side,
                       std::int64_t kernel, std::int64_t padding) {
    ConvolutionSpec of{.window = {}, .batch = batch, .channels = channels, .features = features};
    for (int d = 0; d < 2; ++d) {
      of.window.extent[d] = side, of.window.kernel[d] = kernel;
      of.window.pad_low[d] = of.window.pad_high[d] = padding;
    }
    return of;
  };
  const ConvolutionSpec few_channels = spec(64, 3, 64, 32, 3, 1), one_channel = spec(256, 1, 6, 28, 5, 2),
                        padding_of_a_third = spec(64, 512, 512, 4, 3, 1);
  for (const bool avx512 : {false, true})
    for (int product = 0; product < cpu::kConvolutionProducts; ++product) {
      EXPECT_TRUE(cpu::kernels_are_faster(few_channels, product, avx512)) << product << avx512;
      EXPECT_TRUE(cpu::kernels_are_faster(one_channel, product, avx512)) << product << avx512;
    }
  for (const int product : {cpu::kConvolutionForward, cpu::kConvolutionInput}) {
    EXPECT_FALSE(cpu::kernels_are_faster(padding_of_a_third, product, true)) << product;
  }
}

// Memory that grows with the sequence: states of chunks, which callers keep, and in scratch the gradients of
// B and C of each block of at most 4 heads. One state for each position would be 64 x 64 elements for each
// head.
TEST(CpuDevice, TrainsStateSpaceModelsWithoutAStatePerPosition) {
  Bench bench("cpu", "auto", 2);
  const auto scratch = [&](std::int64_t time, std::int64_t chunk) {
    SsdSpec spec;
    spec.batch = 1, spec.time = time, spec.heads = 16, spec.head_width = 64, spec.groups = 2, spec.state = 64;
    spec.chunk = chunk, spec.columns = 20, spec.steps = {{4, 16}};
    return static_cast<std::int64_t>(bench.device->family<Ssd>().prepare(spec)->scratch_bytes());
  };
  for (const std::int64_t chunk : {64, 256}) {
    const std::int64_t short_one = scratch(2048, chunk), long_one = scratch(16384, chunk);
    constexpr std::int64_t kBlocks = 2, kGroups = 2, kState = 64;
    EXPECT_EQ(long_one - short_one, (16384 - 2048) * kBlocks * kGroups * 2 * kState * 4) << "chunk " << chunk;
    // Workspace of two threads: blocks of 64 x 64 floats, and states before the blocks of one chunk.
    EXPECT_LE(short_one, (2048 * kBlocks * kGroups * 2 * kState + 2 * (22 + 4 * chunk / 64) * 64 * 64) * 4)
        << "chunk " << chunk;
  }
}

TEST(CpuDevice, CopiesHostMemoryOnly) {
  Bench bench("cpu", "auto", 1);
  const Owned from(*bench.device, Shape{3}, DType::kF32), to(*bench.device, Shape{3}, DType::kF32);
  TensorView elsewhere = to;
  elsewhere.space = MemorySpace::kCuda;
  EXPECT_THAT(message_of([&] { bench.device->copy(from, elsewhere); }), HasSubstr("host memory only"));
}

TEST(CpuDevice, SaysHowMuchMemoryWasFree) {
  Bench bench("cpu", "auto", 1);
  for (const std::size_t bytes : {std::size_t{1} << 50, SIZE_MAX}) {
    EXPECT_THAT(
        message_of([&] { bench.device->allocate(bytes); }),
        AllOf(HasSubstr("out of memory"), HasSubstr(std::to_string(bytes)), HasSubstr("MiB are free")));
  }
}

/// Bytes of a block that are in physical memory.
std::int64_t touched_bytes(const void* memory, std::size_t bytes) {
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident(bytes / page);
  EXPECT_EQ(::mincore(const_cast<void*>(memory), bytes, resident.data()), 0);
  return static_cast<std::int64_t>(page) *
         std::count_if(resident.begin(), resident.end(), [](unsigned char one) { return (one & 1) != 0; });
}

#if !defined(__SANITIZE_ADDRESS__)
TEST(CpuDevice, TouchesNoPageOfALargeBlock) {
  Bench bench("cpu", "auto", 2);
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  auto* const block = static_cast<unsigned char*>(bench.device->allocate(kBytes));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (std::size_t{2} << 20), 0u);
  EXPECT_EQ(touched_bytes(block, kBytes), 0);
  for (std::size_t i = 0; i < kBytes; i += 4096) ASSERT_EQ(block[i], 0) << i;
  std::memset(block, 7, kBytes);
  bench.device->release(block, kBytes);
  auto* const again = static_cast<unsigned char*>(bench.device->allocate(kBytes));
  EXPECT_TRUE(std::all_of(again, again + kBytes, [](unsigned char one) { return one == 0; }))
      << "a block in the place of one that was released";
  bench.device->release(again, kBytes);
}

// An untouched block takes from the memory that is free for the next.
TEST(CpuDevice, CountsMemoryThatBlocksWillTake) {
  Bench bench("cpu", "auto", 1);
  const auto largest = [&] {
    const std::string said = message_of([&] { bench.device->allocate(std::size_t{1} << 50); });
    const std::string sign = "were asked for, ";
    return std::atof(said.c_str() + said.find(sign) + sign.size());  // "N MiB are free"
  };
  const double free = largest();
  const auto half = static_cast<std::size_t>(0.5 * free) << 20;
  void* const block = bench.device->allocate(half);
  EXPECT_NEAR(largest(), 0.5 * free, 0.2 * free) << "others of this machine take and give memory too";
  const auto most = static_cast<std::size_t>(0.8 * free) << 20;
  EXPECT_THAT(message_of([&] { bench.device->allocate(most); }), HasSubstr("out of memory"));
  bench.device->release(block, half);
  EXPECT_NEAR(largest(), free, 0.2 * free);
}
#endif

TEST(CpuDevice, TakesNoMemoryInAStep) {
  Bench bench("cpu", "auto", 1);
  Device& device = *bench.device;
  constexpr std::int64_t kRows = 40, kColumns = 70;
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16}) {
    const DType wide = arithmetic(dtype);
    const Shape matrix{kRows, kColumns}, column{kColumns}, row{kRows};
    const Owned x(device, matrix, dtype), y(device, matrix, dtype), gain(device, column, wide),
        mean(device, row, wide), rstd(device, row, wide),
        targets(device, row, DType::kI32, std::vector<double>(kRows, 0.0)), w(device, matrix, wide),
        g(device, matrix, wide), m(device, matrix, wide), v(device, matrix, wide);
    auto& neural = device.family<NeuralOps>();
    auto& embedding = device.family<EmbeddingOps>();
    auto& elementwise = device.family<Elementwise>();
    auto& reduce = device.family<ReduceOps>();
    const auto attention = device.family<Attention>().prepare(
        {.batch = 4, .time = 10, .heads = 7, .head_width = 10, .dtype = dtype});
    const Owned scratch(device, Shape{static_cast<std::int64_t>(attention->scratch_bytes())}, DType::kU8),
        lse(device, Shape{4, 7, 10}, wide);
    const RuleEvaluator evaluate(&device.family<FormulaOps>());
    const TensorView tensors[] = {w, g, m, v};
    double sink = 0, squares[2];
    evaluate(LambMomentsRule{}, tensors, squares);  // the thread keeps the memory for sums
    const int count = own_allocations([&] {
      neural.layer_norm(x, gain, gain, 1e-5, y, mean, rstd);
      neural.layer_norm_backward(x, gain, mean, rstd, y, y, true, gain, gain, true, {});
      neural.activation(Epilogue::kGeluTanh, x, y);
      neural.activation_backward(Epilogue::kGeluTanh, x, y, y, true);
      neural.dropout(x, y, 0.1, {}, 0, 0, true);
      neural.softmax_cross_entropy(x, targets, 0.1, mean, rstd);
      neural.softmax_cross_entropy_backward(x, targets, 0.1, rstd, 1, y);
      embedding.gather(w, targets, y, true);
      embedding.scatter_add(y, targets, w, {});
      elementwise.axpy(1, x, y);
      elementwise.convert(x, w);
      elementwise.add_bias(x, gain, y);
      reduce.sum_rows(x, gain, true, {});
      sink += reduce.sum(x) + reduce.sum_of_squares(x) + reduce.absolute_max(x);
      sink += static_cast<double>(reduce.first_non_finite(x));
      evaluate(AdamWRule({.lr = 0.1}), tensors);
      evaluate(LambMomentsRule{}, tensors, squares);
      // The plain loops that compute attention in f64 keep their logits on the heap.
      if (dtype == DType::kF64) return;
      const auto view = [&](const Owned& tensor) { return TensorView(tensor).reshaped(Shape{4, 10, 70}); };
      attention->forward(view(x), view(x), view(x), {}, view(y), lse, scratch);
    });
    EXPECT_EQ(count, 0) << dtype_name(dtype) << " " << sink;
  }
}

}  // namespace
}  // namespace tenon::testing
