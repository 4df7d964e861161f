// Two components of one kind and id.
#include "bad.hpp"
namespace {
class Again : public BadComponent {
 public:
  using BadComponent::BadComponent;
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.duplicate_id", .version = "1.0.0", .summary = "bad"}, BadComponent,
             Again)
