// For tests of components, inside this tree and outside: a host without a run, components made from TOML text
// through the registry, and the layers of a graph. Header only; it needs nothing but libtenon_core.
#pragma once

#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>
#include <tenon/shared_objects.hpp>
#include <tenon/stored_model.hpp>

#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tenon::testing {

/// One rank, no clock, no background loops; tests can read what is logged.
class QuietHost final : public Host {
 public:
  void log(LogLevel, std::string_view message) override { messages.emplace_back(message); }
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override {
    fail_plugin("a test host starts no background loops");
  }
  double deadline() const override { return 10; }
  void* query(std::string_view interface_id) override {
    if (interface_id == SharedObjects::kId) return shared.get();
    if (interface_id == StoredModels::kId) return models;
    if (interface_id == Device::kKind) return device;
    return interface_id == LayerFactory::kId ? layers : nullptr;
  }

  std::vector<std::string> messages;
  LayerFactory* layers = nullptr;
  StoredModels* models = nullptr;
  Device* device = nullptr;
  std::unique_ptr<SharedObjects> shared = make_shared_objects();
};

/// A component and the options that it keeps views of.
template <typename Interface>
struct Made {
  std::unique_ptr<ResolvedOptions> options;
  Component<Interface> component;

  Interface* operator->() const { return component.get(); }
  Interface& operator*() const { return *component; }
};

template <typename Interface>
Made<Interface> make_from(Registry& registry, Host& host, std::string_view type, const Value& table) {
  Resolution resolved =
      resolve_options(component_request(table, registry.describe(Interface::kKind, type), &registry));
  registry.create_inner(*resolved.options, host);
  Made<Interface> made;
  made.component = registry.create<Interface>(type, *resolved.options, host);
  made.options = std::move(resolved.options);
  return made;
}

/// Options as TOML lines: make<Optimizer>(registry, host, "sgd", "lr = 0.1\nmomentum = 0.9").
template <typename Interface>
Made<Interface> make(Registry& registry, Host& host, std::string_view type, std::string_view toml) {
  const Config config = Config::parse(toml, "test", {});
  return make_from<Interface>(registry, host, type, config.root());
}

/// Everything that a graph needs on one device, found through the environment (TENON_PLUGIN_PATH).
class Bench {
 public:
  /// kernels: "reference" for the plain loops, "auto" for the fastest, or for those that TENON_TEST_KERNELS
  /// names. device_options: TOML lines.
  Bench(std::string_view device_type, std::string_view kernels, int threads,
        std::string_view device_options = "") {
    registry.discover({});
    host.layers = layers.get();
    device = make<Device>(registry, host, device_type, device_options);
    const char* const named =
        device_type == "cpu" && kernels == "auto" ? std::getenv("TENON_TEST_KERNELS") : nullptr;
    device->open({.local_rank = 0, .threads = threads, .kernels = named == nullptr ? kernels : named});
  }

  template <typename Interface>
  Made<Interface> make_component(std::string_view type, std::string_view toml) {
    return make<Interface>(registry, host, type, toml);
  }

  QuietHost host;
  Registry registry;
  Made<Device> device;
  std::unique_ptr<LayerFactory> layers = make_registry_layers(registry, host);
};

}  // namespace tenon::testing
