// A plugin that cannot begin for two runtimes of one process.
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace {

class Constant final : public tenon::Schedule {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "constant", .summary = "the same rate always"};
  explicit Constant(const tenon::Options&) {}
  double rate(const tenon::SchedulePoint& point) const override { return point.base_lr; }
};

int begun = 0;
int begin(const tenon_host_v1*, tenon_error*) {
  return begun++;  // no second runtime beside the first
}
void end() {
  --begun;
}
constexpr tenon::PluginHooks kHooks{begin, end};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "broken.begins_once",
                               .version = "1.0.0",
                               .summary = "begins once only",
                               .hooks = &kHooks},
             Constant)
