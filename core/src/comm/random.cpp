// Random numbers of <tenon/random.hpp> on Random123's Philox4x32-10 (Salmon et al., SC 2011).
// Everything after Philox uses only IEEE additions, multiplications, divisions and square roots, never libm,
// so that a draw is the same on every machine.
#include <tenon/portable_math.hpp>
#include <tenon/random.hpp>

#include <Random123/philox.h>

#include <cmath>

TENON_ABI_BEGIN

namespace {

constexpr std::uint32_t low(std::uint64_t x) {
  return static_cast<std::uint32_t>(x);
}
constexpr std::uint32_t high(std::uint64_t x) {
  return static_cast<std::uint32_t>(x >> 32);
}

philox4x32_ctr_t philox(philox4x32_ctr_t counter, RandomKey key) noexcept {
  const philox4x32_key_t words{{key.words[0], key.words[1]}};
  return philox4x32_R(10, counter, words);
}

std::uint64_t joined(std::uint32_t hi, std::uint32_t lo) noexcept {
  return (std::uint64_t{hi} << 32) | lo;
}

}  // namespace

// The purpose is absorbed in blocks of 16 bytes, each through a full Philox keyed by the seed. The length
// goes in first, so that "a" and "a\0" differ.
RandomKey random_key(std::uint64_t seed, std::string_view purpose) noexcept {
  const RandomKey seed_key{{low(seed), high(seed)}};
  philox4x32_ctr_t state{{low(purpose.size()), high(purpose.size()), 0x74656e6fu, 0x6e6b6579u}};
  std::size_t offset = 0;
  do {
    std::uint32_t block[4] = {0, 0, 0, 0};
    for (std::size_t i = 0; i < 16 && offset + i < purpose.size(); ++i) {
      block[i / 4] |= std::uint32_t{static_cast<unsigned char>(purpose[offset + i])} << (8 * (i % 4));
    }
    for (int i = 0; i < 4; ++i) state.v[i] ^= block[i];
    state = philox(state, seed_key);
    offset += 16;
  } while (offset < purpose.size());
  return RandomKey{{state.v[0], state.v[1]}};
}

std::array<std::uint32_t, 4> random_words(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept {
  const philox4x32_ctr_t out = philox({{low(index), high(index), low(step), high(step)}}, key);
  return {out.v[0], out.v[1], out.v[2], out.v[3]};
}

double random_uniform(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept {
  const auto words = random_words(key, step, index);
  return static_cast<double>(joined(words[0], words[1]) >> 11) * 0x1p-53;
}

// floor(x * bound / 2^128) of a 128-bit x: no value is favoured by more than 2^-64.
std::uint64_t random_below(RandomKey key, std::uint64_t step, std::uint64_t index,
                           std::uint64_t bound) noexcept {
  __extension__ using Wide = unsigned __int128;
  const auto words = random_words(key, step, index);
  const Wide top = Wide{joined(words[0], words[1])} * bound;
  const Wide bottom = Wide{joined(words[2], words[3])} * bound;
  return static_cast<std::uint64_t>((top + (bottom >> 64)) >> 64);
}

// Box-Muller: sqrt(-2 ln u1) cos(2 pi u2) with u1 in (0, 1], u2 in [0, 1).
double random_normal(RandomKey key, std::uint64_t step, std::uint64_t index) noexcept {
  const auto words = random_words(key, step, index);
  const double u1 = static_cast<double>((joined(words[0], words[1]) >> 11) + 1) * 0x1p-53;
  const double u2 = static_cast<double>(joined(words[2], words[3]) >> 11) * 0x1p-53;
  return std::sqrt(-2 * portable_log(u1)) * portable_turn(u2).cosine;
}

double random_log_of_uniform(RandomKey key, std::uint64_t step, std::uint64_t index, double low,
                             double high) noexcept {
  return portable_log(low + (high - low) * random_uniform(key, step, index));
}

// ln(e^u - 1); beyond 40 the 1 is below the last bit.
double random_inverse_softplus(RandomKey key, std::uint64_t step, std::uint64_t index, double low,
                               double high) noexcept {
  const double first = portable_log(low), last = portable_log(high);
  const double u = portable_exp(first + (last - first) * random_uniform(key, step, index));
  if (u > 40) return u;
  return portable_log(u <= 1 ? portable_expm1(u) : portable_exp(u) - 1);
}

TENON_ABI_END
