// Lanes of a timeline. A viewer demands that slices of one lane nest; spans of one track that overlap (two
// transfers on their way) therefore go to lanes of their own. Within a lane slices follow one another: begins
// rise, and none begins before the one before it ended.
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
    bool opened;  ///< seen for the first time: name it
  };
  /// Which spans overlap is a matter of luck, so a lane may be new in a slot that may not ask for memory.
  Lanes() { lanes_.reserve(kUsual); }
  /// Times in units of the file, already rounded, so that rounding cannot make neighbours overlap.
  Place place(std::string_view track, std::int64_t begin, std::int64_t end);
  /// "overlap", "overlap 2", ...
  const std::string& name(int lane) const { return lanes_[static_cast<std::size_t>(lane)].name; }

 private:
  struct Lane {
    std::string track, name;
    std::int64_t free_at;
  };
  static constexpr std::size_t kUsual = 64;  ///< more than a run of many transfers has
  std::vector<Lane> lanes_;
};

}  // namespace tenon::trace
