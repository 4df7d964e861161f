// The default of an option is outside its own range.
#include "bad.hpp"
namespace {
class Shy : public toy::Plain {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::real("lr", "1e-3").between(0.01, 1)};
  static constexpr tenon::ComponentInfo kInfo{.id = "shy", .summary = "shy", .options = kOptions};
  using Plain::Plain;
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.bad_schema", .version = "1.0.0", .summary = "bad"}, Shy)
