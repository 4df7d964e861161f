// Mixtures of representations of this device: against the plain reference bit for bit, against numbers
// recorded with NumPy, and refusals.
#include "device_test.hpp"
#include "reference/recorded.hpp"

#include <tenon/kernels/reference/mor.hpp>
#include <tenon/sdk/ops/mor.hpp>

#include <nlohmann/json.hpp>

#include <cmath>
#include <fstream>

namespace tenon::testing::mor_test {
namespace {

using kernels::Bf16;

struct Mor {
  std::vector<Bf16> values;
  std::vector<std::uint8_t> choices;
  MorDecision decision;
};

template <class S>
Mor run(Device& device, const MorSpec& spec, const std::vector<S>& x) {
  const auto kernel = device.family<MorOps>().prepare(spec);
  const Shape shape{spec.rows, spec.columns};
  Owned input(device, shape, spec.input), choices(device, {kernel->blocks()}, DType::kU8);
  const Owned values(device, shape, DType::kBF16),
      scratch(device, {static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
  input.put(x);
  choices.put(std::vector<std::uint8_t>(kernel->blocks(), 9));
  Mor result;
  result.decision = kernel->run(input, values, choices, scratch);
  result.values = values.elements<Bf16>();
  result.choices = choices.elements<std::uint8_t>();
  return result;
}

kernels::MorArgs args_of(const MorSpec& spec, const std::vector<Bf16>& x) {
  kernels::MorArgs args;
  args.x = x.data();
  args.rows = spec.rows, args.columns = spec.columns;
  args.block_rows = spec.block_rows > 0 ? spec.block_rows : spec.rows;
  args.block_columns = spec.block_columns > 0 ? spec.block_columns : spec.columns;
  args.strategy = static_cast<kernels::MorStrategy>(spec.strategy);
  args.mode = static_cast<kernels::MorMode>(spec.mode);
  args.threshold = spec.threshold;
  args.e2m3 = spec.e2m3;
  return args;
}

void expect_reference(const Mor& found, const MorSpec& spec, const std::vector<Bf16>& x,
                      const std::string& what) {
  std::vector<Bf16> values(x.size());
  std::vector<std::uint8_t> choices(found.choices.size(), 8);
  const kernels::MorResult result = kernels::reference::mor(args_of(spec, x), values.data(), choices.data());
  EXPECT_EQ(std::memcmp(found.values.data(), values.data(), values.size() * 2), 0) << what;
  EXPECT_EQ(found.choices, choices) << what;
  EXPECT_EQ(found.decision.error, result.error) << what;
  EXPECT_EQ(found.decision.non_zero, result.non_zero) << what;
  EXPECT_EQ(found.decision.finite, result.finite) << what;
  EXPECT_EQ(std::memcmp(&found.decision.amax, &result.amax, 4), 0) << what;
  EXPECT_EQ(static_cast<int>(found.decision.tensor), static_cast<int>(result.tensor)) << what;
  for (int c = 0; c < 4; ++c) {
    EXPECT_EQ(found.decision.blocks[c], result.blocks[c]) << what << " choice " << c;
    EXPECT_EQ(found.decision.elements[c], result.elements[c]) << what << " choice " << c;
  }
}

/// z exp(spread z'), some of it zero, some of it tiny.
std::vector<Bf16> numbers(std::int64_t count, double spread, const char* purpose) {
  const auto z = normals(count, purpose), tail = normals(count, "tail"), holes = normals(count, "holes");
  std::vector<Bf16> x;
  for (std::size_t i = 0; i < z.size(); ++i) {
    const double value =
        std::fabs(holes[i]) < 0.1 ? (z[i] > 0 ? 0.0 : -0.0) : z[i] * std::exp(spread * tail[i]);
    x.push_back(kernels::to_bf16(static_cast<float>(value)));
  }
  return x;
}

TEST(MorKernel, EqualsTheReferenceBitForBit) {
  struct Partition {
    std::int64_t rows, columns;
  };
  for (const int threads : {1, 2}) {
    TestedDevice bench("auto", threads);
    set_parallel_threads(threads);
    Device& device = *bench.device;
    for (const Shape& shape : {Shape{300, 257}, Shape{128, 128}, Shape{1, 40}, Shape{40, 1}}) {
      for (const double spread : {0.0, 1.5, 6.0, 14.0}) {
        const auto x = numbers(shape.elements(), spread, "mor");
        for (const Partition& partition : {Partition{128, 128}, {1, 0}, {0, 1}, {0, 0}, {16, 48}, {200, 7}}) {
          for (const MorMode mode : {MorMode::kTensor, MorMode::kQuantError, MorMode::kDynamicRange}) {
            for (const MorStrategy strategy :
                 {MorStrategy::kGam, MorStrategy::kBlock, MorStrategy::kE8, MorStrategy::kCurrent}) {
              if (mode != MorMode::kTensor && strategy == MorStrategy::kCurrent) continue;
              MorSpec spec{.rows = shape[0], .columns = shape[1]};
              spec.block_rows = partition.rows, spec.block_columns = partition.columns;
              spec.strategy = strategy;
              spec.mode = mode;
              spec.e2m3 = mode == MorMode::kDynamicRange && spread == 0;
              expect_reference(run(device, spec, x), spec, x,
                               shape.text() + " spread " + std::to_string(spread) + " blocks " +
                                   std::to_string(partition.rows) + "x" + std::to_string(partition.columns) +
                                   " mode " + std::to_string(static_cast<int>(mode)) + " strategy " +
                                   std::to_string(static_cast<int>(strategy)));
              if (HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

TEST(MorKernel, RoundsFloatsToBf16First) {
  TestedDevice bench("auto", 2);
  Device& device = *bench.device;
  std::vector<float> x;
  for (const double value : normals(200 * 100, "floats")) x.push_back(static_cast<float>(value));
  std::vector<Bf16> rounded;
  for (const float value : x) rounded.push_back(kernels::to_bf16(value));
  for (const double threshold : {0.045, 0.0}) {
    MorSpec spec{.rows = 200, .columns = 100, .input = DType::kF32};
    spec.threshold = threshold;
    expect_reference(run(device, spec, x), spec, rounded, "f32");
  }
}

TEST(MorKernel, P39_WhatIsNotFiniteIsPassedOn) {
  TestedDevice bench("auto", 2);
  Device& device = *bench.device;
  for (const std::uint16_t bad : {0x7f80, 0xff80, 0x7fc1, 0xffc0}) {
    auto x = numbers(300 * 40, 1, "mor");
    x[7777] = Bf16{bad};
    for (const MorMode mode : {MorMode::kTensor, MorMode::kQuantError, MorMode::kDynamicRange}) {
      MorSpec spec{.rows = 300, .columns = 40};
      spec.mode = mode;
      const Mor found = run(device, spec, x);
      EXPECT_FALSE(found.decision.finite);
      expect_reference(found, spec, x, std::to_string(bad));
      EXPECT_EQ(std::memcmp(found.values.data(), x.data(), x.size() * 2), 0);
    }
  }
}

TEST(MorKernel, P40_AHeavyTailFallsBackInOneScaleAndNotInBlocks) {
  TestedDevice bench("auto", 2);
  Device& device = *bench.device;
  const std::int64_t n = 2048;
  const auto z = normals(n * n, "z"), tail = normals(n * n, "tail");
  std::vector<Bf16> heavy, plain;
  for (std::size_t i = 0; i < z.size(); ++i) {
    heavy.push_back(kernels::to_bf16(static_cast<float>(z[i] * std::exp(1.5 * tail[i]))));
    plain.push_back(kernels::to_bf16(static_cast<float>(z[i])));
  }
  // The error under one scale depends on the largest number, which a sample of this tail leaves to chance.
  heavy[n * n / 2] = kernels::to_bf16(20000.0f);
  MorSpec spec{.rows = n, .columns = n};
  EXPECT_EQ(run(device, spec, heavy).decision.tensor, MorChoice::kE4M3) << "128x128 GAM";
  spec.block_rows = 1, spec.block_columns = 0;
  EXPECT_EQ(run(device, spec, heavy).decision.tensor, MorChoice::kE4M3) << "rows";
  spec.block_rows = spec.block_columns = 0;
  EXPECT_EQ(run(device, spec, heavy).decision.tensor, MorChoice::kKeep) << "one block";
  spec.strategy = MorStrategy::kCurrent;
  spec.block_rows = spec.block_columns = 128;
  EXPECT_EQ(run(device, spec, heavy).decision.tensor, MorChoice::kKeep) << "one scale";
  for (const std::int64_t block : {0, 128}) {
    spec.block_rows = spec.block_columns = block;
    EXPECT_NEAR(run(device, spec, plain).decision.error, 0.0225, 0.0005);
  }
}

TEST(MorKernel, EqualsWhatNumPyRecorded) {
  TestedDevice bench("auto", 2);
  Device& device = *bench.device;
  const Recorded recorded("mor");
  const auto record =
      nlohmann::json::parse(std::ifstream(std::string(TENON_SOURCE_DIR) + "/tests/reference/mor.json"));
  const std::map<std::string, MorStrategy> strategies = {{"gam", MorStrategy::kGam},
                                                         {"block", MorStrategy::kBlock},
                                                         {"e8", MorStrategy::kE8},
                                                         {"current", MorStrategy::kCurrent}};
  const std::map<std::string, MorMode> levels = {
      {"tensor", MorMode::kTensor}, {"sub2", MorMode::kQuantError}, {"sub3", MorMode::kDynamicRange}};
  int cases = 0;
  for (const auto& [name, options] : record.at("cases").items()) {
    const std::string matrix = name.substr(0, name.find('_'));
    std::vector<Bf16> x;
    for (const double value : recorded.values(matrix + ".x"))
      x.push_back(kernels::to_bf16(static_cast<float>(value)));
    MorSpec spec{.rows = recorded.shape(matrix + ".x")[0], .columns = recorded.shape(matrix + ".x")[1]};
    spec.block_rows = options.at("rows");
    spec.block_columns = options.at("columns");
    spec.strategy = strategies.at(options.at("strategy"));
    spec.mode = levels.at(options.at("level"));
    spec.e2m3 = options.at("e2m3");
    const Mor found = run(device, spec, x);
    std::vector<double> values;
    for (const Bf16 value : found.values) values.push_back(static_cast<double>(kernels::to_float(value)));
    EXPECT_EQ(values, recorded.values(name + ".values")) << name;
    EXPECT_EQ(std::vector<double>(found.choices.begin(), found.choices.end()),
              recorded.values(name + ".choices"))
        << name;
    // Sums of at most 128 terms in f32: 128 roundings of 2^-24 each.
    const double error = recorded.values(name + ".error")[0];
    EXPECT_NEAR(found.decision.error, error, error * 128 * 0x1p-24) << name;
    ++cases;
  }
  EXPECT_EQ(cases, 132);
}

TEST(MorKernel, AllocatesNothing) {
  TestedDevice bench;
  set_parallel_threads(1);
  Device& device = *bench.device;
  const auto kernel = device.family<MorOps>().prepare({.rows = 300, .columns = 200});
  const Shape shape{300, 200};
  Owned x(device, shape, DType::kBF16);
  const Owned values(device, shape, DType::kBF16),
      scratch(device, {static_cast<std::int64_t>(kernel->scratch_bytes())}, DType::kU8);
  x.put(numbers(300 * 200, 1, "mor"));
  expect_no_allocations(device, [&] { kernel->run(x, values, {}, scratch); });
}

TEST(MorKernel, RefusesWhatIsNotDefined) {
  TestedDevice bench;
  auto& mor = bench.device->family<MorOps>();
  const auto refusal = [&](const MorSpec& spec) -> std::string {
    try {
      mor.prepare(spec);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return error.what();
    }
    return "";
  };
  MorSpec spec{.rows = 4, .columns = 4};
  spec.mode = MorMode::kQuantError;
  spec.strategy = MorStrategy::kCurrent;
  EXPECT_EQ(refusal(spec),
            device_says("mixture of representations per block asks whether a block's own span fits a format, "
                        "so its "
                        "scale must follow the block: strategy gam, block or e8, not current"));
  spec = {.rows = 4, .columns = 4, .input = DType::kF64};
  EXPECT_EQ(refusal(spec), device_says("mixture of representations reads bf16 and f32, not f64"));
  spec = {.rows = 4, .columns = 4, .block_rows = -1};
  EXPECT_EQ(
      refusal(spec),
      device_says("mixture of representations of [4, 4] in blocks of -1x128: no extent may be negative"));
  spec = {.rows = 4, .columns = 4};
  spec.threshold = std::nan("");
  EXPECT_EQ(refusal(spec), device_says("the threshold of a mean relative error is at least 0, found nan"));
}

}  // namespace
}  // namespace tenon::testing::mor_test
