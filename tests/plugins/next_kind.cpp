// Offers a component of a later version of a known kind: refused by name, the plugin itself is fine.
#include "toy.hpp"

namespace {

class Later : public toy::Plain {
 public:
  using Interface = Later;
  static constexpr const char* kKind = "toy/2";
  static constexpr tenon::ComponentInfo kInfo{.id = "later", .summary = "ahead of its time"};
  using Plain::Plain;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "acme.later", .version = "1.0.0", .summary = "ahead of its time"}, Later)
