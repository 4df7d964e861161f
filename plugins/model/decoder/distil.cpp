// Nodes of [model.distil]: `frozen` gives the teacher's state before its head, the head's weight and states
// of layers; `distillation` compares distributions and gives the cross-entropy of the targets as well;
// `hidden_match` compares states; `add_losses` joins them.
#include "distil.hpp"

#include <tenon/error.hpp>
#include <tenon/sdk/json.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/stored_model.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

namespace tenon::decoder {
namespace {

constexpr std::size_t kDefaultPairs = 4;

using Layers = std::vector<std::pair<std::int64_t, std::string>>;

[[noreturn]] void refuse(const std::string& what) {
  fail_config("model decoder: [model.distil] " + what);
}

std::string state_of(std::int64_t layer) {
  return fmt::format("model.layers.{}.residual", layer);
}

const NodeSpec* node_named(const GraphSpec& graph, std::string_view name) {
  for (const NodeSpec& node : graph.nodes)
    if (node.name == name) return &node;
  return nullptr;
}

/// The digest of the tokenizer that a stored run names in its manifest; "" where it names none.
std::string tokenizer_of(std::string_view folder) {
  const std::string path = fmt::format("{}/manifest.json", folder);
  std::ifstream in(path, std::ios::binary);
  if (!in) return "";
  const Value manifest = parse_json(std::string(std::istreambuf_iterator<char>(in), {}), path);
  const Value* const data = manifest.find("data");
  if (data == nullptr || !data->is_array()) return "";
  for (const Value& source : data->array()) {
    const Value *const name = source.find("path"), *const digest = source.find("sha256");
    const bool texts = name != nullptr && name->is_text() && digest != nullptr && digest->is_text();
    if (texts && name->text() == "tokenizer") return digest->text();
  }
  return "";
}

/// A stored teacher as the student's graph sees it.
class Teacher {
 public:
  Teacher(const Options& options, const DataInfo& data, Host& host) {
    auto* const models = static_cast<StoredModels*>(host.query(StoredModels::kId));
    if (models == nullptr)
      refuse(fmt::format("needs stored models, which this program does not offer ({})", StoredModels::kId));
    std::optional<std::int64_t> step;
    if (options.has("step")) step = options.integer("step");
    model_ = models->open(std::string(options.text("teacher")), step);
    require_vocabulary(data);
    require_tokenizer(data);
    find_head(data);
    graph_ = model_->graph(data);
    find_layers();
  }

  std::string_view folder() const { return model_->folder(); }
  const std::string& last() const { return last_; }
  const std::string& head() const { return head_; }
  const Layers& layers() const { return layers_; }
  const Shape& head_shape() const {
    for (const StoredTensor& stored : model_->parameters())
      if (stored.name == head_) return stored.shape;
    refuse(fmt::format("the teacher in {} has no parameter '{}', its head's", folder(), head_));
  }

  /// The data fields that the values depend on.
  std::vector<std::string> fields(const std::vector<std::string>& values, const DataInfo& data) const {
    std::set<std::string> needed;
    const auto node_of = [](const std::string& value) { return value.substr(0, value.find(':')); };
    for (const std::string& value : values) needed.insert(node_of(value));
    for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
      if (!needed.contains(node->name)) continue;
      for (const std::string& input : node->inputs) needed.insert(node_of(input));
    }
    std::vector<std::string> fields;
    for (const DataField& field : data.fields)
      if (needed.contains(field.name)) fields.push_back(field.name);
    return fields;
  }

 private:
  void require_vocabulary(const DataInfo& data) const {
    for (const DataAttribute& made_for : model_->description().attributes)
      for (const DataAttribute& has : data.attributes)
        if (made_for.name == "vocabulary" && has.name == made_for.name && has.value != made_for.value) {
          refuse(fmt::format(
              "the teacher in {} is for a vocabulary of {} tokens, and the data have {}; choose a "
              "teacher of the data's tokenizer",
              folder(), made_for.value, has.value));
        }
  }

  /// Both may be of bytes, or be recorded nowhere: then the vocabulary is all that can be compared.
  void require_tokenizer(const DataInfo& data) const {
    const std::string made_for = tokenizer_of(folder());
    for (const DataSource& source : data.sources) {
      if (source.path != "tokenizer" || made_for.empty() || source.sha256 == made_for) continue;
      refuse(
          fmt::format("the teacher in {} was trained with the tokenizer {}, and the data have {}; choose a "
                      "teacher of the data's tokenizer",
                      folder(), made_for.substr(0, 16), source.sha256.substr(0, 16)));
    }
  }

  /// The head's weight and what it reads, by the graph that generates text.
  void find_head(const DataInfo& data) {
    auto* const language = static_cast<LanguageModel*>(model_->query(LanguageModel::kId));
    if (language == nullptr) refuse(fmt::format("the teacher in {} is no language model", folder()));
    const LanguageGraph graph = language->language_graph(data);
    const NodeSpec* const head = node_named(graph.graph, graph.logits);
    if (head == nullptr || head->type != "linear" || head->inputs.empty())
      refuse(fmt::format("the teacher in {} does not end in a linear head, but in '{}'", folder(),
                         head == nullptr ? graph.logits : head->type));
    last_ = head->inputs[0];
    head_ = head->name + ".weight";
    bool bias = true;
    for (const NamedOption& option : head->options) {
      if (option.name == "weight") head_ = std::get<std::string>(option.value);
      if (option.name == "bias") bias = std::get<bool>(option.value);
    }
    if (bias) refuse(fmt::format("the teacher in {} has a head with a bias; expected one without", folder()));
  }

  void find_layers() {
    for (const NodeSpec& node : graph_.nodes) {
      for (const auto& [part, kind] : {std::pair(".self_attn", "attention"),
                                       std::pair(".mlp.down_proj", "ffn"), std::pair(".mamba", "mamba")}) {
        if (!node.name.starts_with("model.layers.") || !node.name.ends_with(part)) continue;
        std::int64_t number = 0;
        const char* const begin = node.name.data() + std::string_view("model.layers.").size();
        const auto [end, problem] = std::from_chars(begin, node.name.data() + node.name.size(), number);
        if (problem == std::errc() && std::string_view(end).starts_with(part))
          layers_.emplace_back(number, kind);
      }
    }
  }

  std::unique_ptr<StoredModel> model_;
  GraphSpec graph_;
  std::string last_, head_;
  Layers layers_;
};

const std::string* kind_of(const Layers& layers, std::int64_t number) {
  for (const auto& [layer, kind] : layers)
    if (layer == number) return &kind;
  return nullptr;
}

/// Numbers of the layers of a kind, in their order.
std::vector<std::int64_t> of_kind(const Layers& layers, const std::string& kind) {
  std::vector<std::int64_t> numbers;
  for (const auto& [layer, other] : layers)
    if (other == kind) numbers.push_back(layer);
  return numbers;
}

using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

/// Position ceil(of * (i + 1) / n) - 1: the last of n goes to the last, and others evenly before it.
std::size_t spread(std::size_t i, std::size_t n, std::size_t of) {
  return ((i + 1) * of + n - 1) / n - 1;
}

Pairs default_pairs(const Layers& student, const Teacher& teacher) {
  Pairs pairs;
  const std::size_t count = std::min(kDefaultPairs, student.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto& [layer, kind] = student[spread(i, count, student.size())];
    const std::vector<std::int64_t> own = of_kind(student, kind), others = of_kind(teacher.layers(), kind);
    if (others.empty()) {
      refuse(
          fmt::format("layer {} of the student is {}, and the teacher in {} has no such layer; name pairs "
                      "in 'layers'",
                      layer, kind, teacher.folder()));
    }
    const auto at = static_cast<std::size_t>(std::find(own.begin(), own.end(), layer) - own.begin());
    pairs.emplace_back(layer, others[std::min(spread(at, own.size(), others.size()), others.size() - 1)]);
  }
  return pairs;
}

std::pair<std::int64_t, std::int64_t> read_pair(std::string_view text) {
  std::int64_t student = -1, teacher = -1;
  const char* const last = text.data() + text.size();
  const auto [colon, first_problem] = std::from_chars(text.data(), last, student);
  if (first_problem == std::errc() && colon != last && *colon == ':') {
    const auto [end, problem] = std::from_chars(colon + 1, last, teacher);
    if (problem == std::errc() && end == last && student >= 0 && teacher >= 0) return {student, teacher};
  }
  refuse(
      fmt::format("'layers' has \"{}\"; expected pairs \"STUDENT:TEACHER\" of layers, such as \"3:5\", or "
                  "\"same\" alone",
                  text));
}

Pairs layer_pairs(const Options& options, const Layers& student, const Teacher& teacher) {
  if (!options.has("layers")) return default_pairs(student, teacher);
  Pairs pairs;
  const auto texts = options.texts("layers");
  if (texts.size() == 1 && texts[0] == "same") {
    for (const auto& layer : student) pairs.emplace_back(layer.first, layer.first);
  } else {
    for (const std::string_view text : texts) pairs.push_back(read_pair(text));
  }
  if (pairs.empty()) refuse("'layers' is empty; name at least one pair \"STUDENT:TEACHER\"");
  for (const auto& [own, other] : pairs) {
    const std::string *const own_kind = kind_of(student, own), *const kind = kind_of(teacher.layers(), other);
    const auto known = [](const Layers& layers) {
      std::vector<std::int64_t> numbers;
      for (const auto& layer : layers) numbers.push_back(layer.first);
      return fmt::format("{}", fmt::join(numbers, ", "));
    };
    if (own_kind == nullptr)
      refuse(fmt::format("'layers' names layer {} of the student, which has {}", own, known(student)));
    if (kind == nullptr)
      refuse(fmt::format("'layers' names layer {} of the teacher in {}, which has {}", other,
                         teacher.folder(), known(teacher.layers())));
    if (*own_kind != *kind) {
      refuse(
          fmt::format("'layers' pairs layer {} of the student ({}) with layer {} of the teacher ({}); the "
                      "two must be of one kind",
                      own, *own_kind, other, *kind));
    }
  }
  return pairs;
}

/// Nodes for one teacher.
class Distiller {
 public:
  Distiller(GraphSpec& graph, const Options& options, const StudentEnd& student, const DataInfo& data,
            Host& host, std::size_t index)
      : graph_(graph),
        options_(options),
        student_(student),
        data_(data),
        teacher_(options, data, host),
        ending_(index == 0 ? "" : fmt::format("_{}", index)),
        first_(index == 0) {
    for (const std::string_view loss : options.texts("losses")) losses_.emplace_back(loss);
    if (losses_.empty()) refuse("'losses' is empty; expected some of logits, hidden, tokens");
    if (std::set<std::string>(losses_.begin(), losses_.end()).size() != losses_.size())
      refuse(fmt::format("'losses' names one twice: {}", fmt::join(losses_, ", ")));
    if (options.has("weights") && options.reals("weights").size() != losses_.size()) {
      refuse(fmt::format("'weights' has {} numbers for {} losses ({}); expected one for each",
                         options.reals("weights").size(), losses_.size(), fmt::join(losses_, ", ")));
    }
  }

  /// Returns the values of the losses, in the order of the option.
  std::vector<std::string> add() {
    if (has("logits")) require_head();
    Pairs pairs;
    if (has("hidden")) pairs = layer_pairs(options_, student_.layers, teacher_);
    add_teacher(pairs);
    add_head();
    std::vector<std::string> values;
    for (const std::string& loss : losses_) {
      if (loss == "logits") values.push_back(head_);
      if (loss == "hidden") values.push_back(add_hidden(pairs));
      if (loss == "tokens") values.push_back(tokens_);
    }
    return values;
  }

  std::string total(const std::vector<std::string>& values, const std::string& metric) {
    std::vector<NamedOption> options{{"balance", std::string(options_.text("balance"))}, {"metric", metric}};
    if (options_.has("weights")) {
      const auto weights = options_.reals("weights");
      options.push_back({"weights", std::vector<double>(weights.begin(), weights.end())});
    }
    return node("distil.loss" + ending_, "add_losses", values, std::move(options));
  }

 private:
  bool has(std::string_view loss) const {
    return std::find(losses_.begin(), losses_.end(), loss) != losses_.end();
  }
  std::string node(std::string name, std::string type, std::vector<std::string> inputs,
                   std::vector<NamedOption> options) {
    graph_.nodes.push_back({name, std::move(type), std::move(inputs), std::move(options)});
    return name;
  }

  void require_head() const {
    const Shape& head = teacher_.head_shape();
    if (head.rank() != 2 || head[0] != student_.vocabulary) {
      refuse(
          fmt::format("the teacher's head in {} has {} rows, and the student's {}; a student learns from a "
                      "teacher of its own vocabulary, rounded up alike ('vocabulary_multiple')",
                      teacher_.folder(), head.rank() == 2 ? head[0] : 0, student_.vocabulary));
    }
  }

  void add_teacher(const Pairs& pairs) {
    std::vector<std::string> outputs;
    if (has("logits")) outputs.push_back(teacher_.last());
    for (const auto& pair : pairs) {
      const std::string state = state_of(pair.second);
      if (std::find(outputs.begin(), outputs.end(), state) == outputs.end()) outputs.push_back(state);
    }
    if (outputs.empty()) refuse("'losses' has nothing of the teacher; add \"logits\" or \"hidden\"");
    std::vector<std::string> fields = teacher_.fields(outputs, data_);
    outputs_ = outputs;
    if (has("logits")) outputs_.push_back("parameter:" + teacher_.head());
    std::vector<NamedOption> options{{"model", std::string(options_.text("teacher"))}, {"outputs", outputs_}};
    if (options_.has("step")) options.push_back({"step", options_.integer("step")});
    if (options_.has("precision"))
      options.push_back({"precision", fmt::format("{{type = \"{}\"}}", options_.text("precision"))});
    name_ = node("teacher" + ending_, "frozen", std::move(fields), std::move(options));
  }

  /// An output of the teacher's node.
  std::string output(std::string_view value) const {
    const auto at = std::find(outputs_.begin(), outputs_.end(), value) - outputs_.begin();
    return at == 0 ? name_ : fmt::format("{}:{}", name_, at);
  }

  /// The head of the first teacher's node owns the weight; others share it.
  void add_head() {
    const std::string metric = "logit_loss" + ending_;
    std::vector<NamedOption> options = student_.head;
    const auto is_weight = [](const NamedOption& option) { return option.name == "weight"; };
    if (!first_ && std::none_of(options.begin(), options.end(), is_weight))
      options.push_back({"weight", std::string("lm_head.weight")});
    if (!has("logits")) {
      if (!first_ && !has("tokens")) return;
      options.push_back({"metric", "lm_loss" + ending_});
      tokens_ =
          node("lm_head" + ending_, "head_cross_entropy", {student_.last, "targets"}, std::move(options));
      return;
    }
    options.push_back({"temperature", options_.real("temperature")});
    options.push_back({"scale_by_square", options_.boolean("scale_by_square")});
    options.push_back({"form", std::string(options_.text("form"))});
    if (options_.has("top_k")) options.push_back({"top_k", options_.integer("top_k")});
    options.push_back({"metric", metric});
    head_ = node("lm_head" + ending_, "distillation",
                 {student_.last, "targets", output(teacher_.last()), output("parameter:" + teacher_.head())},
                 std::move(options));
    tokens_ =
        node("distil.tokens" + ending_, "add_losses", {head_ + ":1"}, {{"metric", "lm_loss" + ending_}});
  }

  /// The mean over pairs of layers.
  std::string add_hidden(const Pairs& pairs) {
    std::vector<std::string> values;
    for (const auto& [own, other] : pairs) {
      values.push_back(node(fmt::format("distil.hidden{}.{}", ending_, own), "hidden_match",
                            {state_of(own), output(state_of(other)), "targets"},
                            {{"loss", std::string(options_.text("hidden_loss"))},
                             {"project", options_.boolean("project")},
                             {"metric", fmt::format("hidden_loss{}.{}", ending_, own)}}));
    }
    const std::vector<double> weights(values.size(), 1 / static_cast<double>(values.size()));
    return node("distil.hidden" + ending_, "add_losses", values,
                {{"weights", weights}, {"metric", "hidden_loss" + ending_}});
  }

  GraphSpec& graph_;
  const Options& options_;
  const StudentEnd& student_;
  const DataInfo& data_;
  Teacher teacher_;
  std::string ending_;  ///< of names, for all teachers but the first
  bool first_;
  std::vector<std::string> losses_, outputs_;
  std::string name_, head_, tokens_;
};

}  // namespace

void add_distillation(GraphSpec& graph, const Options& model, const StudentEnd& student, const DataInfo& data,
                      Host& host) {
  const std::vector<const Options*> tables = model.tables("distil");
  std::vector<std::string> totals;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    Distiller distiller(graph, *tables[i], student, data, host, i);
    const std::vector<std::string> values = distiller.add();
    const std::string metric = tables.size() == 1 ? "loss" : fmt::format("distil_loss_{}", i);
    totals.push_back(distiller.total(values, metric));
  }
  if (totals.size() > 1)
    graph.nodes.push_back({"distil.total", "add_losses", totals, {{"metric", std::string("loss")}}});
}

}  // namespace tenon::decoder
