// Helpers of the tests of quantised rows: the round trip of a row, and its bits.
#pragma once

#include "row_quantiser.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <vector>

namespace tenon::recovery_checknrun {

using Row = std::vector<float>;
using Bytes = std::vector<std::byte>;

constexpr int kWidths[] = {8, 4, 3, 2};
constexpr RowFit kFits[] = {RowFit::kUniform, RowFit::kAdaptive};

inline Bytes encoded(const Row& row, int bits, RowFit fit) {
  Bytes out;
  encode_row(row, bits, fit, out);
  return out;
}

inline Row decoded(const Row& row, int bits, RowFit fit) {
  const Bytes bytes = encoded(row, bits, fit);
  Row out(row.size(), -77);
  EXPECT_EQ(decode_row(bytes, bits, out), bytes.size());
  return out;
}

/// Distinguishes -0 from 0, and NaNs from each other.
inline std::vector<std::uint32_t> bits_of(const Row& row) {
  std::vector<std::uint32_t> bits(row.size());
  if (!row.empty()) std::memcpy(bits.data(), row.data(), row.size() * sizeof(float));
  return bits;
}

}  // namespace tenon::recovery_checknrun
