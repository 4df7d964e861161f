// Model `mlp`: a multilayer perceptron that classifies samples. It reads one real data field of any shape and
// one i32 class per sample, -1 = ignored.
#include <fmt/format.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

namespace tenon::mlp {

class Mlp final : public Model {
 public:
  enum class Activation : std::uint8_t { kRelu, kGeluTanh, kGeluExact };
  static constexpr auto kActivations = option::choice<Activation>({{"relu", Activation::kRelu},
                                                                   {"gelu_tanh", Activation::kGeluTanh},
                                                                   {"gelu_exact", Activation::kGeluExact}});
  static constexpr OptionSpec kOptions[] = {
      option::integers("hidden", "[128]")
          .between(1, 2147483647)
          .doc_text("widths of the hidden layers; [] makes a linear model"),
      option::text("activation", "\"relu\"").one_of(kActivations).doc_text("after each hidden layer"),
      option::integer("classes", nullptr)
          .between(2, 2147483647)
          .doc_text("number of classes, the columns of the result; absent: the data's 'classes'"),
      option::real("dropout", "0").between(0, 0.999).doc_text("probability after each hidden activation"),
      option::text("inputs", nullptr).doc_text("data field to read; absent: the only real one"),
      option::text("targets", nullptr)
          .doc_text("data field of classes; absent: the only i32 field with one number per sample"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "mlp", .summary = "multilayer perceptron for classification", .options = kOptions};

  explicit Mlp(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

namespace {

// Model `mlp`: writes the chain of layers and checks that the data is for classification.

bool is_input(const DataField& field) {
  return dtype_is_real(field.dtype);
}
bool is_target(const DataField& field) {
  return field.dtype == DType::kI32 && field.shape.elements() == 1;
}

/// The field that `option` names, or the only one that fits.
const DataField& find_field(const Options& options, const char* option, const DataInfo& data,
                            bool (*fits)(const DataField&), const char* wanted) {
  std::vector<std::string> known;
  const DataField* found = nullptr;
  int count = 0;
  for (const DataField& field : data.fields) {
    const bool meant = options.has(option) ? field.name == options.text(option) : fits(field);
    if (meant) {
      found = &field;
      ++count;
    }
    known.push_back(fmt::format("{} ({} {})", field.name, dtype_name(field.dtype), field.shape.text()));
  }
  if (count == 1 && fits(*found)) return *found;
  if (options.has(option)) {
    fail_config(fmt::format(
        "model mlp: option '{}' must name a data field that is {}, found '{}'; the data offers: {}", option,
        wanted, options.text(option), fmt::join(known, ", ")));
  }
  fail_config(
      fmt::format("model mlp needs one data field that is {}, found {}; the data offers: {}; name one with "
                  "the option '{}'",
                  wanted, count, fmt::join(known, ", "), option));
}

std::int64_t known_classes(const DataInfo& data) {
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == "classes") return attribute.value;
  }
  return 0;
}

NodeSpec activation(std::string name, std::string input, Mlp::Activation kind) {
  if (kind == Mlp::Activation::kRelu) return {std::move(name), "relu", {std::move(input)}, {}};
  return {std::move(name),
          "gelu",
          {std::move(input)},
          {{"approximate", std::string(kind == Mlp::Activation::kGeluTanh ? "tanh" : "none")}}};
}

}  // namespace

GraphSpec Mlp::build(const DataInfo& data) {
  const DataField& inputs = find_field(options_, "inputs", data, is_input, "real");
  const DataField& targets = find_field(options_, "targets", data, is_target, "one i32 per sample");
  const std::int64_t known = known_classes(data);
  const std::int64_t classes = options_.has("classes") ? options_.integer("classes") : known;
  if (classes < 2 || classes < known) {
    fail_config(fmt::format("model mlp: option 'classes' must cover the data's {} classes, found {}", known,
                            classes));
  }

  GraphSpec graph;
  std::string value = "flat";
  graph.nodes.push_back({value, "flatten", {inputs.name}, {}});
  std::size_t number = 0;
  for (const std::int64_t width : options_.integers("hidden")) {
    const std::string name = fmt::format("layers.{}", number++);
    graph.nodes.push_back({name, "linear", {value}, {{"features", width}}});
    value = name + ".act";
    graph.nodes.push_back(activation(value, name, options_.choice("activation", kActivations)));
    if (options_.real("dropout") == 0) continue;
    graph.nodes.push_back({name + ".drop", "dropout", {value}, {{"p", options_.real("dropout")}}});
    value = name + ".drop";
  }
  graph.nodes.push_back(
      {"head", "linear", {value}, {{"features", classes}, {"module", std::string("head")}}});
  graph.nodes.push_back({"loss", "softmax_cross_entropy", {"head", targets.name}, {}});
  return graph;
}

}  // namespace tenon::mlp

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.mlp", .version = "0.1.0", .summary = "multilayer perceptron"},
             tenon::mlp::Mlp)
