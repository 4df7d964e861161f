// Lanes of a timeline. A viewer requires that slices of one lane nest, so spans of one track that overlap
// (two concurrent transfers) use separate lanes. Within a lane slices are consecutive: begins increase, and
// no slice begins before the previous one ended.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::trace {

class Lanes {
 public:
  struct Place {
    int lane;
    bool opened;  ///< first use: the caller writes its name
  };
  /// Overlap depends on timing, so a lane may be new in a slot that must not allocate.
  Lanes() { lanes_.reserve(kUsual); }
  /// Expects times in units of the file, already rounded, so that rounding cannot make neighbours overlap.
  Place place(std::string_view track, std::int64_t begin, std::int64_t end);
  /// "overlap", "overlap 2", ...
  const std::string& name(int lane) const { return lanes_[static_cast<std::size_t>(lane)].name; }

 private:
  struct Lane {
    std::string track, name;
    std::int64_t free_at;
  };
  static constexpr std::size_t kUsual = 64;  ///< more than a run with many transfers uses
  std::vector<Lane> lanes_;
};

}  // namespace tenon::trace
