// Finds the plugin named on the command line through the installed core, creates its component, and queries
// it.
#include <tenon/config.hpp>
#include <tenon/host.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/registry.hpp>

#include <cstdio>

namespace {

class OneRank final : public tenon::Host {
 public:
  void log(tenon::LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<tenon::Actor> spawn(std::string_view, std::function<void(tenon::Actor&)>) override {
    return nullptr;
  }
  double deadline() const override { return 1; }
  void* query(std::string_view) override { return nullptr; }
};

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) return 2;
  tenon::Registry registry;
  registry.discover_only({argv[1]});
  const tenon::Config config = tenon::Config::parse("period = 2", "inline", std::vector<std::string>{});
  auto request =
      tenon::component_request(config.root(), registry.describe("schedule/1", "sawtooth"), &registry);
  const tenon::Resolution resolved = tenon::resolve_options(request);
  OneRank host;
  const auto schedule = registry.create<tenon::Schedule>("sawtooth", *resolved.options, host);
  const double rate = schedule->rate({.slot = 3, .steps = 10, .base_lr = 1.0});
  std::printf("%s of %s: %g\n", schedule.id().data(), schedule.plugin().data(), rate);
  return rate == 0.5 ? 0 : 1;
} catch (const tenon::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return error.exit_status();
}
