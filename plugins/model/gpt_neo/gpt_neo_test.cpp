// GPT-Neo as a whole: totals of parameters, names, and one training step and ten of them against PyTorch
// (tests/reference/gpt_neo.safetensors), with variants that must not match.
#include "reference/recorded.hpp"

#include <tenon/optimizer.hpp>
#include <tenon/parallel.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace tenon::testing::gpt_neo_test {
namespace {

constexpr std::int64_t kVocabulary = 61, kWidth = 16, kContext = 12, kBatch = 3, kSteps = 10;
constexpr const char* kTiny = "layers = 2\nwidth = 16\nheads = 4\nwindow = 5\n";

DataInfo text_data(std::int64_t time, std::int64_t vocabulary, bool packed = false) {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {time}}, {"targets", DType::kI32, {time}}};
  if (packed) {
    data.fields.push_back({"documents", DType::kI32, {time}});
    data.fields.push_back({"positions", DType::kI32, {time}});
  }
  data.attributes = {{"vocabulary", vocabulary}};
  return data;
}

GraphSpec build(Bench& bench, const std::string& options, const DataInfo& data) {
  return bench.make_component<Model>("gpt_neo", options)->build(data);
}

/// A model on recorded batches and weights, stepped as the recording was.
class Twin {
 public:
  Twin(const Recorded& recorded, const std::string& precision, const std::string& kernels,
       const std::string& options)
      : recorded_(recorded),
        bench_("cpu", kernels, 1),
        precision_(bench_.make_component<Precision>(precision, "")),
        optimizer_(
            bench_.make_component<Optimizer>("adamw", "lr = 1e-3\nbetas = [0.9, 0.99]\nweight_decay = 0.1")),
        harness_({.layers = &*bench_.layers,
                  .device = &*bench_.device,
                  .host = &bench_.host,
                  .precision = &*precision_},
                 build(bench_, kTiny + options, text_data(kContext, kVocabulary)).nodes, {},
                 {{"tokens", {kBatch, kContext}, DType::kI32, recorded.row("tokens", 0)},
                  {"targets", {kBatch, kContext}, DType::kI32, recorded.row("targets", 0)}}) {
    for (const std::string& name : parameters())
      harness_.set_parameter(name, recorded.values("init." + name));
    for (const StateSlot& slot : optimizer_->slots()) {
      state_.push_back(make_parameter_set(slot.name, harness_.executor().parameters(), *bench_.device,
                                          SetContents::kDense));
    }
  }

  LayerHarness& harness() { return harness_; }
  std::vector<std::string> parameters() {
    std::vector<std::string> names;
    for (const ParameterInfo& info : harness_.executor().parameters()) names.push_back(info.spec.name);
    return names;
  }

  /// Mean loss of batch `t`, with gradients of it.
  double differentiate(std::int64_t t) {
    harness_.set_field("tokens", recorded_.row("tokens", t));
    harness_.set_field("targets", recorded_.row("targets", t));
    const double sum = harness_.forward(), count = harness_.executor().losses()[0].count;
    harness_.backward(1.0 / count, true);
    return sum / count;
  }
  double gradient_norm() {
    double squares = 0;
    for (const auto& [name, gradient] : harness_.all_gradients()) {
      for (const double g : gradient) squares += g * g;
    }
    return std::sqrt(squares);
  }
  void update(std::int64_t t) {
    const double scale = std::min(1.0, 1.0 / (gradient_norm() + 1e-6));
    for (const ParameterInfo& info : harness_.executor().parameters()) {
      const TensorView views[] = {state_[0]->tensor(info.index), state_[1]->tensor(info.index)};
      optimizer_->step({.lr = 1e-3, .count = t + 1, .gradient_scale = scale, .device = &*bench_.device},
                       {.weights = harness_.weights().tensor(info.index),
                        .gradients = harness_.gradients().tensor(info.index),
                        .state = views,
                        .decay = info.spec.decay,
                        .parameter = info.index});
    }
    harness_.weights().touch(-1);
  }
  /// [batch, time, vocabulary]: the head does not expose its logits, so they are computed here.
  std::vector<double> logits() {
    const auto x = harness_.value("transformer.ln_f"), w = harness_.parameter("transformer.wte.weight");
    std::vector<double> result;
    for (std::int64_t row = 0; row < kBatch * kContext; ++row) {
      for (std::int64_t word = 0; word < kVocabulary; ++word) {
        double sum = 0;
        for (std::int64_t j = 0; j < kWidth; ++j) {
          sum += x[row * kWidth + j] * w[word * kWidth + j];
        }
        result.push_back(sum);
      }
    }
    return result;
  }

 private:
  const Recorded& recorded_;
  Bench bench_;
  Made<Precision> precision_;
  Made<Optimizer> optimizer_;
  LayerHarness harness_;
  std::vector<std::unique_ptr<ParameterSet>> state_;
};

/// Tolerances of tests/reference/README.md: relative to the largest element of each float64 tensor.
struct Bounds {
  double logits, gradients, loss, norm, weights;
};
constexpr Bounds kExact{1e-13, 1e-12, 1e-12, 1e-12, 1e-12}, kSingle{1e-5, 1e-5, 2e-6, 1e-5, 2e-5};

struct Setting {
  const char *name, *precision, *kernels, *options;
  Bounds bounds;
};
std::ostream& operator<<(std::ostream& out, const Setting& s) {
  return out << s.name;
}
constexpr Setting kSettings[] = {
    {"f64", "fp64", "reference", "", kExact},
    {"f64_chunked_head", "fp64", "reference", "chunk_rows = 5", kExact},
    {"f32_reference", "fp32", "reference", "", kSingle},
    {"f32_fast", "fp32", "auto", "", kSingle},
    {"f32_fast_chunked_head", "fp32", "auto", "chunk_rows = 5", kSingle},
};

class GptNeoAgainstPyTorch : public ::testing::TestWithParam<Setting> {
 protected:
  Recorded recorded_{"gpt_neo"};
};

TEST_P(GptNeoAgainstPyTorch, HasItsParametersUnderItsNames) {
  Twin twin(recorded_, GetParam().precision, GetParam().kernels, GetParam().options);
  const auto names = twin.parameters();
  std::set<std::string> expected;
  for (const std::string& name : recorded_.names()) {
    if (name.starts_with("init.")) expected.insert(name.substr(5));
  }
  EXPECT_EQ(std::set<std::string>(names.begin(), names.end()), expected);
}

TEST_P(GptNeoAgainstPyTorch, GivesItsLogitsLossAndGradients) {
  const Setting& setting = GetParam();
  Twin twin(recorded_, setting.precision, setting.kernels, setting.options);
  const double loss = recorded_.values("f64.step_loss")[0];
  EXPECT_NEAR(twin.differentiate(0), loss, setting.bounds.loss * loss);
  EXPECT_LT(relative_error(twin.logits(), recorded_.values("f64.logits")), setting.bounds.logits);
  for (const std::string& name : twin.parameters()) {
    EXPECT_LT(relative_error(twin.harness().gradient(name), recorded_.values("f64.grad." + name)),
              setting.bounds.gradients)
        << name;
  }
}

TEST_P(GptNeoAgainstPyTorch, TakesItsTenSteps) {
  const Setting& setting = GetParam();
  Twin twin(recorded_, setting.precision, setting.kernels, setting.options);
  const auto losses = recorded_.values("f64.step_loss"), norms = recorded_.values("f64.step_grad_norm");
  for (std::int64_t t = 0; t < kSteps; ++t) {
    const std::size_t i = t;
    EXPECT_NEAR(twin.differentiate(t), losses[i], setting.bounds.loss * losses[i]) << "step " << t;
    EXPECT_NEAR(twin.gradient_norm(), norms[i], setting.bounds.norm * norms[i]) << "step " << t;
    twin.update(t);
  }
  for (const std::string& name : twin.parameters()) {
    EXPECT_LT(relative_error(twin.harness().parameter(name), recorded_.values("f64.final." + name)),
              setting.bounds.weights)
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Settings, GptNeoAgainstPyTorch, ::testing::ValuesIn(kSettings),
                         [](const auto& info) { return std::string(info.param.name); });

// Each variant matches its own recording and no other, so the tests above would notice a wrong scale or GELU.
TEST(GptNeoVariants, MatchTheirOwnRecordingOnly) {
  const Recorded recorded("gpt_neo");
  const std::pair<const char*, const char*> variants[] = {
      {"f64", ""}, {"scaled", "scale_logits = true"}, {"exact_gelu", "activation = \"gelu_exact\""}};
  for (const auto& [own, options] : variants) {
    Twin twin(recorded, "fp64", "reference", options);
    const double loss = twin.differentiate(0);
    const auto logits = twin.logits();
    for (const auto& [other, unused] : variants) {
      const std::string name(other);
      const double recorded_loss = recorded.values(name + ".step_loss")[0];
      const bool same = name == own;
      // Logits of the variants were rounded to float32.
      EXPECT_EQ(relative_error(logits, recorded.values(name + ".logits")) < kSingle.logits, same)
          << own << " " << name;
      EXPECT_EQ(std::abs(loss - recorded_loss) < kSingle.loss * recorded_loss, same) << own << " " << name;
    }
  }
}

TEST(GptNeoModel, HasExactlyThePublishedNumberOfParameters) {
  const struct {
    const char* options;
    std::int64_t expected;
  } cases[] = {
      {"layers = 8\nheads = 8\nwidth = 128\ncontext = 300", 8'054'656},
      {"layers = 12\nheads = 12\nwidth = 768\ncontext = 1024", 124'412'160},
      {"layers = 12\nheads = 12\nwidth = 768\ncontext = 2048", 125'198'592},
      {"layers = 8\nheads = 16\nwidth = 64\ncontext = 2048", 3'745'984},
  };
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  for (const auto& c : cases) {
    const DataInfo data = text_data(4, 50257);
    ExecutorSpec spec;
    spec.layers = &*bench.layers, spec.device = &*bench.device, spec.host = &bench.host,
    spec.precision = &*precision;
    const Executor executor(spec, build(bench, c.options, data), data);
    std::int64_t total = 0;
    for (const ParameterInfo& info : executor.parameters()) total += info.local.elements();
    EXPECT_EQ(total, c.expected) << c.options;
  }
}

TEST(GptNeoModel, HasTheSameGradientsWhenMemoryIsReused) {
  Bench bench("cpu", "auto", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  const std::vector<TestField> fields = {{"tokens", {3, 12}, DType::kI32, integers(36, 61, "tokens")},
                                         {"targets", {3, 12}, DType::kI32, integers(36, 61, "targets")}};
  for (const std::string options : {"", "dropout = 0.2", "chunk_rows = 7"}) {
    std::map<std::string, std::vector<double>> gradients[2];
    std::int64_t bytes[2] = {0, 0};
    for (const bool keep_values : {false, true}) {
      LayerHarness harness({.layers = &*bench.layers,
                            .device = &*bench.device,
                            .host = &bench.host,
                            .precision = &*precision,
                            .keep_values = keep_values},
                           build(bench, kTiny + options, text_data(12, 61)).nodes, {}, fields);
      harness.forward();
      harness.backward(1.0, true);
      gradients[keep_values] = harness.all_gradients();
      bytes[keep_values] = harness.executor().activation_bytes();
    }
    EXPECT_EQ(gradients[false], gradients[true]) << options;
    EXPECT_LT(bytes[false], bytes[true]) << options;
  }
}

/// Documents of 5, 4 and 3 tokens, as a row each that is filled up, or packed into one row.
std::vector<TestField> document_rows(bool packed) {
  const std::vector<double> drawn = integers(12, 61, "tokens");
  const std::vector<std::int64_t> lengths{5, 4, 3};
  const std::int64_t rows = packed ? 1 : 3;
  const auto places = static_cast<std::size_t>(12 * rows);
  std::vector<double> tokens(places, 0), targets(places, -1), documents(12), positions(12);
  std::size_t from = 0;
  for (std::size_t d = 0; d < lengths.size(); ++d) {
    const std::size_t to = packed ? from : 12 * d, length = static_cast<std::size_t>(lengths[d]);
    for (std::size_t i = 0; i < length; ++i) {
      tokens[to + i] = drawn[from + i];
      if (i + 1 < length) targets[to + i] = drawn[from + i + 1];
      documents[from + i] = static_cast<double>(d);
      positions[from + i] = static_cast<double>(i);
    }
    from += length;
  }
  std::vector<TestField> fields = {{"tokens", {rows, 12}, DType::kI32, tokens},
                                   {"targets", {rows, 12}, DType::kI32, targets}};
  if (packed) {
    fields.push_back({"documents", {1, 12}, DType::kI32, documents});
    fields.push_back({"positions", {1, 12}, DType::kI32, positions});
  }
  return fields;
}

TEST(GptNeoModel, C5_PackedDocumentsHaveTheLossAndGradientsOfSamplesOfTheirOwn) {
  for (const auto& [type, bound] : {std::pair{"fp64", 1e-12}, {"fp32", 1e-6}}) {
    Bench bench("cpu", "auto", 1);
    const auto precision = bench.make_component<Precision>(type, "");
    double losses[2];
    std::map<std::string, std::vector<double>> gradients[2];
    for (const bool packed : {false, true}) {
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          build(bench, std::string(kTiny) + "init_scale = 0.3", text_data(12, 61, packed)).nodes, {},
          document_rows(packed));
      losses[packed] = harness.forward() / 9;
      EXPECT_EQ(harness.executor().losses()[0].count, 9) << "targets";
      harness.backward(1.0 / 9, true);
      gradients[packed] = harness.all_gradients();
    }
    EXPECT_NEAR(losses[1], losses[0], bound * losses[0]) << type;
    ASSERT_EQ(gradients[1].size(), gradients[0].size());
    for (const auto& entry : gradients[0])
      EXPECT_LT(relative_error(gradients[1].at(entry.first), entry.second), 10 * bound)
          << type << " " << entry.first;
  }
}

// A prompt is one document, whatever the samples of training are.
TEST(GptNeoModel, ReadsPackedRowsInTrainingAlone) {
  Bench bench("cpu", "auto", 1);
  const auto model = bench.make_component<Model>("gpt_neo", kTiny);
  const auto reads = [](const GraphSpec& graph, std::string_view field) {
    std::int64_t found = 0;
    for (const NodeSpec& node : graph.nodes)
      found += std::count(node.inputs.begin(), node.inputs.end(), field);
    return found;
  };
  const GraphSpec trained = model->build(text_data(12, 61, true));
  EXPECT_EQ(reads(trained, "documents"), 2);
  EXPECT_EQ(reads(trained, "positions"), 1);
  auto* language = static_cast<LanguageModel*>(model->query(LanguageModel::kId));
  const GraphSpec prompt = language->language_graph(text_data(12, 61, true)).graph;
  EXPECT_EQ(reads(prompt, "documents") + reads(prompt, "positions"), 0);
}

TEST(GptNeoModel, HasTheSameBitsWithAnyNumberOfThreads) {
  const std::vector<TestField> fields = {{"tokens", {8, 64}, DType::kI32, integers(512, 300, "tokens")},
                                         {"targets", {8, 64}, DType::kI32, integers(512, 300, "targets")}};
  for (const char* type : {"fp32", "bf16"}) {
    std::vector<std::map<std::string, std::vector<double>>> gradients;
    for (const int threads : {1, 2, 3}) {
      set_parallel_threads(threads);
      Bench bench("cpu", "reference", threads);  // oneDNN guarantees its bits for one number only
      const auto precision = bench.make_component<Precision>(type, "");
      LayerHarness harness(
          {.layers = &*bench.layers, .device = &*bench.device, .host = &bench.host, .precision = &*precision},
          build(bench, "layers = 2\nwidth = 48\nheads = 3\nwindow = 20\ndropout = 0.1", text_data(64, 300))
              .nodes,
          {}, fields);
      harness.forward();
      harness.backward(1.0 / 512, true);
      gradients.push_back(harness.all_gradients());
    }
    EXPECT_EQ(gradients[1], gradients[0]) << type;
    EXPECT_EQ(gradients[2], gradients[0]) << type;
  }
  set_parallel_threads(1);
}

TEST(GptNeoModel, AlternatesGlobalAndLocalAttention) {
  Bench bench("cpu", "auto", 1);
  const auto windows = [&](const std::string& options) {
    std::vector<std::int64_t> result;
    for (const NodeSpec& node : build(bench, "width = 8\nheads = 2\n" + options, text_data(4, 5)).nodes) {
      if (node.type != "attention") continue;
      for (const NamedOption& option : node.options) {
        if (option.name == "window") result.push_back(std::get<std::int64_t>(option.value));
      }
    }
    return result;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(windows("layers = 3"), ElementsAre(0, 256, 0));
  EXPECT_THAT(windows("layers = 4\nwindow = 7\nattention = [\"local\", \"global\", \"global\"]"),
              ElementsAre(7, 0, 0, 7));
}

TEST(GptNeoModel, AddsDropoutNodesOnlyWhenAsked) {
  Bench bench("cpu", "auto", 1);
  const auto dropouts = [&](const std::string& options) {
    const GraphSpec graph = build(bench, "layers = 2\nwidth = 8\nheads = 2\n" + options, text_data(4, 5));
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [](const NodeSpec& n) { return n.type == "dropout"; });
  };
  EXPECT_EQ(dropouts(""), 0);
  EXPECT_EQ(dropouts("dropout = 0.1"), 5);
}

TEST(GptNeoModel, RefusesWhatCannotWork) {
  Bench bench("cpu", "auto", 1);
  DataInfo images;
  images.fields = {{"inputs", DType::kF32, {28, 28}}};
  DataInfo real_tokens = text_data(4, 5);
  real_tokens.fields[0].dtype = DType::kF32;
  DataInfo long_documents = text_data(4, 5, true);
  long_documents.fields[2].shape = {5};
  const struct {
    const char* options;
    DataInfo data;
    const char* says;
  } cases[] = {
      {"heads = 3", text_data(4, 5), "width 8 is not a multiple of 3 heads"},
      {"heads = 2", images, "needs a data field 'tokens', the data offers: inputs"},
      {"heads = 2", real_tokens, "'tokens' must be i32 [time], found f32 [4]"},
      {"heads = 2", long_documents, "data fields 'tokens' and 'documents' must be equally long"},
      {"heads = 2\ncontext = 3", text_data(4, 5), "samples have 4 tokens"},
      {"heads = 2\nvocabulary = 4", text_data(4, 5), "must cover the data's 5 tokens, found 4"},
      {"heads = 2", text_data(4, 0), "vocabulary"},
      {"heads = 2\nattention = []", text_data(4, 5), "'attention' is empty"},
      {"heads = 2\nattention = [\"sparse\"]", text_data(4, 5), "attention"},
  };
  for (const auto& c : cases) {
    try {
      build(bench, std::string("layers = 1\nwidth = 8\n") + c.options, c.data);
      ADD_FAILURE() << "accepted: " << c.options << "; expected an error that says: " << c.says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(c.says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing::gpt_neo_test
