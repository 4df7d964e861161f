// A plugin whose init refuses.
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

namespace {

class Constant final : public tenon::Schedule {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "constant", .summary = "the same rate always"};
  explicit Constant(const tenon::Options&) {}
  double rate(const tenon::SchedulePoint& point) const override { return point.base_lr; }
};

int refuse(const tenon_host_v1*, tenon_error*) {
  tenon::fail_plugin("no licence was found");
}
constexpr tenon::PluginHooks kHooks{refuse, nullptr};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "broken.begins_not",
                               .version = "1.0.0",
                               .summary = "never begins",
                               .hooks = &kHooks},
             Constant)
