// A stored model as a layer: its values are those of the model that is trained, to the bit, under every
// policy and on a device with memory of its own; its weights are there once and are no parameters; what it
// refuses.
#include <tenon/executor.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

namespace tenon::testing::frozen_test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr std::int64_t kVocabulary = 61, kContext = 12, kBatch = 3;
constexpr const char* kModel = "layers = 2\nwidth = 16\nheads = 2\nwindow = 5\ninit_scale = 0.2";

DataInfo text_data() {
  DataInfo data;
  data.fields = {{"tokens", DType::kI32, {kContext}}, {"targets", DType::kI32, {kContext}}};
  data.attributes = {{"vocabulary", kVocabulary}};
  return data;
}

/// What a folder holds in these tests.
struct Stored {
  std::function<GraphSpec(const DataInfo&)> graph;
  LanguageModel* language = nullptr;
  std::map<std::string, std::pair<Shape, std::vector<float>>> weights = {};
  std::map<std::string, int> reads = {};  ///< by tensor, over all models that were opened
};

class FakeModel final : public StoredModel {
 public:
  FakeModel(Stored& stored, std::string folder, std::int64_t step)
      : stored_(stored), folder_(std::move(folder)), step_(step), digest_("digest of " + folder_) {
    for (const auto& [name, tensor] : stored_.weights)
      parameters_.push_back({name, DType::kF32, tensor.first});
  }
  std::string_view folder() const override { return folder_; }
  std::int64_t step() const override { return step_; }
  std::string_view digest() const override { return digest_; }
  const ModelDescription& description() const override { return description_; }
  std::span<const StoredTensor> parameters() const override { return parameters_; }
  std::span<const StoredTensor> optimizer_state() const override { return {}; }
  void read(std::string_view tensor, const Shape& offset, TensorView out) override {
    const auto& [shape, values] = stored_.weights.at(std::string(tensor));
    if (offset[0] == 0) ++stored_.reads[std::string(tensor)];
    const std::int64_t first = offset[0] * (shape.elements() / shape[0]);
    std::copy_n(values.begin() + first, out.elements(), out.as<float>());
  }
  GraphSpec graph(const DataInfo& data) override { return stored_.graph(data); }
  void* query(std::string_view id) override { return id == LanguageModel::kId ? stored_.language : nullptr; }
  GraphSpec edited(GraphSpec graph, const DataInfo&) override { return graph; }

 private:
  Stored& stored_;
  std::string folder_;
  std::int64_t step_;
  std::string digest_;
  ModelDescription description_;
  std::vector<StoredTensor> parameters_;
};

class FakeModels final : public StoredModels {
 public:
  std::unique_ptr<StoredModel> open(const std::string& folder, std::optional<std::int64_t> step) override {
    opened.push_back(folder);
    return std::make_unique<FakeModel>(stored, folder, step.value_or(7));
  }
  Stored stored;
  std::vector<std::string> opened;
};

std::vector<float> floats(const std::vector<double>& values) {
  return {values.begin(), values.end()};
}

/// Values of the set in f32, which the set then has, too: what is stored.
void store(Device& device, ParameterSet& set, Stored& stored) {
  for (const ParameterInfo& info : set.parameters()) {
    const std::vector<float> values = floats(read(device, set.tensor(info.index)));
    stored.weights[info.spec.name] = {info.spec.shape, values};
    write(device, set.tensor(info.index), std::vector<double>(values.begin(), values.end()));
  }
  set.touch(-1);
}

struct Policy {
  const char* name;
  const char* type;
  const char* recipe;  ///< "" where the type has none
  bool quantized;
  int keep_last = 0;
};
void PrintTo(const Policy& policy, std::ostream* out) {
  *out << policy.name;
}

constexpr Policy kPolicies[] = {
    {"fp32", "fp32", "", false},
    {"fp64", "fp64", "", false},
    {"bf16", "bf16", "", false},
    {"fp16", "fp16", "", false},
    {"fp8_current", "fp8", "current", true},
    {"fp8_delayed", "fp8", "delayed", true},
    {"fp8_block", "fp8", "block", true},
    {"fp8_but_the_last_block", "fp8", "current", true, 1},
    {"mxfp8", "mxfp8", "", true},
    {"mxfp4", "mxfp4", "", true},
    {"nvfp4", "nvfp4", "", true},
    {"mor", "mor", "", true},
};

std::string toml_of(const Policy& policy) {
  std::string text;
  if (*policy.recipe != '\0') text += "recipe = \"" + std::string(policy.recipe) + "\"\n";
  if (policy.quantized) text += "keep_first = 0\nkeep_last = " + std::to_string(policy.keep_last) + "\n";
  return text;
}

/// A stored gpt_neo, and graphs of the same model that read it as a layer.
class Student {
 public:
  Student(const char* device, const Policy& policy)
      : bench(device, "auto", 1),
        policy(policy),
        precision(bench.make_component<Precision>(policy.type, toml_of(policy))),
        model(bench.make_component<Model>("gpt_neo", kModel)) {
    bench.host.models = &models;
    models.stored.graph = [this](const DataInfo& data) { return model->build(data); };
    models.stored.language = static_cast<LanguageModel*>(model->query(LanguageModel::kId));
  }

  NodeSpec frozen(const std::string& name, const std::vector<std::string>& outputs,
                  const std::vector<std::string>& inputs = {"tokens"}) const {
    NodeSpec node{name, "frozen", inputs, {{"model", std::string("/tmp")}, {"outputs", outputs}}};
    std::string table = "{type = \"" + std::string(policy.type) + "\"";
    if (*policy.recipe != '\0') table += ", recipe = \"" + std::string(policy.recipe) + "\"";
    if (policy.quantized) table += ", keep_first = 0, keep_last = " + std::to_string(policy.keep_last);
    node.options.push_back({"precision", table + "}"});
    return node;
  }

  std::unique_ptr<Executor> make(GraphSpec graph, bool training, const std::vector<NodeSpec>& before,
                                 std::vector<std::string> keep) {
    graph.nodes.insert(graph.nodes.begin(), before.begin(), before.end());
    ExecutorSpec spec;
    spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
    spec.precision = &*precision;
    spec.batch = kBatch;
    spec.training = training;
    spec.keep = std::move(keep);
    return std::make_unique<Executor>(spec, graph, text_data());
  }
  std::unique_ptr<ParameterSet> weights(Executor& executor) {
    auto set = make_parameter_set("live", executor.parameters(), *bench.device, SetContents::kEverything);
    initialise(*set, 1, *bench.device);
    return set;
  }
  /// Stores the weights of the trained graph.
  void store_model() {
    const auto trained = make(model->build(text_data()), true, {}, {});
    const auto set = weights(*trained);
    store(*bench.device, *set, models.stored);
  }
  void fill(Executor& executor) {
    write(*bench.device, executor.inputs()[0], integers(kBatch * kContext, kVocabulary, "tokens"));
    write(*bench.device, executor.inputs()[1], integers(kBatch * kContext, kVocabulary, "targets"));
  }
  std::vector<double> value(Executor& executor, const std::string& name) {
    return read(*bench.device, executor.value(name));
  }

  Bench bench;
  FakeModels models;
  Policy policy;
  Made<Precision> precision;
  Made<Model> model;
};

class FrozenValues : public ::testing::TestWithParam<std::tuple<const char*, Policy>> {};

TEST_P(FrozenValues, AreThoseOfAStudentWithTheSameWeights) {
  Student student(std::get<0>(GetParam()), std::get<1>(GetParam()));
  student.store_model();
  const auto evaluation =
      student.make(student.models.stored.language->language_graph(text_data()).graph, false,
                   {student.frozen("teacher", {"logits", "transformer.h.0.mlp_residual"})},
                   {"teacher", "teacher:1", "lm_head", "transformer.h.0.mlp_residual"});
  const auto set = student.weights(*evaluation);
  store(*student.bench.device, *set, student.models.stored);
  student.fill(*evaluation);
  evaluation->forward(*set, {.training = false});
  EXPECT_EQ(student.value(*evaluation, "teacher"), student.value(*evaluation, "lm_head"));
  EXPECT_EQ(student.value(*evaluation, "teacher:1"),
            student.value(*evaluation, "transformer.h.0.mlp_residual"));
  EXPECT_EQ(evaluation->value("teacher").shape, (Shape{kBatch, kContext, kVocabulary}));
  const std::vector<double> logits = student.value(*evaluation, "teacher");
  EXPECT_NE(*std::min_element(logits.begin(), logits.end()), *std::max_element(logits.begin(), logits.end()));

  const auto training = student.make(student.model->build(text_data()), true,
                                     {student.frozen("teacher", {"transformer.h.0.mlp_residual"})},
                                     {"transformer.h.0.mlp_residual"});
  const auto live = student.weights(*training);
  store(*student.bench.device, *live, student.models.stored);
  student.fill(*training);
  training->forward(*live, {});
  EXPECT_EQ(training->losses().size(), 1U);
  std::vector<double> teacher;
  training->probe_outputs([&](std::string_view node, std::string_view, int, const TensorView& value) {
    if (node == "teacher") teacher = read(*student.bench.device, value);
  });
  training->forward(*live, {});
  EXPECT_EQ(teacher, student.value(*training, "transformer.h.0.mlp_residual")) << "in training";
}

INSTANTIATE_TEST_SUITE_P(Policies, FrozenValues,
                         ::testing::Combine(::testing::Values("cpu", "cuda_emulated"),
                                            ::testing::ValuesIn(kPolicies)),
                         [](const ::testing::TestParamInfo<std::tuple<const char*, Policy>>& info) {
                           return std::string(std::get<0>(info.param)) + "_" + std::get<1>(info.param).name;
                         });

std::size_t bytes_of(const Stored& stored) {
  std::size_t bytes = 0;
  for (const auto& entry : stored.weights) bytes += entry.second.second.size() * sizeof(float);
  return bytes;
}

std::vector<PlanLine> held_by(const Executor& executor, const std::string& node) {
  std::vector<PlanLine> lines;
  for (const PlanLine& line : executor.memory_plan())
    if (line.what.starts_with(node + ": ")) lines.push_back(line);
  return lines;
}

TEST(FrozenWeights, AreReadOnceForAllNodesAndWorkersOfARank) {
  Student student("cpu", kPolicies[2]);
  student.store_model();
  const auto graph = [&] { return student.model->build(text_data()); };
  const std::vector<NodeSpec> two{student.frozen("t1", {"logits"}),
                                  student.frozen("t2", {"transformer.h.1.ln_1"})};
  auto first = student.make(graph(), true, two, {}), second = student.make(graph(), true, two, {});
  EXPECT_EQ(student.models.opened.size(), 4U);
  EXPECT_EQ(student.models.stored.reads.size(), student.models.stored.weights.size());
  for (const auto& [name, reads] : student.models.stored.reads) EXPECT_EQ(reads, 1) << name;

  const std::vector<PlanLine> all = held_by(*first, "t1");
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].what, "t1: weights of /tmp, slot 7");
  EXPECT_EQ(all[0].bytes, bytes_of(student.models.stored));
  EXPECT_EQ(all[1].what, "t1: activations, workspaces and kept outputs");
  EXPECT_GE(all[1].bytes, 2U * kBatch * kContext * kVocabulary);
  EXPECT_EQ(all[2].what, "t1: converted weight copies");
  for (const Executor* executor : {first.get(), second.get()}) {
    for (const PlanLine& line : held_by(*executor, "t2"))
      EXPECT_THAT(line.what, ::testing::Not(HasSubstr("weights of")));
  }
  EXPECT_EQ(held_by(*second, "t1").size(), 2U) << "the other worker's";
  EXPECT_EQ(first->allocated_bytes() - second->allocated_bytes(), static_cast<std::int64_t>(all[0].bytes));

  // They end with their last reader.
  first.reset(), second.reset();
  student.make(graph(), true, two, {});
  for (const auto& [name, reads] : student.models.stored.reads) EXPECT_EQ(reads, 2) << name;
}

TEST(FrozenWeights, ANodeLoadsWhatItsOutputsNeed) {
  Student student("cpu", kPolicies[0]);
  student.store_model();
  student.make(student.model->build(text_data()), true, {student.frozen("t", {"transformer.h.0.ln_1"})}, {});
  std::vector<std::string> read;
  for (const auto& entry : student.models.stored.reads) read.push_back(entry.first);
  EXPECT_THAT(read, UnorderedElementsAre("transformer.wte.weight", "transformer.wpe.weight",
                                         "transformer.h.0.ln_1.weight", "transformer.h.0.ln_1.bias"));
}

TEST(FrozenWeights, AreNoParametersAndTrainingDoesNotSeeTheNode) {
  Student student("cpu", kPolicies[6]);
  student.store_model();
  std::vector<std::vector<double>> gradients;
  std::vector<std::size_t> counts;
  for (const bool with : {false, true}) {
    std::vector<NodeSpec> nodes;
    if (with) nodes.push_back(student.frozen("teacher", {"logits"}));
    const auto executor = student.make(student.model->build(text_data()), true, nodes, {});
    const auto set = student.weights(*executor);
    const auto sum = make_parameter_set("gradients", executor->parameters(), *student.bench.device,
                                        SetContents::kGradients);
    student.fill(*executor);
    executor->forward(*set, {});
    executor->backward(*set, *sum, 1, true, {});
    counts.push_back(executor->parameters().size());
    gradients.push_back(read(*student.bench.device, sum->arena(0)));
    EXPECT_EQ(executor->linear_sites(), 13);
  }
  EXPECT_EQ(counts[1], counts[0]);
  EXPECT_EQ(gradients[1], gradients[0]);
}

TEST(FrozenParameters, AreConstantsOfTheGraphWithoutASecondCopy) {
  for (const char* device : {"cpu", "cuda_emulated"})
    for (const Policy& policy : {kPolicies[0], kPolicies[1], kPolicies[2]}) {
      Student student(device, policy);
      student.store_model();
      const std::string output = "parameter:transformer.wte.weight";
      const auto executor =
          student.make(student.models.stored.language->language_graph(text_data()).graph, false,
                       {student.frozen("t", {"transformer.h.0.ln_1", output})}, {"t", "t:1"});
      const auto set = student.weights(*executor);
      student.fill(*executor);
      for (int pass = 0; pass < 2; ++pass) {
        executor->forward(*set, {.training = false});
        const auto& [shape, values] = student.models.stored.weights.at("transformer.wte.weight");
        const TensorView value = executor->value("t:1");
        EXPECT_EQ(value.shape, shape);
        EXPECT_EQ(value.dtype, student.precision->activations());
        const double unit = policy.name == std::string("bf16") ? 0x1p-8 : 0;
        const std::vector<double> found = student.value(*executor, "t:1");
        ASSERT_EQ(found.size(), values.size());
        for (std::size_t i = 0; i < found.size(); ++i)
          ASSERT_NEAR(found[i], values[i], unit * std::abs(static_cast<double>(values[i])))
              << device << " " << policy.name;
      }
      EXPECT_EQ(student.models.stored.reads["transformer.wte.weight"], 1) << "shared with the embedding";
      std::size_t copies = 0;
      for (const PlanLine& line : held_by(*executor, "t")) {
        if (line.what == "t: weights of /tmp, slot 7") {
          EXPECT_LE(line.bytes,
                    bytes_of(student.models.stored) * (policy.name == std::string("fp64") ? 2 : 1));
        }
        if (line.what.starts_with("t: transformer.wte.weight in ")) copies += line.bytes;
      }
      EXPECT_EQ(copies, policy.name == std::string("bf16") ? kVocabulary * 16 * 2U : 0U);
    }
}

TEST(FrozenParameters, OfSeveralNodesAreOneMemory) {
  Student student("cpu", kPolicies[0]);
  student.store_model();
  const std::string output = "parameter:transformer.wte.weight";
  const auto executor =
      student.make(student.model->build(text_data()), true,
                   {student.frozen("t1", {output}, {}), student.frozen("t2", {output}, {})}, {"t1", "t2"});
  EXPECT_EQ(executor->value("t1").data, executor->value("t2").data);
}

TEST(FrozenParameters, NeedNoData) {
  Student student("cpu", kPolicies[0]);
  student.store_model();
  const NodeSpec head = student.frozen("t", {"parameter:transformer.h.0.ln_1.weight"}, {});
  const auto executor = student.make(student.model->build(text_data()), true, {head}, {"t"});
  const auto set = student.weights(*executor);
  student.fill(*executor);
  executor->forward(*set, {});
  EXPECT_EQ(student.value(*executor, "t"), std::vector<double>(16, 1.0));
  std::vector<std::string> read;
  for (const auto& entry : student.models.stored.reads) read.push_back(entry.first);
  EXPECT_THAT(read, UnorderedElementsAre("transformer.h.0.ln_1.weight"));
}

TEST(FrozenValues, ATeacherIsNeverInTrainingMode) {
  // Its dropout would change the values from pass to pass.
  for (const char* device : {"cpu", "cuda_emulated"}) {
    Student student(device, kPolicies[0]);
    student.store_model();
    student.models.stored.graph = [&](const DataInfo& data) {
      GraphSpec graph = student.model->build(data);
      for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
        if (graph.nodes[i].name != "transformer.h.0.ln_1") continue;
        graph.nodes.insert(graph.nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                           {"dropped", "dropout", {"transformer.h.0.ln_1"}, {{"p", 0.5}}});
        break;
      }
      return graph;
    };
    const auto executor =
        student.make(student.model->build(text_data()), true,
                     {student.frozen("t", {"dropped", "transformer.h.0.ln_1"})}, {"t", "t:1"});
    const auto set = student.weights(*executor);
    student.fill(*executor);
    executor->forward(*set, {.slot = 3, .training = true});
    const std::vector<double> values = student.value(*executor, "t");
    EXPECT_EQ(values, student.value(*executor, "t:1")) << device;
    executor->forward(*set, {.slot = 4, .training = true});
    EXPECT_EQ(student.value(*executor, "t"), values) << device;
  }
}

TEST(FrozenTables, RowsAreRead) {
  Bench bench("cpu", "reference", 1);
  const auto precision = bench.make_component<Precision>("fp32", "");
  const NodeSpec bag{"bag",
                     "embedding_bag",
                     {"ids"},
                     {{"rows", std::vector<std::int64_t>{5, 7}}, {"width", std::int64_t{4}}}};
  DataInfo data;
  data.fields = {{"ids", DType::kI32, {2, 3}}};
  ExecutorSpec spec;
  spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
  spec.precision = &*precision;
  spec.batch = kBatch;
  spec.training = false;
  FakeModels models;
  bench.host.models = &models;
  models.stored.graph = [&](const DataInfo&) { return GraphSpec{{bag}}; };

  spec.keep = {"bag"};
  Executor own(spec, {{bag}}, data);
  const auto set = make_parameter_set("live", own.parameters(), *bench.device, SetContents::kEverything);
  initialise(*set, 1, *bench.device);
  for (const ParameterInfo& info : own.parameters()) {
    RowTable& table = *set->table(info.index);
    std::vector<float> rows(table.rows() * table.width());
    std::vector<std::int64_t> ids;
    for (std::int64_t i = 0; i < table.rows(); ++i) ids.push_back(i);
    table.read(ids, {rows.data(), {table.rows(), table.width()}, DType::kF32, MemorySpace::kHost});
    models.stored.weights[info.spec.name] = {info.spec.shape, rows};
  }
  ASSERT_EQ(models.stored.weights.size(), 2U);

  spec.keep = {"teacher"};
  Executor frozen(spec,
                  {{{"teacher",
                     "frozen",
                     {"ids"},
                     {{"model", std::string("/tmp")}, {"outputs", std::vector<std::string>{"bag"}}}}}},
                  data);
  const auto none = make_parameter_set("none", frozen.parameters(), *bench.device, SetContents::kEverything);
  for (Executor* executor : {&own, &frozen})
    write(*bench.device, executor->inputs()[0], integers(kBatch * 2 * 3, 5, "ids"));
  own.forward(*set, {.training = false});
  frozen.forward(*none, {.training = false});
  EXPECT_EQ(read(*bench.device, frozen.value("teacher")), read(*bench.device, own.value("bag")));
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(FrozenErrors, SayWhatIsExpected) {
  Student student("cpu", kPolicies[0]);
  student.store_model();
  const auto make = [&](const std::vector<std::string>& outputs, const std::vector<std::string>& inputs) {
    return error_of([&] {
      student.make(student.model->build(text_data()), true, {student.frozen("t", outputs, inputs)}, {});
    });
  };
  EXPECT_THAT(make({"lm_heat"}, {"tokens"}),
              HasSubstr("layer 't': the model in /tmp has no value 'lm_heat'; it has transformer.wte, "));
  EXPECT_THAT(
      make({"lm_head"}, {"tokens"}),
      HasSubstr(
          "layer 't': its model reads targets for lm_head; inputs must name exactly the data fields that "
          "it needs: targets, tokens"));
  EXPECT_THAT(
      make({"logits"}, {"tokens", "targets"}),
      HasSubstr(
          "layer 't': its model computes logits without the data field 'targets'; remove it from inputs"));
  EXPECT_THAT(make({}, {"tokens"}), HasSubstr("option 'outputs' is empty"));
  EXPECT_THAT(make({"parameter:wte"}, {}),
              HasSubstr("layer 't': the model in /tmp has no parameter 'wte'; it has transformer."));
  EXPECT_THAT(make({"parameter:transformer.wte.weight"}, {"tokens"}), HasSubstr("remove it from inputs"));

  student.models.stored.weights.erase("transformer.wpe.weight");
  student.models.stored.weights["transformer.ln_f.bias"].first = Shape{4, 4};
  const std::string error = make({"logits"}, {"tokens"});
  EXPECT_THAT(error,
              HasSubstr("the weights in /tmp are not those of its graph; 2 of 30 parameters differ:\n"));
  EXPECT_THAT(error, HasSubstr("\n  'transformer.wpe.weight' is missing, expected f32 [12, 16]"));
  EXPECT_THAT(error, HasSubstr("\n  'transformer.ln_f.bias': expected f32 [16], found f32 [4, 4]"));

  student.bench.host.models = nullptr;
  EXPECT_THAT(make({"logits"}, {"tokens"}),
              HasSubstr("layer 't': this program offers no stored models (tenon.stored_models/1)"));
}

TEST(FrozenErrors, OnlyDataFieldsAreRead) {
  Student student("cpu", kPolicies[0]);
  student.store_model();
  GraphSpec graph = student.model->build(text_data());
  graph.nodes.insert(graph.nodes.begin() + 2, student.frozen("t", {"logits"}, {"transformer.wte"}));
  EXPECT_THAT(
      error_of([&] { student.make(graph, true, {}, {}); }),
      HasSubstr("layer 't': 'transformer.wte' is no data field; a frozen model reads data fields alone"));
}

}  // namespace
}  // namespace tenon::testing::frozen_test
