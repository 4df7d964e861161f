// Model `rotary_lm`: a language model with rotary positions and gated units, in blocks of
//   x + out(attention(rotary(q), rotary(k), v)),  x + down(swish_gate(gate, up))
// each after a layer norm. Layers `rotary_pairs` and `swish_gate` come from two other plugins of this author.
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <utility>
#include <vector>

namespace {

constexpr const char* kNeeds[] = {"author.rotary >= 0.1", "author.gates >= 0.2", nullptr};

class RotaryLm final : public tenon::Model {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {
      tenon::option::integer("layers", "2").between(1, 1000).doc_text("blocks"),
      tenon::option::integer("width", "32").between(2, 65536).doc_text("of the residual stream"),
      tenon::option::integer("heads", "2")
          .between(1, 1024)
          .doc_text("of attention; 2 x heads divide the width"),
      tenon::option::integer("hidden", "64").between(1, 1 << 20).doc_text("width of the gated units"),
      tenon::option::boolean("positions", "true")
          .doc_text("rotate queries and keys; false: no positions at all"),
  };
  static constexpr tenon::ComponentInfo kInfo{
      .id = "rotary_lm",
      .summary = "language model with rotary positions and gated units",
      .options = kOptions};

  explicit RotaryLm(const tenon::Options& options)
      : layers_(options.integer("layers")),
        width_(options.integer("width")),
        heads_(options.integer("heads")),
        hidden_(options.integer("hidden")),
        positions_(options.boolean("positions")) {
    if (width_ % (2 * heads_) != 0) {
      tenon::fail_config("model rotary_lm: width " + std::to_string(width_) + " is not a multiple of 2 x " +
                         std::to_string(heads_) + " heads");
    }
  }

  tenon::GraphSpec build(const tenon::DataInfo& data) override {
    require_tokens(data, "tokens");
    require_tokens(data, "targets");
    const std::int64_t vocabulary = vocabulary_of(data);
    tenon::GraphSpec graph;
    const auto add = [&](std::string name, std::string type, std::vector<std::string> inputs,
                         std::vector<tenon::NamedOption> options = {}) {
      graph.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
      return name;
    };
    const auto linear = [&](const std::string& name, const std::string& input, std::int64_t features) {
      return add(name, "linear", {input}, {{"features", features}, {"bias", false}});
    };
    const auto turned = [&](const std::string& value) {
      return positions_ ? add(value + ".rotary", "rotary_pairs", {value}, {{"heads", heads_}}) : value;
    };
    std::string x = add("embed", "embedding", {"tokens"}, {{"rows", vocabulary}, {"width", width_}});
    for (std::int64_t layer = 0; layer < layers_; ++layer) {
      const std::string block = "blocks." + std::to_string(layer) + ".";
      const std::string n1 = add(block + "norm_1", "layer_norm", {x});
      const std::string q = turned(linear(block + "q", n1, width_)),
                        k = turned(linear(block + "k", n1, width_));
      const std::string v = linear(block + "v", n1, width_);
      const std::string mixed = add(block + "attention", "attention", {q, k, v}, {{"heads", heads_}});
      x = add(block + "add_1", "residual", {x, linear(block + "out", mixed, width_)});
      const std::string n2 = add(block + "norm_2", "layer_norm", {x});
      const std::string gate = linear(block + "gate", n2, hidden_), up = linear(block + "up", n2, hidden_);
      const std::string gated = add(block + "gated", "swish_gate", {gate, up});
      x = add(block + "add_2", "residual", {x, linear(block + "down", gated, width_)});
    }
    add("loss", "head_cross_entropy", {add("norm", "layer_norm", {x}), "targets"},
        {{"vocabulary", vocabulary}});
    return graph;
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void require_tokens(const tenon::DataInfo& data, std::string_view name) {
    std::string known;
    for (const tenon::DataField& field : data.fields) {
      if (field.name == name && field.dtype == tenon::DType::kI32 && field.shape.rank() == 1) return;
      known += (known.empty() ? "" : ", ") + field.name + " " + std::string(tenon::dtype_name(field.dtype)) +
               " " + field.shape.text();
    }
    tenon::fail_config("model rotary_lm needs a data field '" + std::string(name) +
                       "', i32 [time]; the data offers: " + known);
  }

  static std::int64_t vocabulary_of(const tenon::DataInfo& data) {
    for (const tenon::DataAttribute& attribute : data.attributes) {
      if (attribute.name == "vocabulary") return attribute.value;
    }
    tenon::fail_config("model rotary_lm needs data that states its 'vocabulary'; this data does not");
  }

  std::int64_t layers_, width_, heads_, hidden_;
  bool positions_;
};

}  // namespace

TENON_PLUGIN(tenon::PluginInfo{.id = "author.rotary_lm",
                               .version = "0.1.0",
                               .summary = "language model with rotary positions",
                               .vendor = "author",
                               .needs = kNeeds},
             RotaryLm)
