// A correct plugin: two components, options of every kind of value, an alias, an extension, init and
// shutdown.
#include "toy.hpp"

#include <tenon/host.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

namespace {

constexpr const char* kAliases[] = {"tally", nullptr};
constexpr const char* kRequirements[] = {"cuda>=12", nullptr};
constexpr const char* kOldNames[] = {"begin", nullptr};

// [options]
class Counter final : public toy::Toy {
 public:
  enum class Mode { kUp, kDown };
  static constexpr auto kModes = tenon::option::choice<Mode>({{"up", Mode::kUp}, {"down", Mode::kDown}});
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("start", "0").between(-10, 10).formerly(kOldNames).doc_text("first value"),
      tenon::option::real("rate", "1e-3").at_least(0).in_unit("1/step"),
      tenon::option::text("mode", "\"up\"").one_of(kModes).added_in("0.1.0"),
      tenon::option::reals("weights", "[0.9, 0.999]"),
      tenon::option::texts("names", "[]"),
      tenon::option::boolean("loud", "false"),
      tenon::option::path("file", nullptr),
      tenon::option::component("inner", "toy/1"),
  };
  static constexpr tenon::ComponentInfo kInfo{.id = "counter",
                                              .summary = "counts from a start",
                                              .options = kOptions,
                                              .capabilities = TENON_CAP_HOGWILD,
                                              .aliases = kAliases,
                                              .requirements = kRequirements};
  // [/options]

  // [construct]
  Counter(const tenon::Options& options, tenon::Host& host)
      : inner_(options.component<toy::Toy>("inner")),
        step_(options.choice("mode", kModes) == Mode::kUp ? 1 : -1),
        value_(options.integer("start") + 100 * host.rank()) {
    if (value_ == 10) tenon::fail_config("start = 10 is one too many");
    if (value_ == -10) throw std::vector<int>{};
    if (value_ == 9) throw std::out_of_range("nine");
  }
  // [/construct]
  std::int64_t value() override {
    const std::int64_t now = value_;
    value_ += step_;
    return now + (inner_ == nullptr ? 0 : 1000 * inner_->value());
  }
  void* query(std::string_view interface_id) override {
    return interface_id == "toy.value/1" ? &value_ : nullptr;
  }

 private:
  toy::Toy* inner_;
  std::int64_t step_, value_;
};

class Twin final : public toy::Plain {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "twin", .summary = "also offered by others"};
  using Plain::Plain;
};

// The process environment is the one place that a test can inspect from the other side of the plugin ABI.
int init(const tenon_host_v1* host, tenon_error*) {
  if (host->cxx_host != nullptr) throw std::logic_error("init belongs to the process, not to a rank");
  return ::setenv("TENON_TEST_GOOD", "initialised", 1);
}
void shutdown() {
  ::setenv("TENON_TEST_GOOD", "shut down", 1);
}
// [hooks]
constexpr tenon::PluginHooks kHooks{.init = init, .shutdown = shutdown};
// [/hooks]

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "acme.good",
                               .version = "1.2.3",
                               .summary = "a plugin as it should be",
                               .vendor = "Acme \"Tools\"",
                               .licence = "MIT",
                               .url = "https://example.org/good",
                               .hooks = &kHooks},
             Counter, Twin)
