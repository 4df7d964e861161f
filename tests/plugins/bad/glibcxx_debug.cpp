// Compiled with _GLIBCXX_DEBUG: its containers are larger than the program's.
#include <tenon/optimizer.hpp>
#include "bad.hpp"
BAD_MUST_NOT_RUN
namespace {
class Late final : public tenon::Schedule {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "late", .summary = "never loaded"};
  explicit Late(const tenon::Options&) {}
  double rate(const tenon::SchedulePoint& point) const override { return point.base_lr; }
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.glibcxx_debug", .version = "1.0.0", .summary = "bad"}, Late)
