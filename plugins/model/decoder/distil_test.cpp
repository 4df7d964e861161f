// [model.distil]: the graph that it writes, its losses and gradients by the executor with a stored teacher,
// the memory that it plans, and what it refuses.
#include "graph_lines.hpp"

#include <tenon/executor.hpp>
#include <tenon/sdk/outside_training.hpp>
#include <tenon/stored_model.hpp>
#include <tenon/testing/folders.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>

namespace tenon::testing::distil {
namespace {

using decoder::line_of;
using decoder::lines_of;
using decoder::text_data;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kTime = 8, kVocabulary = 13, kBatch = 3;
constexpr const char* kTeacher = "pattern = '*-*-*-'\nwidth = 16\nheads = 2\nhidden = 24\ninit_scale = 0.3\n";
constexpr const char* kStudent = "pattern = '*-*-'\nwidth = 8\nheads = 2\nhidden = 12\ninit_scale = 0.3\n";

/// A decoder with weights, as a stored model.
class StoredDecoder final : public StoredModel {
 public:
  struct Contents {
    Made<Model> model;
    ModelDescription description;
    std::map<std::string, std::pair<Shape, std::vector<float>>> weights;
    std::vector<StoredTensor> parameters;
  };
  StoredDecoder(Contents& contents, std::string folder) : contents_(contents), folder_(std::move(folder)) {}

  std::string_view folder() const override { return folder_; }
  std::int64_t step() const override { return 7; }
  std::string_view digest() const override { return "digest"; }
  const ModelDescription& description() const override { return contents_.description; }
  std::span<const StoredTensor> parameters() const override { return contents_.parameters; }
  std::span<const StoredTensor> optimizer_state() const override { return {}; }
  void read(std::string_view tensor, const Shape& offset, TensorView out) override {
    const auto& [shape, values] = contents_.weights.at(std::string(tensor));
    const std::int64_t first = offset[0] * (shape.elements() / shape[0]);
    std::copy_n(values.begin() + first, out.elements(), out.as<float>());
  }
  GraphSpec graph(const DataInfo& data) override { return contents_.model->build(data); }
  void* query(std::string_view id) override { return contents_.model->query(id); }
  GraphSpec edited(GraphSpec graph, const DataInfo&) override { return graph; }

 private:
  Contents& contents_;
  std::string folder_;
};

/// A program with one stored teacher, which every folder holds.
class Program final : public StoredModels {
 public:
  explicit Program(const std::string& teacher = kTeacher, const std::string& type = "decoder",
                   const char* policy = "fp32")
      : bench("cpu", "auto", 1), precision(bench.make_component<Precision>(policy, "")) {
    bench.host.models = this;
    contents.model = bench.make_component<Model>(type, teacher);
    contents.description.attributes = {{"vocabulary", kVocabulary}};
    store_weights();
  }

  std::unique_ptr<StoredModel> open(const std::string& folder, std::optional<std::int64_t>) override {
    return std::make_unique<StoredDecoder>(contents, folder);
  }
  std::unique_ptr<Executor> executor(const GraphSpec& graph, bool training,
                                     std::vector<std::string> keep = {}) {
    ExecutorSpec spec;
    spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
    spec.precision = &*precision;
    spec.batch = kBatch;
    spec.training = training;
    spec.keep = std::move(keep);
    return std::make_unique<Executor>(spec, graph, text_data(kTime, kVocabulary));
  }
  std::unique_ptr<ParameterSet> weights(Executor& made, std::uint64_t seed) {
    auto set = make_parameter_set("live", made.parameters(), *bench.device, SetContents::kEverything);
    initialise(*set, seed, *bench.device);
    return set;
  }
  /// The student's graph with the options.
  GraphSpec student(const std::string& distil, const std::string& options = kStudent,
                    const DataInfo& data = text_data(kTime, kVocabulary)) {
    const auto model = bench.make_component<Model>("decoder", options + distil);
    return model->build(data);
  }

  Bench bench;
  Made<Precision> precision;
  StoredDecoder::Contents contents;

 private:
  void store_weights() {
    const auto made = executor(contents.model->build(text_data(kTime, kVocabulary)), true);
    const auto set = weights(*made, 5);
    for (const ParameterInfo& info : made->parameters()) {
      const std::vector<double> values = read(*bench.device, set->tensor(info.index));
      contents.weights[info.spec.name] = {info.spec.shape, {values.begin(), values.end()}};
    }
    for (const auto& [name, tensor] : contents.weights)
      contents.parameters.push_back({name, DType::kF32, tensor.first});
  }
};

const std::string kPlain = "[distil]\nteacher = '/tmp'\n";

std::vector<std::string> last_lines(const GraphSpec& graph, std::size_t count) {
  const std::vector<std::string> lines = lines_of(graph);
  return {lines.end() - static_cast<std::ptrdiff_t>(count), lines.end()};
}

TEST(DistilGraph, FollowsTheTeachersDistribution) {
  Program program;
  EXPECT_THAT(last_lines(program.student(kPlain), 5),
              ElementsAre("model.norm rms_norm(model.layers.3.residual) eps=1e-05",
                          "teacher frozen(tokens) model=/tmp",
                          "lm_head distillation(model.norm, targets, teacher, teacher:1) vocabulary=13 "
                          "init_scale=0.3 chunk_rows=0 temperature=1 scale_by_square=true form=forward "
                          "metric=logit_loss",
                          "distil.tokens add_losses(lm_head:1) metric=lm_loss",
                          "distil.loss add_losses(lm_head) balance=none metric=loss"));
}

TEST(DistilGraph, JoinsLossesInTheirOrder) {
  Program program;
  const GraphSpec graph = program.student(
      kPlain +
      "losses = ['tokens', 'logits', 'hidden']\nbalance = 'equal'\ntemperature = 2\nform = 'top_k'\n"
      "top_k = 4\nhidden_loss = 'cosine'\nproject = true\nprecision = 'bf16'\nstep = 3\n");
  EXPECT_THAT(
      last_lines(graph, 9),
      ElementsAre("teacher frozen(tokens) model=/tmp step=3 precision={type = \"bf16\"}",
                  HasSubstr("temperature=2 scale_by_square=true form=top_k top_k=4"),
                  "distil.tokens add_losses(lm_head:1) metric=lm_loss",
                  "distil.hidden.0 hidden_match(model.layers.0.residual, teacher:1, targets) "
                  "loss=cosine project=true metric=hidden_loss.0",
                  HasSubstr("distil.hidden.1 hidden_match(model.layers.1.residual, teacher:2, targets)"),
                  HasSubstr("distil.hidden.2 hidden_match(model.layers.2.residual, teacher:3, targets)"),
                  HasSubstr("distil.hidden.3 hidden_match(model.layers.3.residual, teacher:4, targets)"),
                  "distil.hidden add_losses(distil.hidden.0, distil.hidden.1, distil.hidden.2, "
                  "distil.hidden.3) metric=hidden_loss",
                  "distil.loss add_losses(distil.tokens, lm_head, distil.hidden) balance=equal metric=loss"));
}

TEST(DistilGraph, PairsLayersOfOneKindAsDeepAsEachOther) {
  Program program;
  const auto teacher_outputs = [&](const std::string& options) {
    const GraphSpec graph = program.student(kPlain + "losses = ['hidden']\nproject = true\n" + options);
    for (const NodeSpec& node : graph.nodes)
      if (node.name == "teacher")
        for (const NamedOption& option : node.options)
          if (option.name == "outputs") return std::get<std::vector<std::string>>(option.value);
    return std::vector<std::string>{};
  };
  const auto state = [](int layer) { return "model.layers." + std::to_string(layer) + ".residual"; };
  // Two attention layers to the second and third of three, and so the FFNs.
  EXPECT_THAT(teacher_outputs(""), ElementsAre(state(2), state(3), state(4), state(5)));
  EXPECT_THAT(teacher_outputs("layers = ['same']\n"), ElementsAre(state(0), state(1), state(2), state(3)));
  EXPECT_THAT(teacher_outputs("layers = ['1:5', '3:5']\n"), ElementsAre(state(5)));
}

TEST(DistilGraph, SeveralTeachersShareTheHead) {
  Program program;
  const GraphSpec graph =
      program.student("[[distil]]\nteacher = '/tmp'\n[[distil]]\nteacher = '/var'\nlosses = ['logits']\n");
  EXPECT_THAT(line_of(graph, "teacher_1"), HasSubstr("model=/var"));
  EXPECT_THAT(line_of(graph, "lm_head_1"), HasSubstr("weight=lm_head.weight"));
  EXPECT_EQ(line_of(graph, "distil.total"), "add_losses(distil.loss, distil.loss_1) metric=loss");
}

TEST(DistilGraph, TheTeacherReadsWhatItNeedsOfPackedData) {
  Program program;
  const GraphSpec graph = program.student(kPlain, kStudent, text_data(kTime, kVocabulary, true));
  EXPECT_THAT(line_of(graph, "teacher"), HasSubstr("frozen(tokens, documents, positions)"));
}

TEST(DistilGraph, WhatGeneratesTextHasNoTeacher) {
  Program program;
  const auto with = program.bench.make_component<Model>("decoder", kStudent + kPlain);
  const auto without = program.bench.make_component<Model>("decoder", kStudent);
  const DataInfo data = text_data(kTime, kVocabulary);
  const auto graph_of = [&](Model& model) {
    return lines_of(static_cast<LanguageModel*>(model.query(LanguageModel::kId))->language_graph(data).graph);
  };
  EXPECT_EQ(graph_of(*with), graph_of(*without));
  program.bench.host.models = nullptr;
  EXPECT_EQ(graph_of(*with), graph_of(*without)) << "nor does it look for one";
}

/// log softmax of x head^T, one row at a time.
std::vector<double> log_probabilities(const std::vector<double>& x, const std::vector<double>& head,
                                      std::size_t row, std::size_t classes) {
  const std::size_t width = head.size() / classes;
  std::vector<double> logits(classes);
  double sum = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    for (std::size_t j = 0; j < width; ++j) logits[c] += x[row * width + j] * head[c * width + j];
    sum += std::exp(logits[c]);
  }
  for (double& logit : logits) logit -= std::log(sum);
  return logits;
}

TEST(DistilRun, N13_LossesAreThoseOfTheStoredTeacher) {
  Program program;
  const GraphSpec graph = program.student(kPlain + "losses = ['logits', 'tokens']\nweights = [1.0, 0.5]\n");
  const auto executor = program.executor(graph, true, {"model.norm", "teacher", "teacher:1"});
  const auto set = program.weights(*executor, 1);
  const auto ids = integers(kBatch * kTime, kVocabulary, "tokens");
  auto targets = integers(kBatch * kTime, kVocabulary, "targets");
  for (std::size_t i = 0; i < targets.size(); i += 4) targets[i] = -1;
  write(*program.bench.device, executor->inputs()[0], ids);
  write(*program.bench.device, executor->inputs()[1], targets);
  executor->forward(*set, {});
  std::map<std::string, double> means;
  for (const LossValue& loss : executor->losses()) means[std::string(loss.metric)] = loss.sum / loss.count;

  // The teacher by itself.
  const GraphSpec own = static_cast<LanguageModel*>(program.contents.model->query(LanguageModel::kId))
                            ->language_graph(text_data(kTime, kVocabulary))
                            .graph;
  const auto alone = program.executor(own, false, {"model.norm", "lm_head"});
  const auto stored = program.weights(*alone, 5);
  write(*program.bench.device, alone->inputs()[0], ids);
  alone->forward(*stored, {.training = false});
  const auto states = read(*program.bench.device, alone->value("model.norm"));
  EXPECT_EQ(read(*program.bench.device, executor->value("teacher")), states);

  const auto student = read(*program.bench.device, executor->value("model.norm")),
             head = read(*program.bench.device, executor->value("teacher:1"));
  std::vector<double> student_head;
  for (const ParameterInfo& info : executor->parameters())
    if (info.spec.name == "lm_head.weight")
      student_head = read(*program.bench.device, set->tensor(info.index));
  double kl = 0, ce = 0, count = 0;
  for (std::size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] < 0) continue;
    const auto p = log_probabilities(states, head, row, kVocabulary),
               q = log_probabilities(student, student_head, row, kVocabulary);
    for (std::size_t c = 0; c < p.size(); ++c) kl += std::exp(p[c]) * (p[c] - q[c]);
    ce -= q[static_cast<std::size_t>(targets[row])];
    ++count;
  }
  EXPECT_GT(kl / count, 0.05);
  EXPECT_NEAR(means.at("logit_loss"), kl / count, 1e-5 * kl / count);
  EXPECT_NEAR(means.at("lm_loss"), ce / count, 1e-5 * ce / count);
  EXPECT_NEAR(means.at("loss"), (kl + 0.5 * ce) / count, 1e-5 * (kl + ce) / count);
}

TEST(DistilRun, N13_AStudentOfItselfLearnsNothing) {
  Program program;
  const GraphSpec graph = program.student(
      kPlain + "losses = ['logits', 'hidden']\nlayers = ['same']\ntemperature = 2\n", kTeacher);
  const auto executor = program.executor(graph, true);
  const auto set = program.weights(*executor, 5);
  const auto sum =
      make_parameter_set("gradients", executor->parameters(), *program.bench.device, SetContents::kGradients);
  write(*program.bench.device, executor->inputs()[0], integers(kBatch * kTime, kVocabulary, "tokens"));
  write(*program.bench.device, executor->inputs()[1], integers(kBatch * kTime, kVocabulary, "targets"));
  executor->forward(*set, {});
  for (const LossValue& loss : executor->losses()) {
    if (loss.metric == "lm_loss") continue;
    EXPECT_NEAR(loss.sum, 0, 1e-5) << loss.metric;
  }
  executor->backward(*set, *sum, 1, true, {});
  for (const double value : read(*program.bench.device, sum->arena(0))) EXPECT_NEAR(value, 0, 1e-4);
}

TEST(DistilRun, HoldsWeightsOfTheTeacherOnceAndOneChunkOfBothLogits) {
  constexpr std::int64_t chunk = 4;
  Program program;
  const auto bytes = [&](const std::string& options, std::vector<PlanLine>* lines) {
    const auto executor =
        program.executor(program.student(options + "\n", kStudent + std::string("chunk_rows = 4\n")), true);
    if (lines != nullptr) *lines = executor->memory_plan();
    return executor->allocated_bytes();
  };
  std::vector<PlanLine> lines;
  const std::int64_t plain = bytes("", nullptr), with = bytes(kPlain, &lines);
  std::int64_t weights = 0, teacher = 0, stored = 0;
  for (const PlanLine& line : lines) {
    if (line.what.starts_with("teacher: weights of"))
      weights = static_cast<std::int64_t>(line.bytes);
    else if (line.what.starts_with("teacher: "))
      teacher += static_cast<std::int64_t>(line.bytes);
  }
  for (const auto& entry : program.contents.weights)
    stored += static_cast<std::int64_t>(entry.second.second.size() * sizeof(float));
  EXPECT_EQ(weights, stored);
  // Beside what the teacher holds: a chunk of its logits, and statistics of rows.
  constexpr std::int64_t logits = chunk * kVocabulary * 4, rows = kBatch * kTime * 4;
  EXPECT_LE(with - plain - weights - teacher, logits + 16 * rows + 1024);
}

std::string refusal(Program& program, const std::string& distil, const std::string& options = kStudent) {
  try {
    program.student(distil, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << distil;
  return "";
}

TEST(DistilErrors, SayWhatDoesNotFit) {
  Program program;
  EXPECT_THAT(refusal(program, kPlain + "losses = ['tokens']\n"),
              HasSubstr("model decoder: [model.distil] 'losses' has nothing of the teacher"));
  EXPECT_THAT(refusal(program, kPlain + "losses = []\n"), HasSubstr("'losses' is empty"));
  EXPECT_THAT(refusal(program, kPlain + "losses = ['logits', 'logits']\n"), HasSubstr("names one twice"));
  EXPECT_THAT(refusal(program, kPlain + "weights = [1.0, 2.0]\n"),
              HasSubstr("'weights' has 2 numbers for 1 losses (logits)"));
  const std::string hidden = kPlain + "losses = ['hidden']\nlayers = ";
  EXPECT_THAT(
      refusal(program, hidden + "['1:2']\n"),
      HasSubstr("'layers' pairs layer 1 of the student (ffn) with layer 2 of the teacher (attention); "
                "the two must be of one kind"));
  EXPECT_THAT(refusal(program, hidden + "['0:6']\n"),
              HasSubstr("names layer 6 of the teacher in /tmp, which has 0, 1, 2, 3, 4, 5"));
  EXPECT_THAT(refusal(program, hidden + "['4:0']\n"),
              HasSubstr("names layer 4 of the student, which has 0, 1"));
  EXPECT_THAT(refusal(program, hidden + "['0-0']\n"), HasSubstr("'layers' has \"0-0\"; expected pairs"));
  EXPECT_THAT(refusal(program, kPlain, kStudent + std::string("vocabulary_multiple = 16\n")),
              HasSubstr("the teacher's head in /tmp has 13 rows, and the student's 16"));
  EXPECT_THAT(refusal(program, kPlain, kStudent + std::string("objective = 'policy'\n")),
              HasSubstr("objective = \"policy\" has no teacher"));
  const std::string folder = ::testing::TempDir() + "distil_of_a_tokenizer";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/manifest.json")
      << "{\"data\": [{\"path\": \"tokenizer\", \"sha256\": \"0123456789abcdef01\"}]}";
  DataInfo data = text_data(kTime, kVocabulary);
  data.sources = {{"text", "77"}, {"tokenizer", "fedcba9876543210fe"}};
  const auto of_tokenizer = [&] {
    return program.student("[distil]\nteacher = '" + folder + "'\n", kStudent, data);
  };
  EXPECT_THAT(
      error_of(of_tokenizer),
      HasSubstr("was trained with the tokenizer 0123456789abcdef, and the data have fedcba9876543210"));
  data.sources[1].sha256 = "0123456789abcdef01";
  EXPECT_EQ(error_of(of_tokenizer), "no error");
  std::filesystem::remove_all(folder);
  program.contents.description.attributes = {{"vocabulary", 14}};
  EXPECT_THAT(refusal(program, kPlain),
              HasSubstr("the teacher in /tmp is for a vocabulary of 14 tokens, and the data have 13"));
  program.bench.host.models = nullptr;
  EXPECT_THAT(refusal(program, kPlain), HasSubstr("needs stored models"));
}

TEST(DistilErrors, OtherWidthsNeedAProjection) {
  Program program;
  const GraphSpec graph = program.student(kPlain + "losses = ['hidden']\n");
  try {
    program.executor(graph, true);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("the student's states have 8 columns and the teacher's 16; set project "
                          "= true for a trained projection"));
  }
}

}  // namespace
}  // namespace tenon::testing::distil
