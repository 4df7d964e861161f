// Every quantizer against numbers that NumPy and ml_dtypes made from formulas (tests/reference/quantize.py):
// codes, block scales and tensor scales, bit for bit, for every kernel set of this machine.
#include "reference/recorded.hpp"

#include "quantizing.hpp"

namespace tenon::kernels::testing {
namespace {

std::vector<float> floats(const tenon::testing::Recorded& recorded, const std::string& name) {
  std::vector<float> values;
  for (const double bits : recorded.values(name))
    values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  return values;
}

std::vector<std::uint8_t> bytes(const tenon::testing::Recorded& recorded, const std::string& name) {
  const std::vector<double> values = recorded.values(name);
  return {values.begin(), values.end()};
}

struct Named {
  std::string name;
  Format format;
};

std::vector<Named> cases() {
  const auto drawn = [](Format format, int bits) {
    format.stochastic = true;
    format.random_bits = bits;
    format.key = 0x0123456789ABCDEFu;
    format.step = 7;
    format.micro = 2;
    format.origin_row = 160;
    format.origin_column = 32;
    return format;
  };
  Format rotated = kNvfp4Down, six = kNvfp4, square_six = kNvfp4Square;
  rotated.rotate = true;
  six.four_over_six = square_six.four_over_six = true;
  std::vector<Named> result = {
      {"nvfp4", kNvfp4},
      {"nvfp4_2d", kNvfp4Square},
      {"nvfp4_down", kNvfp4Down},
      {"nvfp4_rotated", rotated},
      {"nvfp4_four_over_six", six},
      {"nvfp4_2d_four_over_six", square_six},
      {"nvfp4_stochastic8", drawn(kNvfp4, 8)},
      {"nvfp4_rotated_stochastic8", drawn(rotated, 8)},
      {"nvfp4_down_stochastic24", drawn(kNvfp4Down, 24)},
      {"fp8_e4m3", kFp8},
      {"fp8_e5m2", {.element = Element::kE5M2, .scaling = Scaling::kTensor}},
      {"fp8_block", {.element = Element::kE4M3, .scaling = Scaling::kFloat, .block_columns = 32}},
      {"fp8_block_2d",
       {.element = Element::kE4M3, .scaling = Scaling::kFloat, .block_rows = 32, .block_columns = 32}},
  };
  const std::pair<const char*, Element> elements[] = {{"e2m1", Element::kE2M1},
                                                      {"e2m3", Element::kE2M3},
                                                      {"e3m2", Element::kE3M2},
                                                      {"e4m3", Element::kE4M3},
                                                      {"e5m2", Element::kE5M2}};
  const std::pair<const char*, PowerRule> rules[] = {{"floor", PowerRule::kFloor},
                                                     {"ceil", PowerRule::kCeil},
                                                     {"even", PowerRule::kEven},
                                                     {"rceil", PowerRule::kRoundUp}};
  for (const auto& [element_name, element] : elements)
    for (const auto& [rule_name, rule] : rules)
      result.push_back(
          {std::string("mx_") + element_name + "_" + rule_name,
           {.element = element, .scaling = Scaling::kPower, .block_columns = 32, .power = rule}});
  return result;
}

TEST(RecordedQuantizers, ElementsAreTheRecordedOnes) {
  const tenon::testing::Recorded recorded("quantize");
  const std::vector<float> x = floats(recorded, "elements.x");
  for (const auto& [name, element] : {std::pair{"e2m1", Element::kE2M1},
                                      {"e2m3", Element::kE2M3},
                                      {"e3m2", Element::kE3M2},
                                      {"e4m3", Element::kE4M3},
                                      {"e5m2", Element::kE5M2}}) {
    const std::vector<std::uint8_t> codes = bytes(recorded, std::string("elements.") + name);
    ASSERT_EQ(codes.size(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      ASSERT_EQ(encode(x[i], element), codes[i]) << name << " " << std::hexfloat << x[i];
  }
}

template <class S>
void compare(const KernelTable& set, const tenon::testing::Recorded& recorded, const std::string& kind) {
  constexpr std::int64_t kRows = 37, kColumns = 72;
  std::vector<S> x;
  for (const float value : floats(recorded, kind + ".x")) x.push_back(reference::put<S>(value));
  for (const auto& [name, format] : cases()) {
    SCOPED_TRACE(kind + " " + name + " " + set.name);
    const std::string at = kind + "." + name;
    const auto q = quantize_matrix(x, kRows, kColumns, format, set);
    const std::vector<float> numbers = floats(recorded, at + ".numbers");
    EXPECT_EQ(q.tensor.encode, numbers[0]);
    EXPECT_EQ(q.tensor.decode, numbers[1]);
    EXPECT_EQ(q.codes, bytes(recorded, at + ".codes"));
    if (format.scaling == Scaling::kFloat) {
      EXPECT_TRUE(same_bits(q.float_scales, floats(recorded, at + ".scales")));
    } else if (format.scaling != Scaling::kTensor) {
      EXPECT_EQ(q.scales, bytes(recorded, at + ".scales"));
    }
  }
}

TEST(RecordedQuantizers, MatricesAreTheRecordedOnes) {
  const tenon::testing::Recorded recorded("quantize");
  for (const KernelTable* set : all_sets()) {
    compare<float>(*set, recorded, "f32");
    compare<Bf16>(*set, recorded, "bf16");
  }
}

}  // namespace
}  // namespace tenon::kernels::testing
