// Work that keeps the multipliers of a core busy: rounds of multiply-adds on registers, in the widest form
// that the processor has. It reads and writes nothing but its own state, so it takes no cache and no memory
// bandwidth from the training.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace tenon::filler {

/// What the rounds work on. A round replaces each x by 0.999 x + 0.001.
struct FmaState {
  static constexpr int kLanes = 128;
  alignas(64) float lanes[kLanes] = {};
};

/// A form of the rounds.
struct FmaRounds {
  std::string_view name;  ///< "avx512", "avx2" or "plain"
  void (*run)(FmaState& state, std::int64_t rounds);
};

/// Those that this processor runs, the widest first.
std::span<const FmaRounds> fma_rounds();

}  // namespace tenon::filler
