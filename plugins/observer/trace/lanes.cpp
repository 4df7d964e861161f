// First fit: the first lane of the track that is free when the span begins.
#include "lanes.hpp"

namespace tenon::trace {

Lanes::Place Lanes::place(std::string_view track, std::int64_t begin, std::int64_t end) {
  int same = 0;
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].track != track) continue;
    ++same;
    if (lanes_[i].free_at > begin) continue;
    lanes_[i].free_at = end;
    return {static_cast<int>(i), false};
  }
  std::string name(track);
  if (same > 0) name += " " + std::to_string(same + 1);
  lanes_.push_back({std::string(track), std::move(name), end});
  return {static_cast<int>(lanes_.size()) - 1, true};
}

}  // namespace tenon::trace
