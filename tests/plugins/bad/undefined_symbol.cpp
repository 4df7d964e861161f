// Calls an undefined function; linked without -z defs.
#include "bad.hpp"
extern "C" int tenon_nobody_defines_this();
namespace {
class Lost : public toy::Plain {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "lost", .summary = "lost"};
  using Plain::Plain;
  std::int64_t value() override { return tenon_nobody_defines_this(); }
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.undefined_symbol", .version = "1.0.0", .summary = "bad"}, Lost)
