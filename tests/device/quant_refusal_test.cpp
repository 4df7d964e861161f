// Combinations that have no quantizer, and the reason given, word for word.
#include "device_test.hpp"

#include <tenon/ops/quant.hpp>

namespace tenon::testing::quant_refusal_test {
namespace {

struct Refusal {
  QuantizeSpec spec;
  const char* reason;
};

QuantizeSpec two_level(std::int64_t rows, std::int64_t columns) {
  return {.rows = 48, .columns = 40, .block_rows = rows, .block_columns = columns};
}
QuantizeSpec with(QuantizeSpec spec, auto change) {
  change(spec);
  return spec;
}

const Refusal kRefusals[] = {
    {{.rows = -1, .columns = 16}, "a matrix cannot be -1x16"},
    {{.rows = 1, .columns = 16, .input = DType::kF64}, "input is f64; use f32 or bf16"},
    {with(two_level(1, 16), [](auto& s) { s.element = ElementFormat::kE4M3; }),
     "two-level scales belong to e2m1, found e4m3"},
    {with(two_level(1, 32), [](auto&) {}),
     "two-level scales belong to blocks of 1x16, 16x1 or 16x16, found 1x32"},
    {with(two_level(1, 16), [](auto& s) { s.scale = BlockScale::kTensor; }),
     "f32 scales belong to e4m3 and e5m2, found e2m1"},
    {with(two_level(1, 128),
          [](auto& s) {
            s.scale = BlockScale::kFloat;
            s.element = ElementFormat::kE3M2;
          }),
     "f32 scales belong to e4m3 and e5m2, found e3m2"},
    {with(two_level(0, 32), [](auto& s) { s.scale = BlockScale::kPower; }),
     "blocks have at least one row and one column, found 0x32"},
    {with(two_level(1, 16),
          [](auto& s) {
            s.rounding = RoundingMode::kStochastic;
            s.random_bits = 16;
          }),
     "stochastic rounding takes 8 or 24 random bits, found 16"},
    {with(two_level(16, 16), [](auto& s) { s.rotate = true; }),
     "the 16-point rotation needs blocks of 1x16 or 16x1, found 16x16"},
    {with(two_level(1, 32),
          [](auto& s) {
            s.scale = BlockScale::kPower;
            s.rotate = true;
          }),
     "the 16-point rotation needs blocks of 1x16 or 16x1, found 1x32"},
    {with(two_level(1, 16),
          [](auto& s) {
            s.scale = BlockScale::kTensor;
            s.element = ElementFormat::kE4M3;
            s.rotate = true;
          }),
     "the 16-point rotation needs blocks of 1x16 or 16x1; one scale for the whole matrix has no blocks"},
    {with(two_level(1, 16), [](auto& s) { s.rotate = true; }),
     "the 16-point rotation along rows needs a multiple of 16 columns, found 40; only rows can be padded"},
    {with(two_level(1, 16),
          [](auto& s) {
            s.four_over_six = true;
            s.rounding = RoundingMode::kStochastic;
          }),
     "four over six is not defined together with stochastic rounding: the errors that it compares are those "
     "of "
     "rounding to nearest"},
    {with(two_level(16, 1),
          [](auto& s) {
            s.four_over_six = true;
            s.rotate = true;
          }),
     "four over six is not defined together with rotation"},
    {with(two_level(1, 32),
          [](auto& s) {
            s.scale = BlockScale::kPower;
            s.four_over_six = true;
          }),
     "four over six chooses between two-level scales; other scales have one candidate"},
    {with(two_level(1, 32),
          [](auto& s) {
            s.scale = BlockScale::kPower;
            s.line_scale = true;
          }),
     "a scale per line belongs to two-level scales"},
    {with(two_level(16, 16), [](auto& s) { s.line_scale = true; }),
     "a scale per line needs blocks of one row or one column, found 16x16"},
};

TEST(Quantizers, RefuseWhatIsNotDefinedAndSayWhy) {
  TestedDevice bench;
  auto& ops = bench.device->family<QuantOps>();
  for (const auto& [spec, reason] : kRefusals) {
    try {
      ops.quantizer(spec);
      ADD_FAILURE() << "accepted: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()), device_says("quantizer: ") + reason);
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    }
  }
}

TEST(Quantizers, RefuseViewsOfOtherSizes) {
  TestedDevice bench;
  Device& device = *bench.device;
  const auto quantizer = device.family<QuantOps>().quantizer({.rows = 4, .columns = 32});
  Owned x(device, {4, 32}, DType::kBF16), small(device, {4, 31}, DType::kBF16);
  const auto message = [&](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  // The rest of the message, about memory, differs between devices.
  const auto says = [](const char* words) {
    return ::testing::StartsWith(device_says("quantizer: ") + words);
  };
  EXPECT_THAT(message([&] { quantizer->amax(small, {}); }),
              says("x is bf16 [4, 31], expected 128 elements of bf16"));
  EXPECT_THAT(message([&] {
                quantizer->run(x, 1, {}, {small, {}, {}, {}}, {}, nullptr);
              }),
              says("values is bf16 [4, 31], expected 128 elements of bf16"));
  EXPECT_THAT(message([&] {
                quantizer->run(x, 1, {}, {{}, small, {}, {}}, {}, nullptr);
              }),
              says("codes is bf16 [4, 31], expected 64 elements of u8"));
  QuantizeStats stats;
  EXPECT_THAT(message([&] { quantizer->run(x, 1, {}, {}, {}, &stats); }),
              says("measuring needs the values that quantizing writes, found none"));
  EXPECT_THAT(message([&] {
                quantizer->run(x, 1, {}, {x, {}, {}, {}}, {}, &stats);
              }),
              says("scratch has 0 bytes, expected "));
  EXPECT_THAT(message([&] { quantizer->decode({}, {}, x); }), says("decoding needs codes, found none"));
}

}  // namespace
}  // namespace tenon::testing::quant_refusal_test
