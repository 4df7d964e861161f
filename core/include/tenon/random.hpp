// Counter-based random numbers (Philox4x32-10): a draw is a pure function of (seed, purpose, step, element
// index), so it depends on no thread count, rank count or layout, and needs no state in a checkpoint.
#pragma once

#include <tenon/abi.hpp>

#include <array>
#include <cstdint>
#include <string_view>

TENON_ABI_BEGIN

/// Philox key of one stream. Two streams with different (seed, purpose) never share a draw.
struct RandomKey {
  std::uint32_t words[2] = {0, 0};
};

/// Key from a seed and a purpose such as "init", "order", "dropout:h.0.drop", "sync.mixing".
RandomKey random_key(std::uint64_t seed, std::string_view purpose) noexcept;

/// Four independent 32-bit words of counter (step, index).
std::array<std::uint32_t, 4> random_words(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept;

/// Uniform in [0, 1) with 53 random bits.
double random_uniform(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept;
/// Uniform integer in [0, bound), without modulo bias beyond 2^-64. bound > 0.
std::uint64_t random_below(RandomKey key, std::uint64_t step, std::uint64_t index,
                           std::uint64_t bound) noexcept;
/// Standard normal (Box-Muller on the draw's own words).
double random_normal(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept;
/// ln u of a u that is uniform in [low, high). 0 < low <= high.
double random_log_of_uniform(RandomKey key, std::uint64_t step, std::uint64_t index, double low,
                             double high) noexcept;
/// x with softplus(x) = u, where ln u is uniform in [ln low, ln high). 0 < low <= high.
double random_inverse_softplus(RandomKey key, std::uint64_t step, std::uint64_t index, double low,
                               double high) noexcept;

TENON_ABI_END
