// Offers the same id as good.cpp, from another vendor.
#include "toy.hpp"

namespace {

constexpr const char* kAliases[] = {"counter", nullptr};

class Twin final : public toy::Plain {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "twin", .summary = "the other twin", .aliases = kAliases};
  using Plain::Plain;
  std::int64_t value() override { return 8; }
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "zeta.twin", .version = "0.0.1-rc1", .summary = "the other twin"}, Twin);
