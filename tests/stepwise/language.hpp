// For tests of stepwise graphs: a language model of one precision on one device, its logits over whole
// sequences, and the same logits in passes of any size, by executors of many batches and times.
#pragma once

#include <tenon/executor.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

inline constexpr std::int64_t kVocabulary = 53, kContext = 19;

struct LanguageCase {
  const char* name;
  const char* model;
  const char* toml;
  bool documents = false;  ///< with numbers of documents
  bool positions = false;  ///< and with positions, which begin again in each document
};
inline void PrintTo(const LanguageCase& c, std::ostream* out) {
  *out << c.name;
}

inline constexpr LanguageCase kLanguageCases[] = {
    {"gpt_neo", "gpt_neo", "layers = 2\nwidth = 16\nheads = 2\nwindow = 5\ninit_scale = 0.3"},
    {"gpt_neo_scaled", "gpt_neo",
     "layers = 1\nwidth = 12\nheads = 3\nattention = [\"global\"]\nscale_logits = true\ndropout = 0.2\n"
     "init_scale = 0.3"},
    {"decoder", "decoder",
     "pattern = \"*-*-\"\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\ninit_scale = 0.3"},
    {"decoder_window", "decoder",
     "pattern = \"*-*-\"\nwidth = 16\nheads = 4\nkv_heads = 1\nhidden = 24\nwindow = 4\nqk_norm = true\n"
     "tied = true\ninit_scale = 0.3\nffn = \"squared_relu\"\nnorm = \"layer\"\nbias = [\"qkv\", \"out\", "
     "\"ffn\"]"},
    {"decoder_learned", "decoder",
     "pattern = \"*-\"\nwidth = 16\nheads = 2\nhidden = 24\nposition = \"learned\"\nffn = \"geglu\"\n"
     "init_scale = 0.3\ncontext = 40"},
    {"decoder_nowhere", "decoder",
     "pattern = \"**-\"\nwidth = 16\nheads = 2\nhidden = 24\nposition = \"none\"\nffn = \"gelu\"\n"
     "init_scale = 0.3"},
    {"decoder_documents", "decoder",
     "pattern = \"*-*-\"\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\ninit_scale = 0.3", true, true},
    {"decoder_documents_window", "decoder",
     "pattern = \"*-*\"\nwidth = 16\nheads = 2\nhidden = 24\nwindow = 3\ninit_scale = 0.3", true, false},
    {"mamba", "decoder",
     "pattern = \"MM\"\nwidth = 12\nmamba_heads = 3\nmamba_head_width = 6\nmamba_state = 5\nmamba_conv = 3\n"
     "mamba_chunk = 5\nmamba_dt_limits = [0.01, 0.05]\ninit_scale = 0.3"},
    {"hybrid", "decoder",
     "pattern = \"M-M*-M-\"\nwidth = 16\nheads = 4\nkv_heads = 2\nhidden = 24\nposition = \"none\"\n"
     "ffn = \"squared_relu\"\nmamba_heads = 4\nmamba_head_width = 8\nmamba_state = 8\nmamba_groups = 2\n"
     "mamba_chunk = 4\ninit_scale = 0.3"},
    {"hybrid_documents", "decoder",
     "pattern = \"M*-M\"\nwidth = 16\nheads = 2\nhidden = 24\nposition = \"none\"\nmamba_heads = 4\n"
     "mamba_head_width = 4\nmamba_state = 4\nmamba_chunk = 8\ninit_scale = 0.3",
     true, false},
};

inline const LanguageCase& language_case(std::string_view name) {
  return *std::find_if(std::begin(kLanguageCases), std::end(kLanguageCases),
                       [&](const LanguageCase& c) { return name == c.name; });
}

/// A text of the tests.
struct Sequence {
  std::vector<double> tokens, documents, positions;
  std::size_t size() const { return tokens.size(); }
};

/// A row of a pass: adds `count` positions of `sequence` to what is kept in `kept`.
struct PassRow {
  const Sequence* sequence = nullptr;  ///< null: no place of the row counts
  std::int64_t first = 0, count = 0, kept = 0;
};

class LanguageBench {
 public:
  LanguageBench(const LanguageCase& of, const char* device, const char* kernels, const char* policy,
                const char* policy_toml = "")
      : case_(of),
        bench_(device, kernels, 1),
        policy_(bench_.make_component<Precision>(policy, policy_toml)),
        model_(bench_.make_component<Model>(of.model, of.toml)) {
    // The trained graph, ended by its logits.
    const DataInfo whole = data(kContext);
    graph_ = model_->build(whole);
    NodeSpec& head = graph_.nodes.back();
    std::vector<NamedOption> options;
    for (const NamedOption& option : head.options) {
      if (option.name == "vocabulary") options.push_back({"features", option.value});
      if (option.name == "weight" || option.name == "init_scale") options.push_back(option);
    }
    options.push_back({"bias", false});
    options.push_back({"module", std::string("head")});
    head = {"lm_head", "linear", {head.inputs[0]}, std::move(options)};
    whole_ = std::make_unique<Executor>(spec(1, 0), graph_, whole);
    weights_ = make_parameter_set("live", whole_->parameters(), *bench_.device, SetContents::kEverything);
    initialise(*weights_, 3, *bench_.device);
  }

  Device& device() { return *bench_.device; }
  const GraphSpec& graph() const { return graph_; }
  ParameterSet& weights() { return *weights_; }
  DataInfo data(std::int64_t time) const {
    DataInfo info;
    info.fields = {{"tokens", DType::kI32, {time}}, {"targets", DType::kI32, {time}}};
    if (case_.documents) info.fields.push_back({"documents", DType::kI32, {time}});
    if (case_.positions) info.fields.push_back({"positions", DType::kI32, {time}});
    info.attributes = {{"vocabulary", kVocabulary}};
    return info;
  }
  /// positions: 0 for a graph that is not stepwise.
  ExecutorSpec spec(std::int64_t batch, std::int64_t positions) {
    ExecutorSpec result;
    result.layers = bench_.layers.get(), result.device = &*bench_.device, result.host = &bench_.host;
    result.precision = &*policy_;
    result.batch = batch;
    result.training = false;
    result.keep = {"lm_head"};
    result.only_kept = true;
    result.positions = positions;
    return result;
  }
  /// The stepwise executor of one size of passes.
  Executor& stepwise(std::int64_t batch, std::int64_t time) {
    auto& executor = stepwise_[{batch, time}];
    if (executor == nullptr) {
      executor = std::make_unique<Executor>(spec(batch, kContext), graph_, data(time));
      executor->bind(*weights_);
    }
    return *executor;
  }

  /// A text of `length` tokens, its documents 1 to 6 tokens long.
  Sequence sequence(const std::string& name, std::int64_t length) const {
    Sequence result;
    result.tokens = integers(length, kVocabulary, name);
    const std::vector<double> lengths = integers(length, 6, name + " documents");
    for (std::int64_t i = 0, document = 0; i < length; document += 2) {
      const auto end = std::min(length, i + 1 + static_cast<std::int64_t>(lengths[i]));
      for (std::int64_t position = 0; i < end; ++i, ++position) {
        result.documents.push_back(static_cast<double>(document));
        result.positions.push_back(static_cast<double>(position));
      }
    }
    return result;
  }

  /// Logits of every position, from one pass over the whole context, whose rest is other tokens.
  std::vector<std::vector<double>> whole_logits(const Sequence& sequence) {
    const auto padded = [](std::vector<double> values, double with) {
      values.resize(kContext, with);
      return values;
    };
    fill(*whole_,
         {padded(sequence.tokens, 7), padded(sequence.documents, 1000), padded(sequence.positions, 0)});
    whole_->forward(*weights_, {.training = false});
    auto rows = rows_of(*whole_);
    rows.resize(sequence.size());
    return rows;
  }

  /// One pass; returns the logits of each place [batch * time].
  std::vector<std::vector<double>> pass(SequenceState& state, std::int64_t time,
                                        std::span<const PassRow> rows) {
    const auto batch = static_cast<std::int64_t>(rows.size());
    Executor& executor = stepwise(batch, time);
    std::vector<double> fields[3];
    std::vector<std::int64_t> first, count, kept;
    for (const PassRow& row : rows) {
      first.push_back(row.first), count.push_back(row.count), kept.push_back(row.kept);
      for (std::int64_t place = 0; place < time; ++place) {
        // Padding has values of its own: tokens that would matter, and documents that go backwards.
        const bool counts = place < row.count;
        const auto at = static_cast<std::size_t>(row.first + place);
        fields[0].push_back(counts ? row.sequence->tokens[at] : 11);
        fields[1].push_back(counts ? row.sequence->documents[at] : -place);
        fields[2].push_back(counts ? row.sequence->positions[at] : 3);
      }
    }
    fill(executor, fields);
    executor.step(*weights_, state, {.first = first, .count = count, .kept = kept});
    return rows_of(executor);
  }

 private:
  void fill(Executor& executor, std::span<const std::vector<double>> fields) {
    const std::span<const TensorView> inputs = executor.inputs();
    write(*bench_.device, inputs[0], fields[0]);
    for (std::size_t i = 2; i < inputs.size(); ++i) {
      const std::vector<double>& values = fields[i - 1];
      if (!inputs[i].empty()) write(*bench_.device, inputs[i], values);
    }
  }
  void fill(Executor& executor, std::initializer_list<std::vector<double>> fields) {
    fill(executor, std::span<const std::vector<double>>(fields.begin(), fields.size()));
  }
  std::vector<std::vector<double>> rows_of(Executor& executor) {
    const std::vector<double> all = read(*bench_.device, executor.value("lm_head"));
    std::vector<std::vector<double>> rows;
    for (auto at = all.begin(); at != all.end(); at += kVocabulary) rows.emplace_back(at, at + kVocabulary);
    return rows;
  }

  const LanguageCase& case_;
  Bench bench_;
  Made<Precision> policy_;
  Made<Model> model_;
  GraphSpec graph_;
  std::unique_ptr<Executor> whole_;
  std::unique_ptr<ParameterSet> weights_;
  std::map<std::pair<std::int64_t, std::int64_t>, std::unique_ptr<Executor>> stepwise_;
};

/// Draws of one test.
class Draws {
 public:
  explicit Draws(const std::string& purpose) : key_(random_key(5, purpose)) {}
  std::int64_t below(std::int64_t bound) {
    return static_cast<std::int64_t>(random_below(key_, 0, next_++, static_cast<std::uint64_t>(bound)));
  }

 private:
  RandomKey key_;
  std::uint64_t next_ = 0;
};

/// The largest difference of any logits from those of whole sequences, relative to their largest. The texts
/// go on in random passes: some rows of a batch at a time, each by a number of positions of its own, by
/// executors of several batches and times on one state; a kept row that is done is begun anew.
inline double worst_of_random_passes(LanguageBench& bench, const std::string& purpose, int texts) {
  constexpr std::int64_t kKept = 4, kTimes[] = {1, 2, 3, 7, kContext};
  Draws draws(purpose);
  const auto state = bench.stepwise(1, 1).make_sequences(kKept);
  struct Text {
    Sequence sequence;
    std::vector<std::vector<double>> logits;
    std::int64_t done = 0;
  };
  std::vector<Text> going;
  int begun = 0;
  const auto begin = [&] {
    Sequence sequence = bench.sequence(purpose + std::to_string(begun++), 1 + draws.below(kContext));
    auto logits = bench.whole_logits(sequence);
    return Text{std::move(sequence), std::move(logits)};
  };
  while (static_cast<std::int64_t>(going.size()) < kKept) going.push_back(begin());
  double worst = 0;
  while (begun < texts) {
    const std::int64_t time = kTimes[draws.below(std::ssize(kTimes))], batch = 1 + draws.below(kKept);
    std::int64_t kept = draws.below(kKept);
    std::vector<PassRow> rows;
    for (std::int64_t row = 0; row < batch; ++row, kept = (kept + 1) % kKept) {
      Text& text = going[kept];
      const std::int64_t left = std::ssize(text.sequence.tokens) - text.done;
      rows.push_back({&text.sequence, text.done, std::min(left, draws.below(time + 1)), kept});
    }
    const auto found = bench.pass(*state, time, rows);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      for (std::int64_t place = 0; place < rows[row].count; ++place) {
        const auto& expected = going[rows[row].kept].logits[rows[row].first + place];
        worst = std::max(worst, relative_error(found[row * time + place], expected));
      }
      Text& text = going[rows[row].kept];
      text.done += rows[row].count;
      if (text.done == std::ssize(text.sequence.tokens)) text = begin();
    }
  }
  return worst;
}

}  // namespace tenon::testing
