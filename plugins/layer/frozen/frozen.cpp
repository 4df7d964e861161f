// Layer `frozen`: outputs of a stored model, computed from the run's data fields by a graph of its own: the
// targets of a student. Its weights are no parameters of the run. The outputs are constants: no gradient
// enters.
#include "shared_weights.hpp"

#include <tenon/dataset.hpp>
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/plugin.hpp>
#include <tenon/precision.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/sdk/plain_precision.hpp>
#include <tenon/transport.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace tenon::frozen {
namespace {

/// What outputs that are stored parameters begin with.
constexpr std::string_view kParameter = "parameter:";

/// The node of a value: "h" of "h:1".
std::string node_of(const std::string& value) {
  return value.substr(0, value.find(':'));
}

/// The data fields that `outputs` depend on, and the nodes where `with_nodes`.
std::set<std::string> fields_for(const GraphSpec& graph, const std::vector<std::string>& outputs,
                                 bool with_nodes = false) {
  std::set<std::string> needed;
  for (const std::string& output : outputs) needed.insert(node_of(output));
  for (std::size_t i = graph.nodes.size(); i-- > 0;) {
    const NodeSpec& node = graph.nodes[i];
    if (!needed.contains(node.name)) continue;
    if (!with_nodes) needed.erase(node.name);
    for (const std::string& input : node.inputs) needed.insert(node_of(input));
  }
  return needed;
}

/// Removes models that the stored model has learned from, and what follows them: no output needs them, and
/// they would be loaded. What an output needs stays.
void drop_teachers(GraphSpec& graph, const std::vector<std::string>& outputs) {
  const std::set<std::string> needed = fields_for(graph, outputs, true);
  std::set<std::string> dropped;
  std::erase_if(graph.nodes, [&](const NodeSpec& node) {
    if (needed.contains(node.name)) return false;
    const bool follows = std::any_of(node.inputs.begin(), node.inputs.end(), [&](const std::string& input) {
      return dropped.contains(node_of(input));
    });
    if (node.type == "frozen" || follows) dropped.insert(node.name);
    return dropped.contains(node.name);
  });
}

}  // namespace

class Frozen final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::path("model", nullptr)
          .mandatory()
          .doc_text("folder of a run, an attempt, a stage, or a model folder: the stored model"),
      option::integer("step", nullptr).at_least(0).doc_text("checkpoint of that slot; absent: the newest"),
      option::texts("outputs", "[\"logits\"]")
          .doc_text("values of the model that become the outputs, in this order: nodes, \"NODE:1\", "
                    "\"logits\" of a language model, or \"parameter:NAME\", a stored parameter"),
      option::component("precision", Precision::kKind)
          .doc_text("policy of the model's products; absent: the run's, made anew"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "frozen", .summary = "outputs of a stored model, which is not trained", .options = kOptions};

  explicit Frozen(const Options& options)
      : model_(options.text("model")), policy_(options.component<Precision>("precision")) {
    if (options.has("step")) step_ = options.integer("step");
    for (const std::string_view output : options.texts("outputs")) names_.emplace_back(output);
    if (names_.empty())
      fail_config(
          "layer frozen: option 'outputs' is empty; name at least one value of the model, such as "
          "\"logits\"");
  }

  ~Frozen() override {
    for (const Constant& constant : constants_) {
      if (constant.owned > 0) device_->release(constant.value.data, constant.owned);
    }
  }
  Frozen(const Frozen&) = delete;
  Frozen& operator=(const Frozen&) = delete;

  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  /// One value that is copied between the two graphs.
  struct Copy {
    int index = 0;  ///< of the layer's input
    TensorView value;
  };
  /// A stored parameter as an output.
  struct Constant {
    std::size_t output = 0;
    std::string name = {};
    ParameterSet* set = nullptr;
    TensorView value = {};
    std::size_t owned = 0;  ///< bytes of a copy in the activations' dtype; 0: `value` is the set's
  };

  template <typename Service>
  Service& service(InferContext& context, const char* what) const;
  GraphSpec graph_of(StoredModel& model, const DataInfo& data, std::vector<std::string>& values) const;
  static void require_values(const InferContext& context, const StoredModel& model, const GraphSpec& graph,
                             const std::vector<std::string>& values);
  void require_fields(const InferContext& context, const std::set<std::string>& needed) const;
  void make_executor(InferContext& context, const GraphSpec& graph, const std::vector<std::string>& values);
  void load(InferContext& context, StoredModel& model);
  ParameterInfo constant_info(const InferContext& context, const StoredModel& model,
                              const std::string& name) const;
  void make_constant(InferContext& context, Constant& constant);
  /// Declares output `index`, which is `value` itself where nothing has to be converted.
  void declare(InferContext& context, std::size_t index, const TensorView& value, DType dtype);
  [[noreturn]] static void refuse(const InferContext& context, const std::string& why) {
    fail_config(fmt::format("layer '{}': {}", context.name(), why));
  }
  void move(const TensorView& from, const TensorView& to) const {
    if (from.dtype == to.dtype)
      device_->copy(from, to);
    else
      elementwise_->convert(from, to);
  }

  const std::string model_;
  std::optional<std::int64_t> step_;
  std::vector<std::string> names_;
  Precision* policy_;
  std::unique_ptr<Precision> plain_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  Mesh alone_;
  std::unique_ptr<FrozenSet> weights_;
  std::unique_ptr<Executor> executor_;  // after all that it reads
  std::vector<Copy> inputs_;
  std::vector<Constant> constants_;
  /// What forward copies, by output: empty where the output is lent.
  std::vector<TensorView> outputs_;
};

template <typename Service>
Service& Frozen::service(InferContext& context, const char* what) const {
  auto* const found = static_cast<Service*>(context.host().query(Service::kId));
  if (found == nullptr) refuse(context, fmt::format("this program offers no {} ({})", what, Service::kId));
  return *found;
}

/// The graph that has the values, whose names become those of the graph.
GraphSpec Frozen::graph_of(StoredModel& model, const DataInfo& data, std::vector<std::string>& values) const {
  const auto logits = std::find(values.begin(), values.end(), "logits");
  if (logits != values.end()) {
    if (auto* const language = static_cast<LanguageModel*>(model.query(LanguageModel::kId))) {
      LanguageGraph graph = language->language_graph(data);
      std::replace(values.begin(), values.end(), std::string("logits"), graph.logits);
      return model.edited(std::move(graph.graph), data);
    }
  }
  return model.graph(data);
}

void Frozen::require_values(const InferContext& context, const StoredModel& model, const GraphSpec& graph,
                            const std::vector<std::string>& values) {
  for (const std::string& value : values) {
    const auto makes = [&](const NodeSpec& node) { return node.name == node_of(value); };
    if (std::any_of(graph.nodes.begin(), graph.nodes.end(), makes)) continue;
    std::vector<std::string_view> known;
    for (const NodeSpec& node : graph.nodes) known.push_back(node.name);
    refuse(context, fmt::format("the model in {} has no value '{}'; it has {}", model.folder(), value,
                                fmt::join(known, ", ")));
  }
}

/// The data fields that the layer reads are those that the values need.
void Frozen::require_fields(const InferContext& context, const std::set<std::string>& needed) const {
  std::set<std::string> missing = needed;
  for (int i = 0; i < context.inputs(); ++i) {
    const std::string name(context.input_name(i));
    const auto& fields = context.data().fields;
    if (std::none_of(fields.begin(), fields.end(),
                     [&](const DataField& field) { return field.name == name; }))
      refuse(context, fmt::format("'{}' is no data field; a frozen model reads data fields alone", name));
    if (!needed.contains(name))
      refuse(context, fmt::format("its model computes {} without the data field '{}'; remove it from inputs",
                                  fmt::join(names_, ", "), name));
    missing.erase(name);
  }
  if (!missing.empty())
    refuse(
        context,
        fmt::format("its model reads {} for {}; inputs must name exactly the data fields that it needs: {}",
                    fmt::join(missing, ", "), fmt::join(names_, ", "), fmt::join(needed, ", ")));
}

void Frozen::make_executor(InferContext& context, const GraphSpec& graph,
                           const std::vector<std::string>& values) {
  // Every rank of a mesh computes the whole model: as many axes as options may name, each of one rank.
  const auto axes = static_cast<std::size_t>(context.mesh().axes());
  alone_ = Mesh(std::vector<int>(axes, 1), 0, nullptr, std::vector<Communicator*>(axes, nullptr));
  ExecutorSpec spec;
  spec.layers = &service<LayerFactory>(context, "layers for graphs of layers");
  spec.device = device_;
  spec.host = &context.host();
  spec.precision = policy_;
  spec.mesh = &alone_;
  spec.batch = context.input(0).shape[0];
  spec.training = false;
  spec.keep = values;
  spec.only_kept = true;
  executor_ = std::make_unique<Executor>(spec, graph, context.data());
  for (int i = 0; i < context.inputs(); ++i) {
    const auto& fields = context.data().fields;
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&](const DataField& f) { return f.name == context.input_name(i); });
    inputs_.push_back({i, executor_->inputs()[field - fields.begin()]});
  }
}

void Frozen::load(InferContext& context, StoredModel& model) {
  auto& shared = service<SharedObjects>(context, "objects that nodes share");
  // Models of one digest have the same weights, wherever they are stored.
  const std::string key = fmt::format("tenon.layer_frozen {} {}", model.digest(), fmt::ptr(device_));
  auto object = shared.get(key, [&] { return std::make_unique<SharedWeights>(*device_); });
  auto& weights = static_cast<SharedWeights&>(*object);
  const std::size_t before = weights.bytes();
  std::vector<ParameterInfo> own;
  if (executor_ != nullptr) own = executor_->parameters();
  std::vector<ParameterInfo> all = own;
  for (const Constant& constant : constants_) all.push_back(constant_info(context, model, constant.name));
  std::vector<ParameterSet*> sets = weights.load(model, all);
  const std::size_t after = weights.bytes();
  for (std::size_t i = 0; i < constants_.size(); ++i) constants_[i].set = sets.at(own.size() + i);
  sets.resize(own.size());
  weights_ = std::make_unique<FrozenSet>(std::move(object), std::string(model.folder()), std::move(own),
                                         std::move(sets));
  if (after > before) {
    const std::string step = model.step() < 0 ? "" : fmt::format(", slot {}", model.step());
    context.held(fmt::format("weights of {}{}", model.folder(), step), after - before);
  }
}

ParameterInfo Frozen::constant_info(const InferContext& context, const StoredModel& model,
                                    const std::string& name) const {
  std::vector<std::string_view> known;
  for (const StoredTensor& stored : model.parameters()) {
    if (stored.name == name) {
      ParameterInfo info;
      info.spec.name = name;
      info.spec.shape = stored.shape;
      info.spec.dtype = policy_->parameters();
      const Box whole = local_part(info.spec, {});
      info.offset = whole.offset, info.local = whole.extents;
      return info;
    }
    known.push_back(stored.name);
  }
  refuse(context, fmt::format("the model in {} has no parameter '{}'; it has {}", model.folder(), name,
                              fmt::join(known, ", ")));
}

void Frozen::make_constant(InferContext& context, Constant& constant) {
  const TensorView stored = constant.set->tensor(0);
  constant.value = stored;
  if (stored.dtype == context.activations()) return;
  constant.value.dtype = context.activations();
  constant.owned = constant.value.bytes();
  constant.value.data = device_->allocate(constant.owned);
  elementwise_->convert(stored, constant.value);
  context.held(fmt::format("{} in {}", constant.name, dtype_name(context.activations())), constant.owned);
}

void Frozen::declare(InferContext& context, std::size_t index, const TensorView& value, DType dtype) {
  context.output({value.shape, dtype});
  const bool lent = lend_output(context, static_cast<int>(index), value);
  outputs_.push_back(lent ? TensorView{} : value);
}

void Frozen::infer(InferContext& context) {
  device_ = &context.device();
  elementwise_ = &device_->family<Elementwise>();
  if (policy_ == nullptr) {
    plain_ = std::make_unique<PlainPrecision>(context.activations(), context.parameters());
    policy_ = plain_.get();
  }
  const auto model = service<StoredModels>(context, "stored models").open(model_, step_);
  std::vector<std::string> values;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (names_[i].starts_with(kParameter)) {
      constants_.push_back({.output = i, .name = names_[i].substr(kParameter.size())});
    } else {
      values.push_back(names_[i]);
    }
  }
  if (values.empty()) {
    require_fields(context, {});
  } else {
    if (context.inputs() == 0) refuse(context, "it has no inputs; name the data fields that its model reads");
    GraphSpec graph = graph_of(*model, context.data(), values);
    require_values(context, *model, graph, values);
    drop_teachers(graph, values);
    require_fields(context, fields_for(graph, values));
    make_executor(context, graph, values);
  }
  load(context, *model);
  std::size_t next_value = 0, next_constant = 0;
  for (std::size_t i = 0; i < names_.size(); ++i) {
    if (next_constant < constants_.size() && constants_[next_constant].output == i) {
      Constant& constant = constants_[next_constant++];
      make_constant(context, constant);
      declare(context, i, constant.value, context.activations());
    } else {
      const TensorView value = executor_->value(values[next_value++]);
      declare(context, i, value, value.dtype == policy_->activations() ? context.activations() : value.dtype);
    }
  }
  if (executor_ == nullptr) return;
  const std::int64_t planned = executor_->activation_bytes();
  context.held("activations, workspaces and kept outputs", static_cast<std::size_t>(planned));
  if (const std::int64_t copies = executor_->allocated_bytes() - planned; copies > 0)
    context.held("converted weight copies", static_cast<std::size_t>(copies));
}

void Frozen::forward(ForwardContext& context) {
  for (const Copy& input : inputs_) move(context.input(input.index), input.value);
  if (executor_ != nullptr)
    executor_->forward(*weights_, {.slot = context.step(),
                                   .micro = context.micro(),
                                   .first_sample = static_cast<std::int64_t>(context.first_element(1)),
                                   .training = false});
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i].data != nullptr) move(outputs_[i], context.output(static_cast<int>(i)));
  }
}

void Frozen::backward(BackwardContext& context) {
  for (const Copy& input : inputs_) {
    const GradientSink sink = context.input_gradient(input.index);
    if (!sink.view.empty() && !sink.accumulate) elementwise_->fill(sink.view, 0);
  }
}

}  // namespace tenon::frozen

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.layer_frozen",
                               .version = "0.1.0",
                               .summary = "a stored model as a layer that is not trained"},
             tenon::frozen::Frozen)
