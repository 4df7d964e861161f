// Conversion of weights: every rounding against a search for the nearest value. Rules of names in both
// directions, and rules that contradict their parameters.
#include "export_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <numeric>

namespace tenon::cli {
namespace {

double of_bf16(std::uint32_t bits) {
  return std::bit_cast<float>(bits << 16);
}

template <typename From, typename To>
To converted(DType from, From value, double factor, DType to) {
  const auto bytes = convert_elements(from, std::as_bytes(std::span(&value, 1)), factor, to);
  To result;
  EXPECT_EQ(bytes.size(), sizeof result);
  std::memcpy(&result, bytes.data(), sizeof result);
  return result;
}

std::uint16_t bf16(double value) {
  return converted<double, std::uint16_t>(DType::kF64, value, 1, DType::kBF16);
}

TEST(Conversion, RoundsDoublesToTheNearestBf16AtOnce) {
  // Neighbours, midpoints, and both sides of midpoints closer than a float can tell.
  for (const std::uint32_t bits : {0x0000u, 0x0001u, 0x007fu, 0x0080u, 0x3f80u, 0x3f81u, 0x4049u, 0x7f7eu}) {
    const double low = of_bf16(bits), high = of_bf16(bits + 1), middle = low + (high - low) / 2;
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    EXPECT_EQ(bf16(low), bits);
    EXPECT_EQ(bf16(middle), even) << bits;
    EXPECT_EQ(bf16(std::nextafter(middle, 1e300)), bits + 1) << bits;
    EXPECT_EQ(bf16(std::nextafter(middle, -1e300)), bits) << bits;
    EXPECT_EQ(bf16(-std::nextafter(middle, 1e300)), 0x8000u | (bits + 1)) << bits;
  }
  EXPECT_EQ(bf16(1e39), 0x7f80) << "beyond the largest";
  EXPECT_EQ(bf16(-std::numeric_limits<double>::infinity()), 0xff80);
  EXPECT_TRUE(std::isnan(of_bf16(bf16(std::nan("")))));
}

TEST(Conversion, ScalesAndKeepsWhatFits) {
  EXPECT_EQ((converted<float, float>(DType::kF32, 3.0f, 0.5, DType::kF32)), 1.5f);
  EXPECT_EQ((converted<double, double>(DType::kF64, 0.1, 3, DType::kF64)), 0.1 * 3);
  EXPECT_EQ((converted<double, float>(DType::kF64, 0.1, 1, DType::kF32)), 0.1f);
  EXPECT_EQ((converted<std::uint16_t, float>(DType::kBF16, 0x3fc0, 1, DType::kF32)), 1.5f);
  const std::pair<std::uint16_t, float> halves[] = {{0x3c00, 1.0f},     {0xc000, -2.0f},
                                                    {0x0001, 0x1p-24f}, {0x03ff, 1023 * 0x1p-24f},
                                                    {0x7bff, 65504.0f}, {0x8000, -0.0f}};
  for (const auto& [bits, value] : halves)
    EXPECT_EQ((converted<std::uint16_t, float>(DType::kF16, bits, 1, DType::kF32)), value);
  EXPECT_TRUE(std::isinf(converted<std::uint16_t, float>(DType::kF16, 0x7c00, 1, DType::kF32)));
}

using Tensors = std::map<std::string, std::vector<float>>;

/// Tensor `target` of a side, made from the tensors of the other one.
std::vector<float> made(const NameGroup& group, Direction direction, std::size_t target,
                        const Tensors& from) {
  std::vector<float> result;
  const ReadRows read = [&](const StoredTensor& tensor, std::int64_t row, std::int64_t rows,
                            std::span<std::byte> out) {
    const std::vector<float>& values = from.at(tensor.name);
    const std::size_t columns = tensor.shape.rank() == 0 ? 1 : values.size() / tensor.shape[0];
    ASSERT_EQ(out.size(), rows * columns * sizeof(float));
    std::memcpy(out.data(), values.data() + row * columns, out.size());
  };
  translate(group, direction, target, DType::kF32, read, [&](TensorView piece) {
    const auto values = piece.span<float>();
    result.insert(result.end(), values.begin(), values.end());
  });
  return result;
}

std::vector<float> counted(std::int64_t elements, float from) {
  std::vector<float> values(elements);
  std::iota(values.begin(), values.end(), from);
  return values;
}

const std::vector<StoredTensor> kParameters{{"a", DType::kF32, {1, 3}},
                                            {"b", DType::kF32, {2, 3}},
                                            {"bias", DType::kF32, {4}},
                                            {"c", DType::kF32, {3, 2}},
                                            {"scalar", DType::kF32, {}}};
const Tensors kValues{{"a", counted(3, 1)},
                      {"b", counted(6, 4)},
                      {"bias", counted(4, 20)},
                      {"c", counted(6, 30)},
                      {"scalar", {7}}};

TEST(Names, RulesJoinSplitTransposeAndScaleInBothDirections) {
  NamePlan plan;
  plan.rules = {{.here = {"a", "b"}, .there = {"ab"}, .factor = 0.5, .transposed = true},
                {.here = {"c"}, .there = {"c0", "c1"}, .rows = {1, 2}},
                {.here = {"bias"}, .there = {"other.bias"}, .factor = 4}};
  const std::vector<NameGroup> groups = name_groups(plan, kParameters, "here");
  ASSERT_EQ(groups.size(), 4u) << "three rules, and the scalar";
  EXPECT_EQ(groups[0].there[0].shape, (Shape{3, 3}));
  Tensors there;
  for (const NameGroup& group : groups)
    for (std::size_t i = 0; i < group.there.size(); ++i)
      there[group.there[i].name] = made(group, Direction::kExport, i, kValues);
  EXPECT_EQ(there, (Tensors{{"ab", {0.5f, 2, 3.5f, 1, 2.5f, 4, 1.5f, 3, 4.5f}},
                            {"c0", {30, 31}},
                            {"c1", {32, 33, 34, 35}},
                            {"other.bias", {80, 84, 88, 92}},
                            {"scalar", {7}}}));
  Tensors back;
  for (const NameGroup& group : groups)
    for (std::size_t i = 0; i < group.here.size(); ++i)
      back[group.here[i].name] = made(group, Direction::kImport, i, there);
  EXPECT_EQ(back, kValues);
}

TEST(Names, SplitAndTransposedTensorsComeBack) {
  NamePlan plan;
  plan.rules = {{.here = {"c"}, .there = {"c0", "c1"}, .transposed = true, .rows = {1, 2}}};
  const NameGroup group = name_groups(plan, kParameters, "here")[0];
  const Tensors there{{"c0", made(group, Direction::kExport, 0, kValues)},
                      {"c1", made(group, Direction::kExport, 1, kValues)}};
  EXPECT_EQ(there, (Tensors{{"c0", {30, 31}}, {"c1", {32, 34, 33, 35}}}));
  EXPECT_EQ(made(group, Direction::kImport, 0, there), kValues.at("c"));
}

TEST(Names, BlocksOrderRowsThereAndBack) {
  // Rows of a and b joined: 0 [1 2 3], 1 [4 5 6], 2 [7 8 9].
  const struct {
    NameRule rule;
    Tensors there;
  } cases[] = {
      {{.here = {"a", "b"}, .there = {"ab"}, .blocks = {{1, 2}, {0, 1}}},
       {{"ab", {4, 5, 6, 7, 8, 9, 1, 2, 3}}}},
      {{.here = {"a", "b"}, .there = {"ab"}, .blocks = {{2, 1}, {0, 1}, {1, 1}}},
       {{"ab", {7, 8, 9, 1, 2, 3, 4, 5, 6}}}},
      {{.here = {"a", "b"}, .there = {"ab"}, .transposed = true, .blocks = {{2, 1}, {0, 1}, {1, 1}}},
       {{"ab", {7, 1, 4, 8, 2, 5, 9, 3, 6}}}},
      {{.here = {"c"}, .there = {"c0", "c1"}, .rows = {1, 2}, .blocks = {{2, 1}, {0, 2}}},
       {{"c0", {34, 35}}, {"c1", {30, 31, 32, 33}}}},
      {{.here = {"bias"}, .there = {"bias"}, .blocks = {{3, 1}, {1, 2}, {0, 1}}},
       {{"bias", {23, 21, 22, 20}}}},
  };
  for (const auto& c : cases) {
    NamePlan plan;
    plan.rules = {c.rule};
    const NameGroup group = name_groups(plan, kParameters, "here")[0];
    Tensors there;
    for (std::size_t i = 0; i < group.there.size(); ++i)
      there[group.there[i].name] = made(group, Direction::kExport, i, kValues);
    EXPECT_EQ(there, c.there);
    for (std::size_t i = 0; i < group.here.size(); ++i)
      EXPECT_EQ(made(group, Direction::kImport, i, there), kValues.at(group.here[i].name));
  }
}

TEST(Names, LongTensorsPassInPieces) {
  const std::int64_t rows = 3000, columns = 1000;  // 12 MB
  const std::vector<StoredTensor> parameters{{"w", DType::kF32, {rows, columns}}};
  const Tensors values{{"w", counted(rows * columns, 0)}};
  const NameGroup group = name_groups({}, parameters, "here")[0];
  int pieces = 0;
  translate(
      group, Direction::kExport, 0, DType::kF32,
      [](const StoredTensor&, std::int64_t, std::int64_t, std::span<std::byte>) {},
      [&](TensorView piece) {
        ++pieces;
        EXPECT_LE(piece.bytes(), 4 << 20);
      });
  EXPECT_EQ(pieces, 3);
  EXPECT_EQ(made(group, Direction::kExport, 0, values), values.at("w"));
}

TEST(Names, RefusesRulesThatContradictTheParameters) {
  const struct {
    std::vector<NameRule> rules;
    ErrorKind kind;
    const char* says;
  } cases[] = {
      {{{.here = {"none"}, .there = {"x"}}},
       ErrorKind::kConfig,
       "name for 'none' in other programs, and here"},
      {{{.here = {}, .there = {"x"}}}, ErrorKind::kPlugin, "has a side without a name"},
      {{{.here = {"a", "b"}, .there = {"x", "y"}, .rows = {1, 2}}}, ErrorKind::kPlugin, "on both sides"},
      {{{.here = {"c"}, .there = {"x", "y"}}}, ErrorKind::kPlugin, "needs the rows of each"},
      {{{.here = {"c"}, .there = {"x", "y"}, .rows = {1, 1}}}, ErrorKind::kPlugin, "splits other rows"},
      {{{.here = {"a", "c"}, .there = {"x"}}}, ErrorKind::kPlugin, "in extents but the first"},
      {{{.here = {"bias"}, .there = {"x"}, .transposed = true}}, ErrorKind::kPlugin, "what is no matrix"},
      {{{.here = {"c"}, .there = {"x"}, .blocks = {{0, 1}, {2, 1}}}},
       ErrorKind::kPlugin,
       "orders other rows"},
      {{{.here = {"c"}, .there = {"x"}, .blocks = {{1, 2}}}}, ErrorKind::kPlugin, "the 3 that there are"},
      {{{.here = {"c"}, .there = {"x"}, .blocks = {{0, 2}, {1, 2}}}},
       ErrorKind::kPlugin,
       "orders other rows"},
      {{{.here = {"c"}, .there = {"x"}, .blocks = {{0, 3}, {3, 0}}}},
       ErrorKind::kPlugin,
       "orders other rows"},
      {{{.here = {"c"}, .there = {"x"}, .blocks = {{0, 4}}}}, ErrorKind::kPlugin, "orders other rows"},
      {{{.here = {"a"}, .there = {"x"}, .factor = 0}}, ErrorKind::kPlugin, "cannot be undone"},
      {{{.here = {"a"}, .there = {"x"}}, {.here = {"a"}, .there = {"y"}}},
       ErrorKind::kPlugin,
       "two rules are for the parameter 'a'"},
      {{{.here = {"a"}, .there = {"b"}}}, ErrorKind::kPlugin, "two parameters would be 'b'"},
  };
  for (const auto& c : cases) {
    NamePlan plan;
    plan.rules = c.rules;
    try {
      name_groups(plan, kParameters, "here");
      ADD_FAILURE() << "accepted; expected: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.kind) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(c.says));
    }
  }
}

TEST(Names, StarsOfDerivedTensorsStandForAnyText) {
  NamePlan plan;
  plan.derived = {"h.*.attn.bias", "exact", "*.end"};
  for (const char* name :
       {"h.0.attn.bias", "h..attn.bias", "h.attn.bias.attn.bias", "exact", ".end", "a.end.end"})
    EXPECT_TRUE(is_derived(plan, name)) << name;
  for (const char* name : {"h.0.attn.bias2", "h.0.attn.bia", "exac", "exactly", "end", ""})
    EXPECT_FALSE(is_derived(plan, name)) << name;
}

}  // namespace
}  // namespace tenon::cli
