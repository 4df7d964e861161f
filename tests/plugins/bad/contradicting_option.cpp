// An option that contradicts itself; CMakeLists.txt says how. The id of the plugin is that of the file.
#include "bad.hpp"
namespace {
[[maybe_unused]] constexpr const char* kChoices[] = {"up", "down", nullptr};
class Torn : public toy::Plain {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {CONTRADICTION};
  static constexpr tenon::ComponentInfo kInfo{.id = "torn", .summary = "torn", .options = kOptions};
  using Plain::Plain;
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad." ID, .version = "1.0.0", .summary = "bad"}, Torn)
