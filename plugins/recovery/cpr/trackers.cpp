// Trackers by name.
#include "mfu.hpp"
#include "scar.hpp"
#include "ssu.hpp"

namespace tenon::recovery_cpr {

std::unique_ptr<Tracker> make_tracker(std::string_view name, const std::vector<TrackedTable>& tables,
                                      std::uint64_t seed) {
  if (name == "mfu") return std::make_unique<Mfu>(tables);
  if (name == "ssu") return std::make_unique<Ssu>(tables, seed);
  if (name == "scar") return std::make_unique<Scar>(tables);
  return nullptr;
}

}  // namespace tenon::recovery_cpr
