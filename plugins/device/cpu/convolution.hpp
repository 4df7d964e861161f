// The weight gradients of oneDNN that this device must not take. Alone, because tests ask it without the
// library.
#pragma once

#include <cstdint>
#include <string_view>

namespace tenon::cpu {

/// True where a weight gradient by this implementation of oneDNN writes past its scratch. Its strided 1x1
/// primitives gather the pixels that they need, `channels` numbers each, but begin each run of pixels as if
/// it had as many numbers as a vector holds: with fewer, the last runs end in the next thread's part, in the
/// barrier of its sum (which then waits for ever), or in whatever follows (docs/decisions/0036).
/// `channels_last`: the order in which x is read; blocks of channels are padded with zeros and are safe.
inline bool overruns_scratch(std::string_view implementation, std::int64_t channels, bool strided,
                             bool channels_last) {
  constexpr std::string_view kPoints = "jit_1x1:";
  if (!strided || !channels_last || implementation.substr(0, kPoints.size()) != kPoints) return false;
  const std::int64_t lanes = implementation.find("avx512") == std::string_view::npos ? 8 : 16;
  return channels < lanes;
}

}  // namespace tenon::cpu
