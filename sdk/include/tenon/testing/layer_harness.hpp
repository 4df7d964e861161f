// For tests of layers: a small graph through the real executor, with random pull-backs of its outputs, and
// the comparison of every gradient with finite differences. It serves unit tests of layers and the
// conformance kit.
#pragma once

#include <tenon/executor.hpp>
#include <tenon/testing/poisoned_device.hpp>
#include <tenon/testing/tensors.hpp>

#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// A data field; the first extent of `shape` is the batch.
struct TestField {
  std::string name;
  Shape shape;
  DType dtype = DType::kF64;  ///< real fields take the activations' dtype
  std::vector<double> values;
};

/// The loss sum(y * d_y) over pairs of inputs (y, d_y): its gradient pulls d_y back through the graph.
class Pullback final : public Layer, public LossLayer {
 public:
  void infer(InferContext& context) override {
    device_ = &context.device();
    pairs_ = context.inputs() / 2;
    for (int i = 0; i < context.inputs(); ++i) context.keep_input(i);
    context.output({{2}, DType::kF64});
  }
  void forward(ForwardContext& context) override {
    double sum = 0;
    for (int pair = 0; pair < pairs_; ++pair) {
      const auto y = read(*device_, context.input(2 * pair)),
                 d_y = read(*device_, context.input(2 * pair + 1));
      for (std::size_t i = 0; i < y.size(); ++i) sum += y[i] * d_y[i];
    }
    write(*device_, context.output(0), std::vector<double>{sum, 1});
  }
  void backward(BackwardContext& context) override {
    for (int i = 0; i < 2 * pairs_; ++i) {
      const GradientSink sink = context.input_gradient(i);
      if (sink.view.empty()) continue;
      std::vector<double> gradient = read(*device_, context.input(i ^ 1));
      std::vector<double> before(gradient.size(), 0.0);
      if (sink.accumulate) before = read(*device_, sink.view);
      for (std::size_t j = 0; j < gradient.size(); ++j) gradient[j] = before[j] + seed_ * gradient[j];
      write(*device_, sink.view, gradient);
    }
  }
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return "loss"; }

 private:
  Device* device_ = nullptr;
  int pairs_ = 0;
  double seed_ = 1;
};

struct HarnessSpec {
  LayerFactory* layers = nullptr;
  Device* device = nullptr;
  Host* host = nullptr;
  Precision* precision = nullptr;
  bool training = true;
  bool keep_values = true;  ///< false: memory is reused as in a run, and value() returns losses only
  bool poison = false;      ///< planned memory holds NaN until it is written
  std::uint64_t seed = 1;
  Mesh* mesh = nullptr;        ///< then every rank has a harness, and all make the same calls
  std::int64_t positions = 0;  ///< as ExecutorSpec has them; then nothing is pulled, and the test calls step
};

class LayerHarness {
 public:
  /// Runs `nodes`. For each value named in `pulled` a field "d_<value>" of normal numbers is made, unless it
  /// is given, and the loss is the sum of their products; with `pulled` empty the graph must end in a loss of
  /// its own.
  LayerHarness(const HarnessSpec& spec, NodeList nodes, const std::vector<std::string>& pulled,
               std::vector<TestField> fields)
      : spec_(complete(spec)), fields_(std::move(fields)), factory_(spec.layers), poisoned_(*spec.device) {
    if (!pulled.empty()) add_pullback(nodes, pulled);
    DataInfo data;
    for (const TestField& field : fields_) {
      data.fields.push_back({field.name, field.dtype, Shape(field.shape.extents().subspan(1))});
    }
    executor_ =
        std::make_unique<Executor>(executor_spec(fields_.at(0).shape[0]), GraphSpec{std::move(nodes)}, data);
    weights_ = make_parameter_set("live", executor_->parameters(), *spec.device, SetContents::kEverything);
    gradients_ =
        make_parameter_set("gradients", executor_->parameters(), *spec.device, SetContents::kGradients);
    initialise(*weights_, 1, *spec.device);
    for (const TestField& field : fields_) set_field(field.name, field.values);
  }

  LayerHarness(const LayerHarness&) = delete;  // the executor points into it
  LayerHarness& operator=(const LayerHarness&) = delete;

  Executor& executor() { return *executor_; }
  ParameterSet& weights() { return *weights_; }
  ParameterSet& gradients() { return *gradients_; }
  const std::vector<TestField>& fields() const { return fields_; }

  void set_field(std::string_view name, std::vector<double> values) {
    write(*spec_.device, executor_->inputs()[field_index(name)], values);
    fields_[field_index(name)].values = std::move(values);
  }
  std::vector<double> field(std::string_view name) const { return fields_[field_index(name)].values; }
  /// Parameters and their gradients may be row tables, which are passed whole here.
  void set_parameter(std::string_view name, const std::vector<double>& values) {
    const int index = parameter_index(name);
    if (RowTable* table = weights_->table(index)) {
      std::vector<std::byte> bytes;
      const TensorView rows = whole(*table, bytes);
      write(*spec_.device, rows, values);
      table->write(all_rows(*table), rows);
    } else {
      write(*spec_.device, weights_->tensor(index), values);
    }
    weights_->touch(index);
  }
  std::vector<double> parameter(std::string_view name) {
    const int index = parameter_index(name);
    if (RowTable* table = weights_->table(index)) {
      std::vector<std::byte> bytes;
      const TensorView rows = whole(*table, bytes);
      table->read(all_rows(*table), rows);
      return read(*spec_.device, rows);
    }
    return read(*spec_.device, weights_->tensor(index));
  }

  double forward() { return forward({}); }
  /// Returns the sum of losses.
  double forward(const RunSpec& run) {
    executor_->forward(*weights_, run);
    for (const LossValue& loss : executor_->losses()) {
      if (loss.metric == "loss") return loss.sum;
    }
    return 0;
  }
  void backward(double seed, bool first) { executor_->backward(*weights_, *gradients_, seed, first, {}); }
  std::vector<double> value(std::string_view name) { return read(*spec_.device, executor_->value(name)); }
  std::vector<double> input_gradient(std::string_view field) {
    return read(*spec_.device, executor_->input_gradient(field));
  }
  std::vector<double> gradient(std::string_view parameter) {
    const int index = parameter_index(parameter);
    const RowTable* table = weights_->table(index);
    if (table == nullptr) return read(*spec_.device, gradients_->tensor(index));
    std::vector<double> dense(table->rows() * table->width(), 0.0);
    for (const RowGradient& rows : executor_->row_gradients()) {
      if (rows.parameter != index) continue;
      const std::vector<double> values = read(*spec_.device, rows.values);
      for (std::size_t i = 0; i < rows.ids.size(); ++i) {
        const auto from = values.begin() + static_cast<std::ptrdiff_t>(i) * table->width();
        std::copy_n(from, table->width(), dense.begin() + rows.ids[i] * table->width());
      }
    }
    return dense;
  }
  /// Every gradient by name: parameters, and real fields except pull-backs.
  std::map<std::string, std::vector<double>> all_gradients() {
    std::map<std::string, std::vector<double>> result;
    for (const ParameterInfo& info : executor_->parameters()) {
      if (info.spec.role == Role::kRowTable || !gradients_->tensor(info.index).empty())
        result[info.spec.name] = gradient(info.spec.name);
    }
    for (const TestField& field : fields_) {
      if (differentiable(field)) result[field.name] = input_gradient(field.name);
    }
    return result;
  }

  /// Largest error of any gradient against a five-point central difference of the loss, relative to the
  /// largest element of its tensor. For f64 graphs. `where` names the worst tensor.
  double finite_difference_error(std::string& where) {
    forward();
    backward(1.0, true);
    const auto analytic = all_gradients();
    double worst = 0;
    for (const auto& entry : analytic) {  // clang 14 lets no lambda capture a structured binding
      const auto& name = entry.first;
      const bool is_field = has_field(name);
      const std::vector<double> start = is_field ? field(name) : parameter(name);
      std::vector<double> moved = start, numeric(start.size());
      const auto loss_at = [&](std::size_t i, double shift) {
        moved[i] = start[i] + shift;
        is_field ? set_field(name, moved) : set_parameter(name, moved);
        moved[i] = start[i];
        return forward();
      };
      for (std::size_t i = 0; i < start.size(); ++i) {
        constexpr double h = 1e-3;
        numeric[i] =
            (8 * (loss_at(i, h) - loss_at(i, -h)) - (loss_at(i, 2 * h) - loss_at(i, -2 * h))) / (12 * h);
      }
      is_field ? set_field(name, start) : set_parameter(name, start);
      const double error = relative_error(entry.second, numeric);
      if (error >= worst) worst = error, where = name;
    }
    return worst;
  }

 private:
  static const HarnessSpec& complete(const HarnessSpec& spec) {
    const std::pair<const void*, const char*> parts[] = {
        {spec.layers, "layers"}, {spec.device, "device"}, {spec.host, "host"}, {spec.precision, "precision"}};
    for (const auto& [part, name] : parts)
      if (part == nullptr) fail_plugin(std::string("LayerHarness: HarnessSpec::") + name + " is not set");
    return spec;
  }

  /// The given factory, plus the pull-back as a layer type.
  class Factory final : public LayerFactory {
   public:
    explicit Factory(LayerFactory* inner) : inner_(inner) {}
    std::unique_ptr<LayerOwner> create(const NodeSpec& node) override {
      if (node.type == "pullback") return std::make_unique<Owner>();
      return inner_->create(node);
    }

   private:
    struct Owner final : LayerOwner {
      Layer& layer() override { return pullback; }
      Pullback pullback;
    };
    LayerFactory* inner_;
  };

  static bool differentiable(const TestField& field) {
    return dtype_is_real(field.dtype) && !field.name.starts_with("d_");
  }

  ExecutorSpec executor_spec(std::int64_t batch) {
    ExecutorSpec result;
    result.layers = &factory_;
    result.device = spec_.poison ? &poisoned_ : spec_.device;
    result.host = spec_.host;
    result.precision = spec_.precision;
    result.seed = spec_.seed;
    result.batch = batch;
    result.training = spec_.training;
    result.input_gradients = spec_.training;
    result.keep_values = spec_.keep_values;
    result.mesh = spec_.mesh;
    result.positions = spec_.positions;
    return result;
  }

  /// The shapes of pulled values are known only to the executor, so a graph without the pull-back is built
  /// first.
  void add_pullback(NodeList& nodes, const std::vector<std::string>& pulled) {
    DataInfo data;
    for (const TestField& field : fields_) {
      data.fields.push_back({field.name, field.dtype, Shape(field.shape.extents().subspan(1))});
    }
    ExecutorSpec spec = executor_spec(fields_.at(0).shape[0]);
    spec.training = spec.input_gradients = false;
    Executor shapes(spec, GraphSpec{nodes}, data);
    NodeSpec loss{"pullback", "pullback", {}, {}};
    for (const std::string& value : pulled) {
      const Shape shape = shapes.value(value).shape;
      if (!has_field("d_" + value)) {
        fields_.push_back({"d_" + value, shape, DType::kF64, normals(shape.elements(), "d_" + value)});
      }
      loss.inputs.push_back(value);
      loss.inputs.push_back("d_" + value);
    }
    nodes.push_back(loss);
  }

  static std::vector<std::int64_t> all_rows(const RowTable& table) {
    std::vector<std::int64_t> rows(table.rows());
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    return rows;
  }
  /// Room for all rows of a table, in `bytes`.
  static TensorView whole(const RowTable& table, std::vector<std::byte>& bytes) {
    TensorView view{nullptr, {table.rows(), table.width()}, table.dtype(), MemorySpace::kHost};
    bytes.resize(view.bytes());
    view.data = bytes.data();
    return view;
  }

  bool has_field(std::string_view name) const {
    return std::any_of(fields_.begin(), fields_.end(),
                       [&](const TestField& field) { return field.name == name; });
  }
  std::size_t field_index(std::string_view name) const {
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].name == name) return i;
    }
    fail_run("no test field named '" + std::string(name) + "'");
  }
  int parameter_index(std::string_view name) const {
    for (const ParameterInfo& info : executor_->parameters()) {
      if (info.spec.name == name) return info.index;
    }
    fail_run("no parameter named '" + std::string(name) + "'");
  }

  HarnessSpec spec_;
  std::vector<TestField> fields_;
  Factory factory_;
  PoisonedDevice poisoned_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterSet> weights_, gradients_;
};

}  // namespace tenon::testing
