// The mixing function of SplitMix64 (Steele, Lea, Flood 2014): every bit of a word reaches every bit of the
// result.
#pragma once

#include <cstdint>

namespace tenon {

constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15U;

constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace tenon
