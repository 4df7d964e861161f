// Models of click-through data: `dlrm` and its baseline `logistic_regression`, with the checks of the data
// and the tables that both have.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <tenon/error.hpp>
#include <tenon/model.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/interaction.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::dlrm {

// Requirements of this plugin's models for click-through data, the set-up of their tables, and the nodes that
// end each of them.

inline constexpr const char* kModes[] = {"sum", "mean", nullptr};
inline constexpr const char* kPlacements[] = {"replicated", "rows", "tables", nullptr};

inline constexpr OptionSpec kRows = option::integers("rows", nullptr)
                                        .between(1, 2147483647)
                                        .doc_text("rows of each table; absent: the data's 'rows.<i>'");
inline constexpr OptionSpec kRowCap =
    option::integer("row_cap", nullptr)
        .between(1, 2147483647)
        .doc_text("no table has more rows than this; the data must keep its ids below it");
inline constexpr OptionSpec kMode =
    option::text("mode", "\"sum\"").one_of(kModes).doc_text("how the rows of a bag are pooled");
inline constexpr OptionSpec kPlacement =
    option::text("placement", "\"replicated\"")
        .one_of(kPlacements)
        .doc_text("each replica has all tables, a range of rows of each, or some whole tables");

/// The fields `dense`, `ids` and `labels`, checked, and the rows of the tables.
struct ClickData {
  std::int64_t dense = 0;          ///< columns
  std::vector<std::int64_t> rows;  ///< one per table
  bool planted = false;            ///< the data knows the true logits

  std::int64_t tables() const { return static_cast<std::int64_t>(rows.size()); }
};

/// Throws Error(kConfig) where `data` or the options `rows` and `row_cap` do not fit; `model` is named there.
ClickData click_data(const Options& options, const DataInfo& data, std::string_view model);

/// The node `emb`, tables of `width`.
NodeSpec tables_node(const Options& options, const ClickData& data, std::int64_t width);
/// The loss and the metrics of the value `logit`, and those of the true logits where the data has them.
void finish(GraphSpec& graph, const std::string& logit, const ClickData& data);

namespace {

// Checks of the data, with messages that state what is there and what to change.

const DataField* find(const DataInfo& data, std::string_view name) {
  for (const DataField& field : data.fields) {
    if (field.name == name) return &field;
  }
  return nullptr;
}

/// The field of a name, which `fits` must accept; `wanted` describes the requirement.
const DataField& expect(const DataInfo& data, std::string_view model, const char* name, const char* wanted,
                        bool (*fits)(const DataField&)) {
  const DataField* field = find(data, name);
  if (field == nullptr) {
    std::vector<std::string> known;
    for (const DataField& other : data.fields) known.push_back(other.name);
    fail_config(
        fmt::format("model {} needs a data field '{}', {}; the data offers: {}; choose a [data] type of "
                    "click-through samples, such as synthetic_ctr",
                    model, name, wanted, fmt::join(known, ", ")));
  }
  if (!fits(*field)) {
    fail_config(fmt::format("model {}: data field '{}' must be {}, found {} {}", model, name, wanted,
                            dtype_name(field->dtype), field->shape.text()));
  }
  return *field;
}

/// Rows of table `index` according to the data, 0 if it does not say.
std::int64_t known_rows(const DataInfo& data, std::int64_t index) {
  const std::string name = fmt::format("rows.{}", index);
  for (const DataAttribute& attribute : data.attributes) {
    if (attribute.name == name) return attribute.value;
  }
  return 0;
}

}  // namespace

ClickData click_data(const Options& options, const DataInfo& data, std::string_view model) {
  const DataField& dense = expect(data, model, "dense", "real numbers [columns]", [](const DataField& f) {
    return dtype_is_real(f.dtype) && f.shape.rank() == 1;
  });
  const DataField& ids =
      expect(data, model, "ids", "i32 row numbers [tables] or [tables, places]", [](const DataField& f) {
        return f.dtype == DType::kI32 && (f.shape.rank() == 1 || f.shape.rank() == 2) &&
               f.shape.elements() > 0;
      });
  expect(data, model, "labels", "one i32 per sample: 0, 1, or -1 for one that does not count",
         [](const DataField& f) { return f.dtype == DType::kI32 && f.shape.elements() == 1; });

  ClickData result;
  result.dense = dense.shape[0];
  const DataField* planted = find(data, "planted");
  result.planted = planted != nullptr && dtype_is_real(planted->dtype) && planted->shape.elements() == 1;
  const std::int64_t tables = ids.shape[0];
  if (options.has("rows")) {
    const auto rows = options.integers("rows");
    result.rows.assign(rows.begin(), rows.end());
    if (result.tables() != tables) {
      fail_config(fmt::format("model {}: option 'rows' lists {} tables, the data field 'ids' has {}", model,
                              result.tables(), tables));
    }
  }
  for (std::int64_t i = 0; i < tables; ++i) {
    const std::int64_t known = known_rows(data, i);
    if (!options.has("rows")) {
      if (known < 1) {
        fail_config(
            fmt::format("model {}: how many rows table {} of {} has is unknown, the data says no 'rows.{}'; "
                        "give the option 'rows'",
                        model, i, tables, i));
      }
      result.rows.push_back(known);
    }
    std::int64_t& rows = result.rows[i];
    if (options.has("row_cap")) rows = std::min(rows, options.integer("row_cap"));
    if (rows < known) {
      fail_config(
          fmt::format("model {}: table {} has {} rows, but the data has ids up to {}; cap the ids in [data], "
                      "or raise 'rows' or 'row_cap' of [model]",
                      model, i, rows, known - 1));
    }
  }
  return result;
}

NodeSpec tables_node(const Options& options, const ClickData& data, std::int64_t width) {
  return {"emb",
          "embedding_bag",
          {"ids"},
          {{"rows", data.rows},
           {"width", width},
           {"mode", std::string(options.text("mode"))},
           {"placement", std::string(options.text("placement"))}}};
}

void finish(GraphSpec& graph, const std::string& logit, const ClickData& data) {
  graph.nodes.push_back({"loss", "bce_with_logits", {logit, "labels"}, {}});
  graph.nodes.push_back({"metrics", "ctr_metrics", {logit, "labels"}, {}});
  if (!data.planted) return;
  graph.nodes.push_back(
      {"ceiling", "ctr_metrics", {"planted", "labels"}, {{"prefix", std::string("planted")}}});
}

/// Model `dlrm`: the deep learning recommendation model of Naumov et al. 2019 (arXiv 1906.00091). A bottom
/// perceptron maps the dense numbers to the width of the tables, products of all pairs of vectors go into a
/// top perceptron, which ends in one logit.
class Dlrm final : public Model {
 public:
  static constexpr const char* kInteractions[] = {"dot", "cat", nullptr};
  static constexpr OptionSpec kOptions[] = {
      option::integers("bottom", "[64, 16]")
          .between(1, 2147483647)
          .doc_text("widths of the bottom layers; the last is the width of the tables"),
      option::integers("top", "[64, 1]")
          .between(1, 2147483647)
          .doc_text("widths of the top layers; the last is 1"),
      kRows,
      kRowCap,
      kMode,
      kPlacement,
      option::text("interaction", "\"dot\"")
          .one_of(kInteractions)
          .doc_text("input of the top layers: dot products of all pairs, or the concatenated vectors"),
      option::boolean("itself", "false").doc_text("dot: also the product of each vector with itself"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "dlrm",
      .summary = "deep learning recommendation model of MLPs and embedding tables",
      .options = kOptions};

  explicit Dlrm(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

namespace {

// Model `dlrm`: its chain of nodes, and initial values as the authors draw them.

/// Linear layers `part`.0, `part`.1, ..., each followed by a ReLU; the last one only where `last_relu`.
/// Weights have the variance 2 / (inputs + outputs), biases 1 / outputs. Returns the name of the result.
std::string perceptron(GraphSpec& graph, const char* part, std::string value, std::int64_t columns,
                       std::span<const std::int64_t> widths, bool last_relu) {
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const auto in = static_cast<double>(columns), out = static_cast<double>(widths[i]);
    const std::string name = fmt::format("{}.{}", part, i);
    graph.nodes.push_back({name,
                           "linear",
                           {value},
                           {{"features", widths[i]},
                            {"init_scale", std::sqrt(2 / (in + out))},
                            {"bias_init_scale", std::sqrt(1 / out)}}});
    value = name;
    columns = widths[i];
    if (i + 1 == widths.size() && !last_relu) break;
    value = name + ".act";
    graph.nodes.push_back({value, "relu", {name}, {}});
  }
  return value;
}

}  // namespace

GraphSpec Dlrm::build(const DataInfo& data) {
  const auto bottom = options_.integers("bottom"), top = options_.integers("top");
  if (bottom.empty())
    fail_config("model dlrm: option 'bottom' needs at least one width, the last being that of the tables");
  if (top.empty() || top.back() != 1)
    fail_config(
        fmt::format("model dlrm: option 'top' must end in 1, the logit, found [{}]", fmt::join(top, ", ")));
  const ClickData clicks = click_data(options_, data, "dlrm");
  const std::int64_t width = bottom.back();
  const bool dot = options_.text("interaction") == "dot", itself = options_.boolean("itself");
  if (itself && !dot)
    fail_config("model dlrm: option 'itself' belongs to interaction = \"dot\", found interaction = \"cat\"");

  GraphSpec graph;
  const std::string z0 = perceptron(graph, "bottom", "dense", clicks.dense, bottom, true);
  graph.nodes.push_back(tables_node(options_, clicks, width));
  NodeSpec join{"interaction", dot ? "dot_interaction" : "cat_interaction", {z0, "emb"}, {}};
  if (itself) join.options.push_back({"itself", true});
  graph.nodes.push_back(std::move(join));
  const Interaction kind = !dot     ? Interaction::kConcatenate
                           : itself ? Interaction::kDotItself
                                    : Interaction::kDot;
  const std::int64_t columns = interaction_columns(kind, width, clicks.tables(), width);
  finish(graph, perceptron(graph, "top", "interaction", columns, top, false), clicks);
  return graph;
}

/// Model `logistic_regression`: logit = w . dense + b + one weight per row that a sample has; the baseline
/// that a model with tables must beat.
class LogisticRegression final : public Model {
 public:
  static constexpr OptionSpec kOptions[] = {kRows, kRowCap, kMode, kPlacement};
  static constexpr ComponentInfo kInfo{
      .id = "logistic_regression", .summary = "linear model of click-through data", .options = kOptions};

  explicit LogisticRegression(const Options& options) : options_(options) {}
  GraphSpec build(const DataInfo& data) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the model
};

// Model `logistic_regression`: all weights begin at zero, where the loss, which is convex, is easy to leave.

GraphSpec LogisticRegression::build(const DataInfo& data) {
  const ClickData clicks = click_data(options_, data, "logistic_regression");
  GraphSpec graph;
  graph.nodes.push_back(
      {"dense_logit", "linear", {"dense"}, {{"features", std::int64_t{1}}, {"init_scale", 0.0}}});
  graph.nodes.push_back(tables_node(options_, clicks, 1));
  graph.nodes.back().options.push_back({"init_scale", 0.0});
  graph.nodes.push_back({"logit", "sum_interaction", {"dense_logit", "emb"}, {}});
  finish(graph, "logit", clicks);
  return graph;
}

}  // namespace tenon::dlrm

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.dlrm",
                               .version = "0.1.0",
                               .summary = "models of click-through data"},
             tenon::dlrm::Dlrm, tenon::dlrm::LogisticRegression)
