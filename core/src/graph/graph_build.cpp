// Building the graph in five passes: create and infer, find gradients, bind sites, order parameters, plan
// memory.
#include "graph/graph_build.hpp"

#include "base/at.hpp"
#include "graph/contexts.hpp"
#include "graph/memory_budget.hpp"
#include "graph/plain_site.hpp"
#include "graph/ports.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

namespace tenon::graph {

// Folding of pointwise layers into the sites that produce their input. A map is folded where this has no
// visible effect: the product has no other reader, and no backward reads the value between product and map,
// which is never stored.

namespace {

GraphValue& value_at(Build& build, int index) {
  return base::at(build.values, index);
}

/// Position of a value among the outputs of its producer.
int output_of(const Node& producer, int value) {
  for (std::size_t i = 0; i < producer.outputs.size(); ++i) {
    if (producer.outputs[i] == value) return static_cast<int>(i);
  }
  return -1;
}

/// True if the elements of this output are those of one or several products that have no map yet.
bool is_product(const Node& node, int output) {
  bool found = false;
  for (const auto& site : node.sites) {
    if (site->declared.output != output) continue;
    if (site->declared.epilogue != Epilogue::kNone) return false;
    found = true;
  }
  return found;
}

/// Whether map(round(x)) = round(map(x)) for every x, so that a product that applies the map gives the bits
/// of the two nodes.
bool keeps_bits(Epilogue map) {
  return map == Epilogue::kRelu;
}

/// exactly: values must have the bits that they have when nothing is folded.
bool can_fold(Build& build, const Node& map, bool exactly) {
  if (exactly && !keeps_bits(map.offered)) return false;
  if (map.offered == Epilogue::kNone || map.inputs.size() != 1 || map.outputs.size() != 1) return false;
  const int index = map.inputs[0].value;
  const GraphValue& between = value_at(build, index);
  const GraphValue& result = value_at(build, map.outputs[0]);
  if (between.producer < 0 || between.readers.size() != 1 || between.kept) return false;
  if (!(between.spec.shape == result.spec.shape) || between.spec.dtype != result.spec.dtype) return false;
  if (map.runs_backward && map.keeps_input[0]) return false;
  const Node& producer = base::at(build.nodes, between.producer);
  const int output = output_of(producer, index);
  if (producer.runs_backward && base::at(producer.keeps_output, output)) return false;
  return is_product(producer, output);
}

/// Marks the nodes whose offered map the producing sites can apply, and gives those sites the map. Call it
/// when the nodes that run backward are known, and before sites are bound.
void fold_epilogues(Build& build, bool exactly) {
  for (Node& map : build.nodes) {
    if (!can_fold(build, map, exactly)) continue;
    GraphValue& between = value_at(build, map.inputs[0].value);
    Node& producer = base::at(build.nodes, between.producer);
    const int output = output_of(producer, map.inputs[0].value);
    for (auto& site : producer.sites) {
      if (site->declared.output == output) site->declared.epilogue = map.offered;
    }
    between.stored_as = map.outputs[0];
    map.folded_into = between.producer;
  }
}

}  // namespace

// The graph, pass by pass.

void FormatCounter::count(std::string_view format, std::int64_t operands) {
  for (auto& [name, total] : counts) {
    if (name == format) {
      total += operands;
      return;
    }
  }
  counts.emplace_back(format, operands);
}

Site::Site(const ExecutorSpec& spec, FormatCounter& counter, std::string layer_name, int site_index)
    : layer(std::move(layer_name)),
      spec_(&spec),
      counter_(&counter),
      rounding_key_(random_key(spec.seed_rounding, fmt::format("rounding:{}:{}", layer, site_index))) {}

Site::~Site() {
  for (const SiteTensor& tensor : tensors) {
    spec_->device->release(tensor.view.data, tensor.view.bytes());
  }
}

TensorView Site::state(std::string_view name, DType dtype, const Shape& shape) {
  TensorView view;
  view.dtype = dtype;
  view.shape = shape;
  view.space = spec_->device->space();
  view.data = allocate_for(*spec_->device, static_cast<std::size_t>(view.bytes()),
                           fmt::format("state '{}' of layer '{}'", name, layer));
  tensors.push_back({std::string(name), view});
  return view;
}

namespace {

bool is_floating(DType dtype) {
  return dtype_is_real(dtype) || dtype_is_complex(dtype);
}

/// Type of a data field in the graph: reals take the activations' type, complex numbers its precision.
DType field_dtype(DType declared, DType activations) {
  if (dtype_is_real(declared)) return activations;
  if (dtype_is_complex(declared)) return activations == DType::kF64 ? DType::kC128 : DType::kC64;
  return declared;
}

/// "h.3" of "h.3.mlp.c_fc": up to the first part that is a number; the whole name if none is.
std::string block_of(const std::string& layer) {
  for (std::size_t begin = 0; begin < layer.size();) {
    const std::size_t end = std::min(layer.find('.', begin), layer.size());
    if (layer.find_first_not_of("0123456789", begin) >= end) return layer.substr(0, end);
    begin = end + 1;
  }
  return layer;
}

/// Blocks in the order of their first layers.
class Blocks {
 public:
  /// -1 for a head.
  int index_of(const Node& node) {
    if (node.sites.empty() || node.sites.front()->module == "head") return -1;
    const std::string name = block_of(node.spec.name);
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found != names_.end()) return static_cast<int>(found - names_.begin());
    names_.push_back(name);
    return static_cast<int>(names_.size()) - 1;
  }
  int count() const { return static_cast<int>(names_.size()); }

 private:
  std::vector<std::string> names_;
};

class Planner;

class Builder {
 public:
  Builder(const ExecutorSpec& spec, const DataInfo& data)
      : spec_(spec), data_(data), build_(std::make_unique<Build>()), budget_(*spec.device) {
    for (const DataField& field : data.fields) {
      GraphValue value;
      value.name = field.name;
      value.spec.dtype = field_dtype(field.dtype, spec.precision->activations());
      std::vector<std::int64_t> extents{spec.batch};
      extents.insert(extents.end(), field.shape.extents().begin(), field.shape.extents().end());
      const std::int64_t bytes =
          dtype_bytes(value.spec.dtype, saturating_product(spec.batch, field.shape.elements()));
      if (!budget_.allows(bytes)) {
        fail_config(
            fmt::format("data: field '{}' of a batch of {} samples takes {}, {}; make the batch smaller",
                        field.name, spec.batch, memory_text(bytes), budget_.text()));
      }
      value.spec.shape = Shape(extents);
      value.spec.layout = {value.spec.shape};  // every rank of the mesh reads all of it
      build_->values.push_back(std::move(value));
    }
    build_->fields = static_cast<int>(build_->values.size());
    build_->batch = std::max<std::int64_t>(1, spec.batch);
  }

  std::unique_ptr<Build> run(const GraphSpec& graph) {
    build_->nodes.reserve(graph.nodes.size());
    for (const NodeSpec& node : graph.nodes) create(node);
    check_frozen();
    find_loss();
    find_gradients();
    find_kept();
    if (spec_.positions != 0) infer_steps();
    if (!spec_.keep_values) fold_epilogues(*build_, !spec_.keep.empty());
    bind_sites();
    empty_skipped();
    order_parameters();
    plan_memory();
    return std::move(build_);
  }

  std::unique_ptr<Build> infer(const GraphSpec& graph) {
    allocates_ = false;
    build_->nodes.reserve(graph.nodes.size());
    for (const NodeSpec& node : graph.nodes) create(node);
    find_loss();
    return std::move(build_);
  }

 private:
  void check_frozen() const {
    for (const std::string& pattern : spec_.frozen) {
      const auto matches = [&](const Declared& d) { return matches_pattern(pattern, d.spec.name); };
      if (std::ranges::any_of(build_->declared, matches)) continue;
      std::vector<std::string> names;
      for (const Declared& declared : build_->declared) names.push_back(declared.spec.name);
      constexpr std::size_t kMost = 12;
      const std::size_t more = names.size() > kMost ? names.size() - kMost : 0;
      names.resize(names.size() - more);
      fail_config(fmt::format("frozen: no parameter matches '{}'; the model has {}{}", pattern,
                              fmt::join(names, ", "), more > 0 ? fmt::format(" and {} more", more) : ""));
    }
    const auto trained = [](const Declared& d) { return d.spec.trainable && d.spec.role != Role::kBuffer; };
    if (spec_.training && !spec_.frozen.empty() && std::ranges::none_of(build_->declared, trained))
      fail_config("frozen: all parameters of the model are frozen, which leaves nothing to train");
  }

  void create(const NodeSpec& node_spec) {
    build_->nodes.push_back({});
    Node& node = build_->nodes.back();
    const int index = static_cast<int>(build_->nodes.size()) - 1;
    node.spec = node_spec;
    for (const std::string& name : node_spec.inputs) {
      const int value = find_value(name, node_spec.name);
      base::at(build_->values, value).readers.push_back(index);
      node.inputs.push_back({value, false, false});
    }
    node.keeps_input.assign(node.inputs.size(), false);
    node.owner = spec_.layers->create(node_spec);
    node.layer = &node.owner->layer();
    node.loss = static_cast<LossLayer*>(node.layer->query(LossLayer::kId));
    node.metric = static_cast<MetricLayer*>(node.layer->query(MetricLayer::kId));
    LayerInference context(spec_, data_, *build_, index);
    const std::size_t declared = build_->declared.size();
    const tenon_port_v1* const* const ports = node.owner->ports();
    const auto input = [&](int i) { return context.input(i); };
    if (const auto problem =
            ports_problem(ports, PortSide::kInputs, context.inputs(), input, context.activations());
        !problem.empty())
      fail_config(fmt::format("layer '{}': {}", node_spec.name, problem));
    try {
      node.layer->infer(context);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kRun) throw;
      // The shape overflows: nothing runs yet, so the numbers in the configuration are at fault.
      fail_config(fmt::format("{}: {}: {}, {}", described(node_spec), error.what(),
                              memory_text(std::numeric_limits<std::int64_t>::max()), budget_.text()));
    }
    const auto output = [&](int i) { return base::at(build_->values, node.outputs[i]).spec; };
    if (const auto problem = ports_problem(ports, PortSide::kOutputs, static_cast<int>(node.outputs.size()),
                                           output, context.activations());
        !problem.empty())
      fail_plugin(
          fmt::format("layer '{}': {} declares other outputs: {}", node_spec.name, node_spec.type, problem));
    complete_layouts(node);
    require_memory(node, declared);
    node.keeps_output.resize(node.outputs.size(), false);
  }

  /// "model node 'fc' (linear; features = 900000)"
  static std::string described(const NodeSpec& node) {
    std::string numbers;
    for (const NamedOption& option : node.options) {
      if (const auto* number = std::get_if<std::int64_t>(&option.value)) {
        numbers += fmt::format("{} {} = {}", numbers.empty() ? ";" : ",", option.name, *number);
      } else if (const auto* list = std::get_if<std::vector<std::int64_t>>(&option.value)) {
        numbers +=
            fmt::format("{} {} = [{}]", numbers.empty() ? ";" : ",", option.name, fmt::join(*list, ", "));
      }
    }
    return fmt::format("model node '{}' ({}{})", node.name, node.type, numbers);
  }

  /// Refuses a node if the parameters so far, its own from `first` on included, or one of its buffers exceed
  /// the budget.
  void require_memory(const Node& node, std::size_t first) {
    if (!allocates_) return;
    const auto refuse = [&](const std::string& what, std::int64_t bytes) {
      fail_config(fmt::format("{}: {} {}, {}; make the model or the batch smaller", described(node.spec),
                              what, memory_text(bytes), budget_.text()));
    };
    for (; first < build_->declared.size(); ++first) {
      const ParameterSpec& spec = build_->declared[first].spec;
      if (spec.role == Role::kRowTable)
        continue;  // may be dealt to replicas; their memory is refused when it is taken
      const bool twice =
          spec_.training && spec.trainable && spec.role == Role::kParameter;  // and its gradient
      const std::int64_t own = dtype_bytes(spec.dtype, local_part(spec, place_of(spec_)).extents.elements());
      parameter_bytes_ = saturating_sum(parameter_bytes_, saturating_product(own, twice ? 2 : 1));
    }
    if (!budget_.allows(parameter_bytes_))
      refuse("with it, parameters and their gradients take", parameter_bytes_);
    const auto buffer = [&](const char* what, std::int64_t bytes) {
      if (!budget_.allows(bytes)) refuse(what, bytes);
    };
    const auto bytes_of = [](const ValueSpec& spec) {
      return dtype_bytes(spec.dtype, spec.shape.elements());
    };
    for (const int output : node.outputs) buffer("its output takes", bytes_of(value(output).spec));
    for (const SavedMemory& saved : node.saved)
      buffer("what it keeps for backward takes", bytes_of(saved.spec));
    for (const WorkspaceMemory& workspace : node.workspaces) {
      const std::size_t most = std::numeric_limits<std::int64_t>::max();
      buffer("its workspace takes", static_cast<std::int64_t>(std::min(workspace.bytes, most)));
    }
  }

  GraphValue& value(int index) { return base::at(build_->values, index); }

  /// Outputs that the layer says nothing about are whole, which they can only be where its inputs are.
  void complete_layouts(const Node& node) {
    for (const int output : node.outputs) {
      ValueSpec& spec = value(output).spec;
      const std::string what = fmt::format("model node '{}' ({})", node.spec.name, node.spec.type);
      if (spec.layout.stated()) {
        const MeshPlace place = place_of(spec_);
        check_layout(spec.layout, place.extents, what);
        const Shape part = part_of(spec.layout, place).extents;
        if (!(part == spec.shape)) {
          fail_plugin(fmt::format("{}: output shape {} does not match this rank's shard of {}: expected {}",
                                  what, spec.shape.text(), layout_text(spec.layout), part.text()));
        }
        continue;
      }
      for (const NodeInput& input : node.inputs) {
        const GraphValue& read = value(input.value);
        if (read.spec.layout.whole()) continue;
        fail_config(
            fmt::format("{} needs unsharded inputs, and '{}' is sharded over the mesh: {}. Put a node of "
                        "type 'repartition' before it, or use a layer that accepts shards",
                        what, read.name, layout_text(read.spec.layout)));
      }
      spec.layout = {spec.shape};
    }
  }

  int find_value(const std::string& name, const std::string& reader) const {
    for (std::size_t i = 0; i < build_->values.size(); ++i) {
      if (build_->values[i].name == name) return static_cast<int>(i);
    }
    std::vector<std::string_view> known;
    for (const GraphValue& value : build_->values) known.push_back(value.name);
    fail_config(fmt::format(
        "model node '{}' reads '{}', which no earlier node and no data field offers; known here: {}", reader,
        name, fmt::join(known, ", ")));
  }

  void find_loss() {
    for (std::size_t i = 0; i < build_->nodes.size(); ++i) {
      if (build_->nodes[i].loss == nullptr || build_->nodes[i].loss->metric() != "loss") continue;
      if (build_->loss_node >= 0) {
        fail_config(fmt::format(
            "the model has two trained losses, '{}' and '{}'; add them by a node of type 'add_losses' and "
            "give "
            "each a metric name of its own, or give one of them another metric name to report it alone",
            base::at(build_->nodes, build_->loss_node).spec.name, build_->nodes[i].spec.name));
      }
      build_->loss_node = static_cast<int>(i);
    }
    if (spec_.training && build_->loss_node < 0) {
      fail_config("the model has no loss: end it with a loss layer such as 'head_cross_entropy'");
    }
  }

  void find_kept() {
    std::vector<std::string> unknown;
    for (const std::string& name : spec_.keep) {
      const auto found = std::find_if(build_->values.begin(), build_->values.end(),
                                      [&](const GraphValue& value) { return value.name == name; });
      if (found == build_->values.end())
        unknown.push_back("'" + name + "'");
      else
        found->kept = true;
    }
    if (unknown.empty()) return skip_others();
    std::vector<std::string_view> known;
    for (const GraphValue& value : build_->values) known.push_back(value.name);
    fail_config(fmt::format("the graph has no value {} to keep; it has {}", fmt::join(unknown, ", "),
                            fmt::join(known, ", ")));
  }

  /// only_kept: marks the nodes that no kept output depends on.
  void skip_others() {
    if (!spec_.only_kept) return;
    if (spec_.training) fail_run("only_kept was asked of a graph that is built for training");
    std::vector<bool> needed;
    for (const GraphValue& value : build_->values) needed.push_back(value.kept);
    for (std::size_t i = build_->nodes.size(); i-- > 0;) {
      Node& node = build_->nodes[i];
      node.skipped =
          std::none_of(node.outputs.begin(), node.outputs.end(), [&](int output) { return needed[output]; });
      if (node.skipped) node.metric = nullptr;
      for (const NodeInput& input : node.inputs) needed[input.value] = needed[input.value] || !node.skipped;
    }
  }

  /// Asks the layers of a stepwise graph what they keep of a sequence, and refuses those that cannot run so.
  void infer_steps() {
    if (spec_.positions < 0 || spec_.training) {
      fail_run(
          fmt::format("a graph {} was asked to run stepwise on sequences of {} positions; expected one "
                      "for evaluation, and at least 1 position",
                      spec_.training ? "for training" : "for evaluation", spec_.positions));
    }
    find_time();
    std::vector<std::string> unable;
    for (Node& node : build_->nodes) {
      if (node.skipped) continue;
      node.stepwise = static_cast<StepwiseLayer*>(node.layer->query(StepwiseLayer::kId));
      if (node.stepwise == nullptr && node.layer->query(PositionwiseLayer::kId) == nullptr)
        unable.push_back(fmt::format("'{}' ({})", node.spec.name, node.spec.type));
    }
    if (!unable.empty()) {
      fail_config(
          fmt::format("the model cannot run position by position, which generation needs: {} of its layers "
                      "offer neither {} nor {}: {}; replace them by layers that do, or give them one of the "
                      "two (<tenon/stepwise.hpp>)",
                      unable.size(), PositionwiseLayer::kId, StepwiseLayer::kId, fmt::join(unable, ", ")));
    }
    require_whole_positions();
    for (std::size_t i = 0; i < build_->nodes.size(); ++i) {
      Node& node = build_->nodes[i];
      if (node.stepwise == nullptr) continue;
      LayerInference context(spec_, data_, *build_, static_cast<int>(i));
      node.sequence_bytes = node.stepwise->infer_step(context, spec_.positions);
      if (node.sequence_bytes < 0) {
        fail_plugin(
            fmt::format("layer '{}': infer_step() returned {} bytes of a sequence; expected 0 or more",
                        node.spec.name, node.sequence_bytes));
      }
      require_memory(node, build_->declared.size());
    }
  }

  /// The rows of a pass are those of every rank of a mesh.
  void require_whole_positions() const {
    for (const GraphValue& value : build_->values) {
      if (value.producer < 0 || base::at(build_->nodes, value.producer).skipped) continue;
      const Layout& layout = value.spec.layout;
      if (sharding_of(layout, 0) == nullptr && sharding_of(layout, 1) == nullptr) continue;
      const NodeSpec& node = base::at(build_->nodes, value.producer).spec;
      fail_config(
          fmt::format("model node '{}' ({}) shards samples or positions over the mesh, which a graph that "
                      "runs stepwise needs whole: {}; shard the last dimension alone",
                      node.name, node.type, layout_text(layout)));
    }
  }

  /// The positions of a pass: the second extent of the data that running nodes read.
  void find_time() {
    const GraphValue* first = nullptr;
    for (int i = 0; i < build_->fields; ++i) {
      const GraphValue& field = base::at(build_->values, i);
      if (!is_read(field)) continue;
      if (field.spec.shape.rank() < 2) {
        fail_config(
            fmt::format("data field '{}' has one number per sample, and a graph that runs stepwise "
                        "needs one per position: expected [batch, time, ...], found {}",
                        field.name, field.spec.shape.text()));
      }
      if (first == nullptr) first = &field;
      if (field.spec.shape[1] == first->spec.shape[1]) continue;
      fail_config(
          fmt::format("data fields '{}' {} and '{}' {} differ in the positions of a pass, which a "
                      "graph that runs stepwise counts along the second extent",
                      first->name, first->spec.shape.text(), field.name, field.spec.shape.text()));
    }
    if (first == nullptr) fail_config("a graph that runs stepwise reads data, and this one reads none");
    build_->time = first->spec.shape[1];
  }

  /// Once policies have counted them.
  void empty_skipped() {
    for (Node& node : build_->nodes) {
      if (!node.skipped) continue;
      node.sites.clear(), node.parameters.clear(), node.saved.clear(), node.workspaces.clear();
    }
  }

  bool has_trainable(const Node& node) const {
    return std::any_of(node.parameters.begin(), node.parameters.end(), [&](int p) {
      const ParameterSpec& spec = base::at(build_->declared, p).spec;
      return spec.trainable && spec.role != Role::kBuffer;
    });
  }

  void find_gradients() {
    for (int i = 0; i < build_->fields; ++i) {
      GraphValue& value = base::at(build_->values, i);
      value.needs_gradient = spec_.input_gradients && is_floating(value.spec.dtype);
    }
    for (Node& node : build_->nodes) {
      bool needs = has_trainable(node);
      for (const NodeInput& input : node.inputs) needs |= value_of(input).needs_gradient;
      for (int output : node.outputs) base::at(build_->values, output).needs_gradient = needs;
    }
    if (!spec_.training) return;
    for (std::size_t i = build_->nodes.size(); i-- > 0;) {
      Node& node = build_->nodes[i];
      bool reaches = static_cast<int>(i) == build_->loss_node;
      bool needs = has_trainable(node);
      for (int output : node.outputs) reaches |= base::at(build_->values, output).has_gradient;
      for (const NodeInput& input : node.inputs) needs |= value_of(input).needs_gradient;
      node.runs_backward = reaches && needs;
      if (!node.runs_backward) continue;
      for (NodeInput& input : node.inputs) {
        GraphValue& value = value_of(input);
        if (!value.needs_gradient || !is_floating(value.spec.dtype)) continue;
        input.gradient = true;
        input.accumulate = value.has_gradient;
        value.has_gradient = true;
      }
    }
  }

  void bind_sites() {
    int layers = 0, gemms = 0;
    Blocks blocks;
    for (const Node& node : build_->nodes) {
      layers += node.sites.empty() ? 0 : 1;
      if (blocks.index_of(node) >= 0) gemms += static_cast<int>(node.sites.size());
    }
    int layer = 0, gemm = 0;
    for (Node& node : build_->nodes) {
      for (std::size_t i = 0; i < node.sites.size(); ++i) {
        Site& site = *node.sites[i];
        const ParameterSpec& weight = base::at(build_->declared, site.parameter).spec;
        SiteInfo info;
        info.layer = site.layer;
        info.module = site.module;
        info.weight = weight.name;
        info.layer_index = layer;
        info.layer_count = layers;
        info.block_index = blocks.index_of(node);
        info.block_count = blocks.count();
        info.site = static_cast<int>(i);
        info.gemm_index = info.block_index < 0 ? -1 : gemm++;
        info.gemm_count = gemms;
        info.m = site.declared.m, info.n = site.declared.n, info.k = site.declared.k;
        info.chunk = site.declared.chunk > 0 ? site.declared.chunk : site.declared.m;
        const Shape offset = local_part(weight, place_of(spec_)).offset;
        info.origin_n = site.declared.first_weight_row + (offset.rank() == 0 ? 0 : offset[0]);
        info.origin_k = offset.rank() < 2 ? 0 : offset[1];
        info.bias = site.declared.bias;
        info.epilogue = site.declared.epilogue;
        info.activation = spec_.precision->activations();
        info.parameter = spec_.precision->parameters();
        info.steps = spec_.steps;
        site.product = spec_.precision->bind(info, site);
        site.kept = site.product == nullptr;
        if (site.kept && site.images != nullptr) site.product = make_image_site(info, site, *site.images);
        site.takes_images = site.kept && site.product != nullptr;
        if (site.product == nullptr) site.product = make_plain_site(info, site, site.declared.channels_first);
        if (site.declared.channels_first && !site.kept)
          site.product = make_transposed_site(info, site, std::move(site.product));
        site.memory = site.product->memory();
        const bool reads = node.runs_backward && site.product->reads_input();
        if (site.declared.input >= 0 && reads) base::at(node.keeps_input, site.declared.input) = true;
      }
      layer += node.sites.empty() ? 0 : 1;
    }
  }

  void order_parameters() {
    std::vector<int> waiting(build_->declared.size(), 0);
    for (Node& node : build_->nodes) {
      std::vector<int> distinct = node.parameters;
      std::sort(distinct.begin(), distinct.end());
      distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
      if (!node.runs_backward) continue;
      for (int p : distinct) ++base::at(waiting, p);
    }
    for (std::size_t p = 0; p < waiting.size(); ++p) {
      build_->declared[p].users = waiting[p];
      build_->declared[p].finish_order = static_cast<int>(build_->declared.size());  // never finished: last
    }
    int finished = 0;
    for (std::size_t i = build_->nodes.size(); i-- > 0;) {
      const Node& node = build_->nodes[i];
      if (!node.runs_backward) continue;
      std::vector<int> seen;
      for (int p : node.parameters) {
        if (std::find(seen.begin(), seen.end(), p) != seen.end()) continue;
        seen.push_back(p);
        if (--base::at(waiting, p) == 0) {
          base::at(build_->declared, p).finish_order = finished++;
        }
      }
    }
    build_->parameters = lay_out(used(), place_of(spec_));
    for (Node& node : build_->nodes) {
      for (int& p : node.parameters) p = laid_out(p);
      for (auto& site : node.sites) site->parameter = laid_out(site->parameter);
    }
  }

  /// Declarations of nodes that run.
  std::vector<Declared> used() const {
    std::vector<bool> read(build_->declared.size(), !spec_.only_kept);
    for (const Node& node : build_->nodes) {
      for (const int p : node.parameters) read[p] = true;
    }
    std::vector<Declared> result;
    for (std::size_t p = 0; p < read.size(); ++p) {
      if (read[p]) result.push_back(build_->declared[p]);
    }
    return result;
  }

  int laid_out(int declared) const {
    const std::string& name = base::at(build_->declared, declared).spec.name;
    for (const ParameterInfo& info : build_->parameters) {
      if (info.spec.name == name) return info.index;
    }
    return -1;
  }

  GraphValue& value_of(const NodeInput& input) { return base::at(build_->values, input.value); }

  /// Node whose forward writes the value; -1 for data.
  int written_at(const GraphValue& value) const {
    if (value.producer < 0) return -1;
    const int folded = base::at(build_->nodes, value.producer).folded_into;
    return folded >= 0 ? folded : value.producer;
  }

  /// When a node's backward pass runs, on the planner's scale: node i runs forward at i.
  int backward_time(int node) const { return 2 * static_cast<int>(build_->nodes.size()) - 1 - node; }
  bool is_read(const GraphValue& value) const;
  void share_gradients();
  void plan_values(Planner& planner);
  void plan_nodes(Planner& planner);
  void plan_memory();

  const ExecutorSpec& spec_;
  const DataInfo& data_;
  std::unique_ptr<Build> build_;
  MemoryBudget budget_;
  bool allocates_ = true;
  std::int64_t parameter_bytes_ = 0;
};

/// Collects lifetimes together with the view that each placed buffer fills in.
class Planner {
 public:
  explicit Planner(Build& build) : build_(build) {}

  void add(TensorView& view, std::size_t bytes, DType dtype, const Shape& shape, int first, int last,
           std::string what) {
    build_.plan.push_back({bytes, first, last, std::move(what), 0});
    view.dtype = dtype;
    view.shape = shape;
    views_.push_back(&view);
  }
  void add_bytes(TensorView& view, std::size_t bytes, int first, int last, std::string what) {
    add(view, bytes, DType::kU8, Shape{static_cast<std::int64_t>(bytes)}, first, last, std::move(what));
  }
  void add_value(TensorView& view, const ValueSpec& spec, int first, int last, std::string what) {
    add(view, static_cast<std::size_t>(dtype_bytes(spec.dtype, spec.shape.elements())), spec.dtype,
        spec.shape, first, last, std::move(what));
  }

  void finish(Device& device, const MemoryBudget& budget) {
    build_.plan_bytes = place(build_.plan);
    if (const auto bytes = static_cast<std::int64_t>(build_.plan_bytes); !budget.allows(bytes)) {
      fail_config(
          fmt::format("the model's activations and scratch take {}, {}; make the model or the batch smaller",
                      memory_text(bytes), budget.text()));
    }
    build_.block.dtype = DType::kU8;
    build_.block.shape = Shape{static_cast<std::int64_t>(build_.plan_bytes)};
    build_.block.space = device.space();
    if (build_.plan_bytes > 0) {
      const auto largest = std::max_element(build_.plan.begin(), build_.plan.end(),
                                            [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
      build_.block.data = allocate_for(device, build_.plan_bytes,
                                       fmt::format("activations and scratch; the largest is {} with {} bytes",
                                                   largest->what, largest->bytes));
    }
    for (std::size_t i = 0; i < views_.size(); ++i) {
      views_[i]->space = device.space();
      if (build_.plan[i].bytes > 0)
        views_[i]->data = static_cast<std::byte*>(build_.block.data) + build_.plan[i].offset;
    }
  }

 private:
  Build& build_;
  std::vector<TensorView*> views_;
};

bool Builder::is_read(const GraphValue& value) const {
  return std::any_of(value.readers.begin(), value.readers.end(),
                     [&](int reader) { return !base::at(build_->nodes, reader).skipped; });
}

/// From the last node to the first, so that a chain of them ends at the gradient that a node writes.
void Builder::share_gradients() {
  for (std::size_t i = build_->nodes.size(); i-- > 0;) {
    const Node& node = build_->nodes[i];
    if (!node.runs_backward || node.passes_gradient.empty()) continue;
    const int output = node.outputs.at(0);
    const GraphValue& whole = base::at(build_->values, output);
    for (std::size_t in = 0; in < node.passes_gradient.size(); ++in) {
      GraphValue& part = value_of(node.inputs[in]);
      const bool is_alike =
          part.spec.dtype == whole.spec.dtype && part.spec.shape.elements() == whole.spec.shape.elements();
      if (!node.passes_gradient[in] || !part.has_gradient || !whole.has_gradient || part.producer < 0 ||
          part.readers.size() != 1 || !is_alike)
        continue;
      part.gradient_of = whole.gradient_of < 0 ? output : whole.gradient_of;
    }
  }
}

void Builder::plan_values(Planner& planner) {
  const int end = 2 * static_cast<int>(build_->nodes.size());
  share_gradients();
  std::vector<int> gradient_ends(build_->values.size());
  for (std::size_t i = 0; i < build_->values.size(); ++i) {
    const GraphValue& value = build_->values[i];
    int& last = gradient_ends[value.gradient_of < 0 ? i : static_cast<std::size_t>(value.gradient_of)];
    last = std::max(last, value.producer < 0 ? end : backward_time(value.producer));
  }
  for (std::size_t i = 0; i < build_->values.size(); ++i) {
    GraphValue& value = build_->values[i];
    const bool data = value.producer < 0;
    if (spec_.only_kept && !value.kept && !is_read(value)) continue;
    int last = data || spec_.keep_values || value.kept ? end : value.producer;
    if (!data && base::at(build_->nodes, value.producer).loss != nullptr) last = end;
    for (int reader : value.readers) {
      const Node& node = base::at(build_->nodes, reader);
      if (node.skipped) continue;
      last = std::max(last, reader);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const bool this_value = &value_of(node.inputs[i]) == &value;
        if (this_value && node.runs_backward && node.keeps_input[i])
          last = std::max(last, backward_time(reader));
      }
    }
    if (!data) {
      const Node& node = base::at(build_->nodes, value.producer);
      for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        const bool this_value = &base::at(build_->values, node.outputs[i]) == &value;
        if (this_value && node.runs_backward && node.keeps_output[i]) {
          last = std::max(last, backward_time(value.producer));
        }
      }
    }
    if (value.lent.data != nullptr) {
      value.data = value.lent;
    } else if (value.stored_as < 0) {
      planner.add_value(value.data, value.spec, written_at(value), last, value.name);
    }
    if (value.has_gradient && value.gradient_of < 0) {
      int first = end;
      for (int reader : value.readers) {
        if (base::at(build_->nodes, reader).runs_backward) first = std::min(first, backward_time(reader));
      }
      planner.add_value(value.gradient, value.spec, first, gradient_ends[i], value.name + " (gradient)");
    }
  }
}

void Builder::plan_nodes(Planner& planner) {
  for (int i = 0; i < static_cast<int>(build_->nodes.size()); ++i) {
    Node& node = base::at(build_->nodes, i);
    const int back = backward_time(i);
    const std::string& name = node.spec.name;
    for (SavedMemory& saved : node.saved) {
      planner.add_value(saved.view, saved.spec, i, node.runs_backward ? back : i, name + " (saved)");
    }
    for (WorkspaceMemory& workspace : node.workspaces) {
      planner.add_bytes(workspace.forward, workspace.bytes, i, i, name + " (workspace)");
      if (node.runs_backward)
        planner.add_bytes(workspace.backward, workspace.bytes, back, back, name + " (workspace)");
    }
    for (auto& site : node.sites) {
      planner.add_bytes(site->kept_memory, site->memory.kept, i, node.runs_backward ? back : i,
                        name + " (site)");
      planner.add_bytes(site->forward_scratch, site->memory.scratch, i, i, name + " (site scratch)");
      if (node.runs_backward) {
        planner.add_bytes(site->backward_scratch, site->memory.scratch, back, back, name + " (site scratch)");
      }
      if (site->memory.persistent == 0) continue;
      site->persistent.dtype = DType::kU8;
      site->persistent.shape = Shape{static_cast<std::int64_t>(site->memory.persistent)};
      site->persistent.space = spec_.device->space();
      site->persistent.data = allocate_for(*spec_.device, site->memory.persistent,
                                           fmt::format("copies of the weight of layer '{}'", site->layer));
      build_->persistent.push_back(site->persistent);
    }
  }
}

void Builder::plan_memory() {
  Planner planner(*build_);
  plan_values(planner);
  if (spec_.positions > 0) {
    planner.add_value(build_->positions, {Shape{build_->batch, build_->time}, DType::kI32}, -1,
                      2 * static_cast<int>(build_->nodes.size()), "positions of a pass");
  }
  plan_nodes(planner);
  planner.finish(*spec_.device, budget_);
  for (GraphValue& value : build_->values) {
    if (value.stored_as >= 0) value.data = base::at(build_->values, value.stored_as).data;
    if (value.gradient_of >= 0)
      value.gradient = base::at(build_->values, value.gradient_of).gradient.reshaped(value.spec.shape);
  }

  std::size_t copies = 0;
  for (const TensorView& view : build_->persistent) copies += view.bytes();
  std::size_t sum = 0;
  for (const Lifetime& buffer : build_->plan) sum += buffer.bytes;
  build_->lines.push_back({"activations, gradients and workspaces (planned)", build_->plan_bytes});
  build_->lines.push_back({"the same without reuse", sum});
  build_->lines.push_back({"converted weight copies", copies});
  if (!spec_.keep.empty()) {
    std::size_t kept = 0;
    for (const GraphValue& value : build_->values) kept += value.kept ? value.data.bytes() : 0;
    build_->lines.push_back({"outputs kept after forward (planned)", kept});
  }
  if (spec_.positions > 0) {
    std::int64_t bytes = 0;
    for (const Node& node : build_->nodes) bytes = saturating_sum(bytes, node.sequence_bytes);
    build_->lines.push_back({fmt::format("kept of each sequence of {} positions", spec_.positions),
                             static_cast<std::size_t>(bytes)});
  }
  for (const PlanLine& line : build_->held) build_->lines.push_back(line);
}

}  // namespace

std::unique_ptr<Build> build_graph(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data) {
  return Builder(spec, data).run(graph);
}

std::unique_ptr<Build> infer_graph(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data) {
  return Builder(spec, data).infer(graph);
}

void release(Build& build, Device& device) {
  build.nodes.clear();
  for (const TensorView& view : build.persistent) device.release(view.data, view.bytes());
  if (build.block.data != nullptr) device.release(build.block.data, build.plan_bytes);
}

}  // namespace tenon::graph
