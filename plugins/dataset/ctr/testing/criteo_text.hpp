// Lines in Criteo's format, made from numbers that are functions of (seed, line), for tests and benchmarks.
// The label depends on the row, so a model can learn. Values and missing fields are about as frequent as in
// the real logs, but the distribution differs.
#pragma once

#include <tenon/random.hpp>

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

namespace tenon::ctr {

/// Line `index` with its newline.
inline std::string criteo_line(std::uint64_t seed, std::uint64_t index) {
  const RandomKey key = random_key(seed, "criteo");
  double logit = -1.2;
  std::string fields;
  for (std::uint64_t i = 0; i < 13; ++i) {
    fields += '\t';
    const double u = random_uniform(key, 1 + i, index);
    if (u < 0.15) continue;
    // Heavy tail from 0, and an occasional negative number.
    const auto number = static_cast<std::int64_t>(std::pow(1 - u, -1.5)) - (u < 0.17 ? 3 : 1);
    if (i < 4) logit += 0.3 * (std::log(static_cast<double>(number) + 3) - 1);
    fields += std::to_string(number);
  }
  for (std::uint64_t i = 0; i < 26; ++i) {
    fields += '\t';
    const double u = random_uniform(key, 100 + i, index);
    if (u < 0.05) continue;
    // The k-th value of a table has about the share 1 / k; a table has up to 10^(1 + i mod 5) of them.
    const auto value =
        static_cast<std::uint64_t>(std::pow(10.0, static_cast<double>(1 + i % 5) * (u - 0.05) / 0.95));
    const std::uint32_t hex = random_words(key, 200 + i, value)[0];
    logit += 0.5 * (static_cast<double>(hex) * 0x1p-31 - 1);
    char digits[8];
    const auto end = std::to_chars(digits, digits + 8, hex, 16).ptr;
    fields.append(digits + 8 - end, '0').append(digits, end);
  }
  const bool clicked = random_uniform(key, 0, index) * (1 + std::exp(-logit)) < 1;
  return (clicked ? "1" : "0") + fields + "\n";
}

}  // namespace tenon::ctr
