// Layers of a graph's nodes by type name, through the registry.
#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

#include <type_traits>

namespace tenon {
namespace {

Value to_value(const OptionValue& option) {
  return std::visit(
      [](const auto& held) -> Value {
        using Held = std::decay_t<decltype(held)>;
        if constexpr (std::is_same_v<Held, bool> || std::is_same_v<Held, std::int64_t> ||
                      std::is_same_v<Held, double> || std::is_same_v<Held, std::string>) {
          return Value(held);
        } else {
          Value::Array list;
          for (const auto& element : held) list.emplace_back(element);
          return Value(std::move(list));
        }
      },
      option);
}

class RegistryLayer final : public LayerOwner {
 public:
  RegistryLayer(std::unique_ptr<ResolvedOptions> options, Component<Layer> component)
      : options_(std::move(options)), component_(std::move(component)) {}
  Layer& layer() override { return *component_; }

 private:
  std::unique_ptr<ResolvedOptions> options_;
  Component<Layer> component_;
};

class RegistryLayers final : public LayerFactory {
 public:
  RegistryLayers(Registry& registry, Host& host) : registry_(registry), host_(host) {}

  std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
    Value table;
    Origin origin;
    origin.file = fmt::format("model node '{}'", node.name);
    for (const NamedOption& option : node.options) {
      Value value = to_value(option.value);
      value.origin = origin;
      table.set(option.name, std::move(value), origin);
    }
    ComponentSchema schema;
    try {
      schema = registry_.describe(Layer::kKind, node.type);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("model node '{}': {}", node.name, error.what()));
    }
    Resolution resolution = resolve_options(component_request(table, std::move(schema), &registry_));
    registry_.create_inner(*resolution.options, host_);
    Component<Layer> layer = registry_.create<Layer>(node.type, *resolution.options, host_);
    return std::make_unique<RegistryLayer>(std::move(resolution.options), std::move(layer));
  }

 private:
  Registry& registry_;
  Host& host_;
};

}  // namespace
}  // namespace tenon

TENON_ABI_BEGIN

std::unique_ptr<LayerFactory> make_registry_layers(Registry& registry, Host& host) {
  return std::make_unique<RegistryLayers>(registry, host);
}

TENON_ABI_END
