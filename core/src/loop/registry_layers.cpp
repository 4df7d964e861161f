// Layers of a graph's nodes by type name, through the registry.
#include "loop/graph_edits.hpp"
#include "plugin/guard.hpp"

#include <tenon/config.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/executor.hpp>
#include <tenon/host.hpp>
#include <tenon/precision.hpp>
#include <tenon/registry.hpp>
#include <tenon/stepwise.hpp>

#include <fmt/format.h>

#include <array>
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

/// An inner component that a graph carries as the text of its table.
void read_component(Value& table, const char* option) {
  Value* const given = table.find(option);
  if (given == nullptr || !given->is_text()) return;
  if (!given->text().starts_with('{') && !given->text().starts_with('[')) return;
  *given = parse_value(given->text(), given->origin);
}

/// A node's layer, called under the guard: what it logs, throws or crashes with carries its names. Passes of
/// nodes have a watch of their own (graph/pass_place.hpp).
class RegistryLayer final : public LayerOwner,
                            public Layer,
                            private LossLayer,
                            private MetricLayer,
                            private RowLookups,
                            private StepwiseLayer {
 public:
  RegistryLayer(std::unique_ptr<ResolvedOptions> options, Component<Layer> component, const std::string& node,
                int rank)
      : options_(std::move(options)), component_(std::move(component)), rank_(rank) {
    const std::string place = fmt::format("{}, node '{}'", component_.handle().ref().name, node);
    names_ = {place,
              place + ", forward",
              place + ", backward",
              place + ", metric",
              place + ", step",
              place + ", lookups"};
  }
  Layer& layer() override { return *this; }
  const tenon_port_v1* const* ports() const override { return component_.handle().ref().component->ports; }

  void infer(InferContext& context) override {
    declare([&] {
      if ((component_.handle().ref().component->capabilities & TENON_CAP_HOST) != 0 &&
          context.device().space() != MemorySpace::kHost) {
        fail_config(
            fmt::format("layer '{}': {} works on tensors in host memory alone (TENON_CAP_HOST), and the "
                        "device has memory of its own; set [device] type = \"cpu\"",
                        context.name(), component_.handle().ref().name));
      }
      component_->infer(context);
    });
  }
  void forward(ForwardContext& context) override {
    guard(pass(names_[1], context), [&] { component_->forward(context); });
  }
  void backward(BackwardContext& context) override {
    guard(pass(names_[2], context), [&] { component_->backward(context); });
  }
  void* query(std::string_view interface_id) override {
    void* const found = guard(outside(names_[0]), [&] { return component_->query(interface_id); });
    if (found != nullptr && interface_id == LossLayer::kId) {
      loss_ = static_cast<LossLayer*>(found);
      return static_cast<LossLayer*>(this);
    }
    if (found != nullptr && interface_id == MetricLayer::kId) {
      metric_ = static_cast<MetricLayer*>(found);
      return static_cast<MetricLayer*>(this);
    }
    if (found != nullptr && interface_id == RowLookups::kId) {
      lookups_ = static_cast<RowLookups*>(found);
      return static_cast<RowLookups*>(this);
    }
    if (found != nullptr && interface_id == StepwiseLayer::kId) {
      stepwise_ = static_cast<StepwiseLayer*>(found);
      return static_cast<StepwiseLayer*>(this);
    }
    return found;
  }

 private:
  // What the layer offers, under the same guard.
  void set_seed(double seed) override {
    guard(outside(names_[0]), [&] { loss_->set_seed(seed); });
  }
  std::string_view metric() const override {
    return guard(outside(names_[0]), [&] { return loss_->metric(); });
  }
  void begin() override {
    guard(outside(names_[3]), [&] { metric_->begin(); });
  }
  void finish(Communicator* replicas, MetricReport& report) override {
    guard(outside(names_[3]), [&] { metric_->finish(replicas, report); });
  }

  // Beside passes, on another thread: of no slot that they know.
  bool looks_up_by(int index) const override {
    return guard({component_.plugin(), names_[5], rank_}, [&] { return lookups_->looks_up_by(index); });
  }
  void lookups(std::span<const TensorView> inputs, const Visit& visit) override {
    guard({component_.plugin(), names_[5], rank_}, [&] { lookups_->lookups(inputs, visit); });
  }

  std::int64_t infer_step(InferContext& context, std::int64_t positions) override {
    std::int64_t bytes = 0;
    declare([&] { bytes = stepwise_->infer_step(context, positions); });
    return bytes;
  }
  void step(ForwardContext& context, const Steps& steps) override {
    guard(pass(names_[4], context), [&] { stepwise_->step(context, steps); });
  }

  /// Runs what declares the node. A configuration that does not fit is the user's to correct: the layer's own
  /// message names the node.
  template <typename Call>
  void declare(Call&& call) {
    const GuardContext place{component_.plugin(), names_[0], rank_, -1};
    const PluginCallScope scope(place);
    try {
      call();
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) rethrow_named(place);
      // For an option that the model wrote, the place is the node, which the layer's message names already.
      const std::string written = options_->place_of(error.what());
      if (written.empty() || written.starts_with("model node")) throw;
      fail_config(fmt::format("{}: {}", written, error.what()));
    } catch (...) {
      rethrow_named(place);
    }
  }

  GuardContext pass(const std::string& name, const RunContext& context) const {
    step_ = context.step();
    return {component_.plugin(), name, rank_, step_, nullptr, kWatchedElsewhere};
  }
  /// The place of a call between passes.
  GuardContext outside(const std::string& name) const { return {component_.plugin(), name, rank_, step_}; }

  std::unique_ptr<ResolvedOptions> options_;
  Component<Layer> component_;
  std::array<std::string, 6> names_;
  int rank_;
  mutable std::int64_t step_ = -1;  ///< of the newest pass
  LossLayer* loss_ = nullptr;
  MetricLayer* metric_ = nullptr;
  RowLookups* lookups_ = nullptr;
  StepwiseLayer* stepwise_ = nullptr;
};

class RegistryLayers final : public LayerFactory {
 public:
  RegistryLayers(Registry& registry, Host& host) : registry_(registry), host_(host) {}

  std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
    const auto* places = static_cast<const train::NodePlaces*>(host_.query(train::NodePlaces::kId));
    // A node of the model has no line of a file; one of an edit has.
    const auto origin_of = [&](const std::string& option) {
      const std::string written = places == nullptr ? "" : places->text(node.name, option);
      return Origin{fmt::format("{}model node '{}'", written, node.name), 0, 0};
    };
    Value table;
    table.origin = origin_of("");
    for (const NamedOption& option : node.options) {
      Value value = to_value(option.value);
      const Origin origin = origin_of(option.name);
      value.origin = origin;
      table.set(option.name, std::move(value), origin);
    }
    ComponentSchema schema;
    try {
      schema = registry_.describe(Layer::kKind, node.type);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("{}: {}", table.origin.text(), error.what()));
    }
    // The policy of the run, made anew: the sites of a graph beside the trained one are none of its own.
    const Value* const policy = places == nullptr ? nullptr : places->precision();
    for (const tenon_option_v1* option : schema.options) {
      if (option->type != TENON_OPTION_COMPONENT) continue;
      read_component(table, option->name);
      const bool absent = table.find(option->name) == nullptr;
      if (absent && policy != nullptr && std::string_view(option->component_kind) == Precision::kKind)
        table.set(option->name, *policy, policy->origin);
    }
    Resolution resolution = resolve_options(component_request(table, std::move(schema), &registry_));
    registry_.create_inner(*resolution.options, host_);
    Component<Layer> layer = registry_.create<Layer>(node.type, *resolution.options, host_);
    return std::make_unique<RegistryLayer>(std::move(resolution.options), std::move(layer), node.name,
                                           host_.rank());
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
