// Selects the source of each draw of a mixture by the earliest-deadline rule of fair scheduling. Among the
// sources k with floor(c_k S / a_k) + 1 <= s (draw s = 1, 2, ..., c_k draws so far, share a_k / S) it selects
// the one with the smallest deadline ceil((c_k + 1) S / a_k), ties by position. After any s draws every count
// is within one draw of s a_k / S (Baruah et al., "Proportionate progress", Algorithmica 15, 1996).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::text {

/// Shares as integers a_k over one S.
struct Shares {
  std::vector<std::int64_t> parts;
  std::int64_t whole = 1;
};

/// Parses decimal numbers ("0.25") or fractions ("1/3") exactly. Throws Error(kConfig) when a text is
/// neither, when the sum is not exactly 1, or when the common denominator is above 2^20. `where` opens the
/// messages.
Shares parse_shares(std::span<const std::string> texts, const std::string& where);

class ShareSchedule {
 public:
  explicit ShareSchedule(const Shares& shares);

  struct Draw {
    int source = 0;
    std::int64_t count = 0;  ///< draws of this source before this one
  };
  /// draw >= 0. Constant time: the rule repeats after `whole` draws.
  Draw at(std::int64_t draw) const noexcept;
  /// Returns the draws of `source` among the first `draws`.
  std::int64_t count(int source, std::int64_t draws) const noexcept;

 private:
  struct Entry {
    std::int32_t source;
    std::int32_t count;
  };
  Shares shares_;
  std::vector<Entry> period_;
};

}  // namespace tenon::text
