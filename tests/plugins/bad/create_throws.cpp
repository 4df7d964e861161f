// Throws when it is created.
#include <stdexcept>
#include "bad.hpp"
namespace {
class Unborn : public toy::Plain {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "unborn", .summary = "unborn"};
  explicit Unborn(const tenon::Options& options) : Plain(options) {
    throw std::runtime_error("the table is empty");
  }
};
}  // namespace
TENON_PLUGIN(tenon::PluginInfo{.id = "bad.create_throws", .version = "1.0.0", .summary = "bad"}, Unborn)
