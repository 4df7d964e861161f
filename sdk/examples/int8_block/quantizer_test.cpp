// The quantizer against numbers recorded with NumPy (reference/record.py), bit for bit, and what follows from
// its formula.
#include "quantizer.hpp"
#include "reference/recorded.hpp"

#include <tenon/parallel.hpp>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <span>
#include <vector>

namespace int8_block {
namespace {

using recorded::kColumns;
using recorded::kRows;

std::vector<float> floats(std::span<const std::uint32_t> bits) {
  std::vector<float> values;
  for (const std::uint32_t b : bits) values.push_back(std::bit_cast<float>(b));
  return values;
}

/// NaN equals NaN whatever its bits; zeros must agree as numbers.
void expect_equal(const std::vector<float>& found, std::span<const std::uint32_t> expected, const char* what,
                  std::int64_t block) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto wanted = std::bit_cast<float>(expected[i]);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(found[i])) << what << ", block " << block << ", element " << i;
    } else {
      EXPECT_EQ(found[i], wanted) << what << ", block " << block << ", element " << i;
    }
  }
}

TEST(Quantizer, HasTheBitsThatNumPyRecorded) {
  const std::vector<float> x = floats(recorded::kNumbers);
  std::vector<float> values(x.size());
  const struct {
    std::int64_t block;
    std::span<const std::uint32_t> rows, columns;
  } cases[] = {{1, recorded::kAlongRows1, recorded::kAlongColumns1},
               {16, recorded::kAlongRows16, recorded::kAlongColumns16},
               {32, recorded::kAlongRows32, recorded::kAlongColumns32},
               {128, recorded::kAlongRows128, recorded::kAlongColumns128}};
  for (const auto& c : cases) {
    quantize_along_rows(x.data(), kRows, kColumns, c.block, values.data());
    expect_equal(values, c.rows, "along rows", c.block);
    quantize_along_columns(x.data(), kRows, kColumns, c.block, values.data());
    expect_equal(values, c.columns, "along columns", c.block);
  }
}

TEST(Quantizer, IsWithinHalfAStepAndKeepsWhatItMade) {
  std::vector<float> x(64 * 96), once(x.size()), twice(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = std::sin(static_cast<float>(i) * 0.37f) * static_cast<float>(i % 17);
  quantize_along_rows(x.data(), 64, 96, 32, once.data());
  for (std::size_t begin = 0; begin < x.size(); begin += 32) {
    float amax = 0;
    for (std::size_t i = begin; i < begin + 32; ++i) amax = std::max(amax, std::fabs(x[i]));
    for (std::size_t i = begin; i < begin + 32; ++i)
      EXPECT_LE(std::fabs(once[i] - x[i]), amax / 127 * 0.5f * 1.0001f)
          << "half a step, and the rounding of the scale";
  }
  // The largest number comes back within two roundings, so the second pass may differ from the first by as
  // much.
  quantize_along_rows(once.data(), 64, 96, 32, twice.data());
  for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(twice[i], once[i], std::fabs(once[i]) * 4e-7f);
}

TEST(Quantizer, GivesTheSameBitsWithEveryNumberOfThreadsAndInPlace) {
  std::vector<float> x(300 * 130);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = std::cos(static_cast<float>(i * i % 1009));
  const auto through = [&](int threads, auto quantize) {
    tenon::set_parallel_threads(threads);
    std::vector<float> values = x;
    quantize(values.data(), 300, 130, 48, values.data());
    return values;
  };
  EXPECT_EQ(through(1, quantize_along_rows), through(2, quantize_along_rows));
  EXPECT_EQ(through(1, quantize_along_columns), through(2, quantize_along_columns));
  EXPECT_NE(through(1, quantize_along_rows), through(1, quantize_along_columns));
}

}  // namespace
}  // namespace int8_block
