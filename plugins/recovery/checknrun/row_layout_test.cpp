// The bytes of encoded rows: codes, sizes, verbatim rows, and invalid bytes.
#include "row_testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <span>

namespace tenon::recovery_checknrun {
namespace {

using ::testing::Each;
using ::testing::ElementsAreArray;
using Limits = std::numeric_limits<float>;

TEST(RowLayout, RowsWithInfinitiesOrNansAreVerbatim) {
  const float quiet = Limits::quiet_NaN(), infinity = Limits::infinity();
  std::vector<std::vector<std::uint32_t>> rows;
  for (const Row& row :
       {Row{1, quiet, 3}, Row{infinity, 0.1F}, Row{-infinity}, Row{Limits::max(), -infinity, -0.0F}}) {
    rows.push_back(bits_of(row));
  }
  rows.push_back({0x7f800001, 0xffc12345, 0x3f800000});  // NaNs with payloads
  for (const std::vector<std::uint32_t>& row_bits : rows) {
    Row row(row_bits.size());
    std::memcpy(row.data(), row_bits.data(), row.size() * sizeof(float));
    for (const int bits : kWidths) {
      for (const RowFit fit : kFits) {
        EXPECT_EQ(encoded(row, bits, fit).size(), verbatim_bytes(row.size()));
        EXPECT_THAT(bits_of(decoded(row, bits, fit)), ElementsAreArray(row_bits));
      }
    }
  }
}

TEST(RowLayout, TheLayoutIsThatOfTheHeader) {
  const auto bytes_after = [](const Row& row, int bits, float lowest, float step) {
    const Bytes bytes = encoded(row, bits, RowFit::kUniform);
    float head[2];
    std::memcpy(head, bytes.data(), sizeof head);
    EXPECT_EQ(head[0], lowest);
    EXPECT_EQ(head[1], step);
    std::vector<int> codes;
    for (std::size_t i = sizeof head; i < bytes.size(); ++i) codes.push_back(static_cast<int>(bytes[i]));
    return codes;
  };
  EXPECT_THAT(bytes_after({-1, -0.5F, 0, 0.5F, 0.5F}, 2, -1, 0.5F), ElementsAreArray({0xe4, 0x03}));
  // Codes 0 .. 7 at three bits are the octal number 76543210; two of them span bytes.
  EXPECT_THAT(bytes_after({0, 1, 2, 3, 4, 5, 6, 7}, 3, 0, 1), ElementsAreArray({0x88, 0xc6, 0xfa}));
  EXPECT_THAT(bytes_after({7, 0, 7}, 3, 0, 1), ElementsAreArray({0xc7, 0x01}));
  EXPECT_THAT(bytes_after({30, 0, 6}, 4, 0, 2), ElementsAreArray({0x0f, 0x03}));
  EXPECT_THAT(bytes_after({10, 265, 11}, 8, 10, 1), ElementsAreArray({0x00, 0xff, 0x01}));
}

TEST(RowLayout, Sizes) {
  for (int bits = -1; bits < 12; ++bits) {
    EXPECT_EQ(quantises_to(bits), bits == 2 || bits == 3 || bits == 4 || bits == 8) << bits;
  }
  EXPECT_EQ(quantised_bytes(64, 8), 72U);
  EXPECT_EQ(quantised_bytes(64, 4), 40U);
  EXPECT_EQ(quantised_bytes(64, 3), 32U);
  EXPECT_EQ(quantised_bytes(64, 2), 24U);
  EXPECT_EQ(quantised_bytes(3, 3), 10U);
  EXPECT_EQ(quantised_bytes(0, 3), 8U);
  EXPECT_EQ(verbatim_bytes(3), 20U);
  for (std::size_t width = 0; width < 40; ++width) {
    for (const int bits : kWidths) {
      for (const RowFit fit : kFits) {
        Row row(width);
        for (std::size_t i = 0; i < width; ++i) row[i] = static_cast<float>(i * i);
        EXPECT_EQ(encoded(row, bits, fit).size(), quantised_bytes(width, bits));
      }
    }
  }
}

TEST(RowLayout, RowsLieOneAfterTheOther) {
  const std::vector<Row> rows = {{1, 2, 3}, {Limits::quiet_NaN(), 0, 1}, {4, 4, 4}, {-1, 0.5F, 9}};
  for (const int bits : kWidths) {
    Bytes bytes;
    for (const Row& row : rows) encode_row(row, bits, RowFit::kUniform, bytes);
    std::span<const std::byte> left = bytes;
    for (const Row& row : rows) {
      Row out(row.size());
      left = left.subspan(decode_row(left, bits, out));
      EXPECT_THAT(bits_of(out), ElementsAreArray(bits_of(decoded(row, bits, RowFit::kUniform))));
    }
    EXPECT_TRUE(left.empty());
  }
}

TEST(RowLayout, WhatNoEncoderWroteIsNotDecoded) {
  for (const Row& row : {Row{1, 2, 5}, Row{1, Limits::infinity(), 5}}) {
    for (const int bits : kWidths) {
      const Bytes bytes = encoded(row, bits, RowFit::kUniform);
      for (std::size_t length = 0; length < bytes.size(); ++length) {
        Row out(3, -77);
        const Bytes torn(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(length));
        EXPECT_EQ(decode_row(torn, bits, out), 0U) << length;
        EXPECT_THAT(out, Each(-77));
      }
    }
  }
  const float infinity = Limits::infinity(), quiet = Limits::quiet_NaN();
  const float heads[][2] = {{0, infinity}, {0, -infinity}, {0, -1},
                            {quiet, 1},    {infinity, 1},  {-infinity, quiet}};
  for (const auto& head : heads) {
    Bytes bytes = encoded({1, 2, 5}, 8, RowFit::kUniform);
    bytes.resize(verbatim_bytes(3));
    std::memcpy(bytes.data(), head, sizeof head);
    Row out(3, -77);
    EXPECT_EQ(decode_row(bytes, 8, out), 0U) << head[0] << " " << head[1];
    EXPECT_THAT(out, Each(-77));
  }
}

}  // namespace
}  // namespace tenon::recovery_checknrun
