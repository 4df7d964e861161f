// A layer adds f(norm(x)) to the stream, so zeros in its last map leave it out; nothing is built again for a
// removal that is only measured.
#include "calibration.hpp"

#include <tenon/error.hpp>
#include <tenon/language_model.hpp>
#include <tenon/sdk/plain_precision.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

namespace tenon::minitron {
namespace {

/// Nats above the loss of a uniform guess that no trained model has on its own tokens.
constexpr double kWorseThanGuess = 1;

const StoredTensor* find(const StoredModel& source, std::string_view name) {
  const auto parameters = source.parameters();
  const auto found = std::ranges::find(parameters, name, &StoredTensor::name);
  return found == parameters.end() ? nullptr : &*found;
}

/// f64 for a model of such weights, else f32.
DType type_of(const StoredModel& source) {
  const StoredTensor* table = find(source, "model.embed_tokens.weight");
  return table != nullptr && table->dtype == DType::kF64 ? DType::kF64 : DType::kF32;
}

/// 0: unknown.
std::int64_t vocabulary_of(const std::vector<DataAttribute>& attributes) {
  const auto found = std::ranges::find(attributes, "vocabulary", &DataAttribute::name);
  return found == attributes.end() ? 0 : found->value;
}

void require_vocabulary(const StoredModel& source, const DataInfo& data) {
  const std::int64_t here = vocabulary_of(data.attributes),
                     there = vocabulary_of(source.description().attributes);
  if (here == 0)
    fail_config(fmt::format(
        "transform minitron: the calibration data say no vocabulary, so their tokens cannot be those "
        "that {} was trained on; expected a data set of text",
        source.folder()));
  if (there != 0 && here != there)
    fail_config(fmt::format(
        "transform minitron: the calibration data have a vocabulary of {}, and {} was trained on one "
        "of {}; use the tokenizer that it was trained with",
        here, source.folder(), there));
}

/// The map that ends a layer.
std::string last_map(const LayerShape& layer) {
  switch (layer.kind) {
    case LayerKind::kAttention:
      return layer.prefix() + "self_attn.o_proj";
    case LayerKind::kMamba:
      return layer.prefix() + "mamba.out_proj";
    case LayerKind::kFfn:
      break;
  }
  return layer.prefix() + "mlp.down_proj";
}

/// Reads a whole parameter in the type of the graph.
void read_as(StoredModel& source, const StoredTensor& stored, const TensorView& to) {
  Shape origin = stored.shape;
  for (int dim = 0; dim < origin.rank(); ++dim) origin[dim] = 0;
  if (stored.dtype == to.dtype) {
    source.read(stored.name, origin, to);
    return;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(dtype_bytes(stored.dtype, stored.shape.elements())));
  const TensorView from{bytes.data(), stored.shape, stored.dtype, MemorySpace::kHost};
  source.read(stored.name, origin, from);
  std::vector<double> values;
  for_each_real(from, [&](double value) { values.push_back(value); });
  write_reals(values, to);
}

std::string problem(const StoredModel& source, const ParameterInfo& info) {
  const StoredTensor* stored = find(source, info.spec.name);
  const std::string expected =
      fmt::format("expected {} {}", dtype_name(info.spec.dtype), info.spec.shape.text());
  if (stored == nullptr) return fmt::format("'{}' is missing, {}", info.spec.name, expected);
  const bool real = has_real_values(stored->dtype) && !dtype_is_complex(stored->dtype);
  if (stored->shape == info.spec.shape && real && info.spec.role != Role::kRowTable) return "";
  return fmt::format("'{}': {}, found {} {}", info.spec.name, expected, dtype_name(stored->dtype),
                     stored->shape.text());
}

NodeSpec linear_of(std::string name, std::string input, std::int64_t features, std::string weight,
                   const char* module) {
  return {std::move(name),
          "linear",
          {std::move(input)},
          {{"features", features},
           {"bias", false},
           {"weight", std::move(weight)},
           {"module", std::string(module)}}};
}

}  // namespace

Calibration::Calibration(Host& host, Dataset& data, Device* device, Precision* precision,
                         std::int64_t samples, std::int64_t threads)
    : host_(host), data_(data), device_(device), precision_(precision) {
  if (device_ == nullptr) {
    device_ = static_cast<Device*>(host.query(Device::kKind));
    if (device_ == nullptr)
      fail_config(
          "transform minitron: this program offers no device; name one: device = {type = \"cpu\"} in "
          "[transform]");
  } else {
    const std::int64_t cores = std::max(1U, std::thread::hardware_concurrency());
    device_->open({0, static_cast<int>(threads > 0 ? threads : cores), "auto"});
  }
  data_.open(1);
  samples_ = std::min(samples, data_.info().train_samples);
  if (samples_ < 1)
    fail_config("transform minitron: the calibration data have no sample in their training split");
}

std::int64_t Calibration::samples_of(std::int64_t batch) const {
  return std::min(data_.batch(), samples_ - batch * data_.batch());
}

Pass::Pass(Calibration& calibration, const GraphSpec& graph, StoredModel& source,
           std::vector<std::string> keep)
    : calibration_(calibration) {
  require_vocabulary(source, calibration.data());
  ExecutorSpec spec;
  spec.layers = static_cast<LayerFactory*>(calibration.host_.query(LayerFactory::kId));
  if (spec.layers == nullptr)
    fail_config("transform minitron: this program offers no layers, on which importance is measured");
  spec.device = calibration.device_;
  spec.host = &calibration.host_;
  plain_ = std::make_unique<PlainPrecision>(type_of(source), type_of(source));
  spec.precision = calibration.precision_ != nullptr ? calibration.precision_ : plain_.get();
  spec.batch = calibration.data_.batch();
  spec.training = false;
  spec.keep = std::move(keep);
  executor_ = std::make_unique<Executor>(spec, graph, calibration.data());
  weights_ = make_parameter_set("calibration", executor_->parameters(), *calibration.device_,
                                SetContents::kEverything);
  load(source);
  for (const DataField& field : calibration.data().fields) {
    staging_.emplace_back(
        static_cast<std::size_t>(dtype_bytes(field.dtype, spec.batch * field.shape.elements())));
  }
}

void Pass::load(StoredModel& source) {
  std::vector<std::string> problems;
  for (const ParameterInfo& info : executor_->parameters())
    if (std::string found = problem(source, info); !found.empty()) problems.push_back(std::move(found));
  if (!problems.empty())
    fail_config(fmt::format("transform minitron: the weights in {} are not those of its graph:\n  {}",
                            source.folder(), fmt::join(problems, "\n  ")));
  std::vector<std::byte> bytes;
  for (const ParameterInfo& info : executor_->parameters()) {
    const TensorView target = weights_->tensor(info.index);
    bytes.resize(static_cast<std::size_t>(dtype_bytes(info.spec.dtype, info.spec.shape.elements())));
    const TensorView here{bytes.data(), info.spec.shape, info.spec.dtype, MemorySpace::kHost};
    read_as(source, *find(source, info.spec.name), here);
    calibration_.device_->copy(here, target);
    calibration_.device_->synchronize();
  }
  weights_->touch(-1);
}

TensorView Pass::on_host(const TensorView& view, std::vector<std::byte>& memory) const {
  if (view.space == MemorySpace::kHost) return view;
  memory.resize(view.bytes());
  const TensorView host{memory.data(), view.shape, view.dtype, MemorySpace::kHost};
  calibration_.device_->copy(view, host);
  calibration_.device_->synchronize();
  return host;
}

Pass::Loss Pass::forward(std::int64_t batch, Collector* see) {
  const std::vector<DataField>& fields = calibration_.data().fields;
  const std::int64_t size = calibration_.data_.batch();
  samples_ = calibration_.samples_of(batch);
  std::vector<TensorView> read;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    std::vector<std::int64_t> extents{size};
    for (const std::int64_t extent : fields[i].shape.extents()) extents.push_back(extent);
    read.push_back({staging_[i].data(), Shape(std::span<const std::int64_t>(extents)), fields[i].dtype,
                    MemorySpace::kHost});
  }
  calibration_.data_.read({Split::kTrain, batch * size, samples_}, read);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const TensorView input = executor_->inputs()[i];
    if (!input.empty()) calibration_.device_->copy(read[i], input);
  }
  if (see == nullptr) {
    executor_->probe_outputs({});
  } else {
    see->begin(samples_);
    executor_->probe_outputs(
        [&](std::string_view node, std::string_view, int output, const TensorView& value) {
          if (output == 0 && see->wants(node)) see->see(node, on_host(value, copy_));
        });
  }
  executor_->forward(*weights_, {.training = false});
  Loss loss;
  for (const LossValue& value : executor_->losses())
    if (value.metric == "loss") loss = {value.sum, value.count};
  return loss;
}

double Pass::loss() {
  Loss total;
  for (std::int64_t batch = 0; batch < calibration_.batches(); ++batch) {
    const Loss one = forward(batch, nullptr);
    total.sum += one.sum, total.count += one.count;
  }
  return total.mean();
}

std::vector<double> Pass::value(std::string_view name) {
  const TensorView whole = on_host(executor_->value(std::string(name)), copy_);
  std::vector<double> values;
  for_each_real(whole.rows(0, samples_), [&](double value) { values.push_back(value); });
  return values;
}

void Pass::silence(const LayerShape& layer, bool silent) {
  const std::string map = last_map(layer);
  for (const ParameterInfo& info : executor_->parameters()) {
    if (info.spec.name != map + ".weight" && info.spec.name != map + ".bias") continue;
    const TensorView target = weights_->tensor(info.index);
    const auto kept =
        std::ranges::find(silenced_, info.index, &std::pair<int, std::vector<std::byte>>::first);
    std::vector<std::byte> bytes(static_cast<std::size_t>(target.bytes()));
    const TensorView host{bytes.data(), target.shape, target.dtype, MemorySpace::kHost};
    if (silent && kept == silenced_.end()) {
      calibration_.device_->copy(target, host);
      calibration_.device_->synchronize();
      silenced_.emplace_back(info.index, bytes);
      std::ranges::fill(bytes, std::byte{0});
    } else if (!silent && kept != silenced_.end()) {
      bytes = kept->second;
      silenced_.erase(kept);
    } else {
      continue;
    }
    calibration_.device_->copy({bytes.data(), target.shape, target.dtype, MemorySpace::kHost}, target);
    calibration_.device_->synchronize();
    weights_->touch(info.index);
  }
}

GraphSpec plain_graph(StoredModel& source, const DataInfo& data) {
  const Value& model = source.description().model;
  const Value* objective = model.find("objective");
  const bool added = model.find("distil") != nullptr ||
                     (objective != nullptr && objective->is_text() && objective->text() != "tokens");
  auto* const language = added ? static_cast<LanguageModel*>(source.query(LanguageModel::kId)) : nullptr;
  if (language == nullptr) return source.graph(data);
  LanguageGraph graph = language->language_graph(data);
  NodeSpec& head = graph.graph.nodes.back();
  std::vector<NamedOption> options{{"vocabulary", integer_option(head, "features", 0)}};
  if (const std::string weight = text_option(head, "weight"); !weight.empty())
    options.push_back({"weight", weight});
  head = {head.name, "head_cross_entropy", {head.inputs[0], "targets"}, std::move(options)};
  return source.edited(std::move(graph.graph), data);
}

GraphSpec calibration_graph(StoredModel& source, const DataInfo& data, const DecoderShape& shape,
                            const std::string& logits) {
  GraphSpec graph = plain_graph(source, data);
  for (const LayerShape* layer : shape.present()) {
    if (layer->kind != LayerKind::kMamba) continue;
    const auto mamba = std::ranges::find(graph.nodes, layer->prefix() + "mamba", &NodeSpec::name);
    graph.nodes.insert(
        mamba + 1, linear_of(in_proj_node(*layer), mamba->inputs[0], layer->mamba_groups * layer->in_rows(),
                             layer->prefix() + "mamba.in_proj.weight", "linear"));
  }
  if (logits.empty()) return graph;
  const NodeSpec* head = find_node(graph, "lm_head");
  const std::string weight = text_option(*head, "weight");
  graph.nodes.push_back(linear_of(logits, head->inputs[0], integer_option(*head, "vocabulary", 0),
                                  weight.empty() ? "lm_head.weight" : weight, "head"));
  return graph;
}

void require_known_tokens(double loss, const DataInfo& data, std::string_view folder) {
  const double guess =
      std::log(static_cast<double>(std::max<std::int64_t>(1, vocabulary_of(data.attributes))));
  if (!(loss > guess + kWorseThanGuess)) return;
  fail_config(fmt::format(
      "transform minitron: the loss of {} on the calibration data is {:.4g}, and a uniform guess has "
      "{:.4g}: their tokens are not those that it was trained on; use its own tokenizer",
      folder, loss, guess));
}

namespace {

/// The cost of silent layers over all batches, beside those of the whole model.
class Costs {
 public:
  Costs(Pass& pass, const Calibration& calibration, std::string logits)
      : pass_(pass), calibration_(calibration), logits_(std::move(logits)) {
    if (logits_.empty()) whole_ = pass_.loss();
  }

  /// Cost of each set of layers together, with `gone` silent, too.
  std::vector<double> of(const std::vector<std::vector<const LayerShape*>>& sets,
                         const std::vector<const LayerShape*>& gone) {
    std::vector<double> sums(sets.size()), counts(sets.size());
    for (std::int64_t batch = 0; batch < calibration_.batches(); ++batch) {
      std::vector<double> expected;
      if (!logits_.empty()) {
        pass_.forward(batch, nullptr);
        expected = pass_.value(logits_);
      }
      set(gone, true);
      for (std::size_t i = 0; i < sets.size(); ++i) {
        set(sets[i], true);
        const Pass::Loss loss = pass_.forward(batch, nullptr);
        set(sets[i], false);
        if (logits_.empty()) {
          sums[i] += loss.sum, counts[i] += loss.count;
          continue;
        }
        const std::vector<double> found = pass_.value(logits_);
        for (std::size_t k = 0; k < found.size(); ++k)
          sums[i] += (found[k] - expected[k]) * (found[k] - expected[k]);
        counts[i] += static_cast<double>(found.size());
      }
      set(gone, false);
    }
    std::vector<double> costs;
    for (std::size_t i = 0; i < sets.size(); ++i) costs.push_back(sums[i] / counts[i] - whole_);
    return costs;
  }

 private:
  void set(const std::vector<const LayerShape*>& layers, bool silent) {
    for (const LayerShape* layer : layers) pass_.silence(*layer, silent);
  }

  Pass& pass_;
  const Calibration& calibration_;
  std::string logits_;
  double whole_ = 0;
};

void require_cost(double cost, const LayerShape& layer, const std::string& method) {
  if (std::isfinite(cost)) return;
  fail_run(fmt::format(
      "transform minitron: the importance of layer {} by {} is {}: without it the model is not finite on the "
      "calibration data; look for weights that are not finite in '{}*'",
      layer.number, method, cost, layer.prefix()));
}

}  // namespace

Importance::Depth measure_depth(Pass& pass, const Calibration& calibration, const DecoderShape& shape,
                                const std::string& method, std::int64_t count, bool iterative,
                                const std::string& logits) {
  Costs costs(pass, calibration, method == "logit_mse" ? logits : "");
  std::vector<const LayerShape*> left = shape.present(), gone;
  Importance::Depth depth;
  const std::int64_t run = method == "contiguous" ? count : 1;
  std::vector<std::vector<const LayerShape*>> sets;
  for (std::size_t first = 0; first + static_cast<std::size_t>(run) <= left.size(); ++first) {
    sets.emplace_back(left.begin() + static_cast<std::ptrdiff_t>(first),
                      left.begin() + static_cast<std::ptrdiff_t>(first) + run);
    depth.numbers.push_back(left[first]->number);
  }
  depth.run = method == "contiguous" ? count : 0;
  depth.scores = costs.of(sets, gone);
  for (std::size_t i = 0; i < sets.size(); ++i) require_cost(depth.scores[i], *sets[i][0], method);
  if (!iterative || method == "contiguous") return depth;
  std::vector<double> now = depth.scores;
  while (static_cast<std::int64_t>(gone.size()) < count) {
    const auto least = std::ranges::min_element(now) - now.begin();
    gone.push_back(sets[least][0]);
    depth.removed.push_back(gone.back()->number);
    sets.erase(sets.begin() + least);
    if (static_cast<std::int64_t>(gone.size()) < count) now = costs.of(sets, gone);
  }
  return depth;
}

}  // namespace tenon::minitron
