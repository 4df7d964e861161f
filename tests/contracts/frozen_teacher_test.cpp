// Rehearses distillation: a layer that runs a teacher, another graph with its own parameter set, and outputs
// its result as target. The teacher is not part of the student's parameters, so it is not updated, decayed,
// mixed, hashed or saved, and two users of one teacher share it.
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/executor.hpp>

#include <cmath>

namespace rehearsal::frozen_teacher_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 16, kHidden = 8, kBatch = 2;
std::vector<std::vector<float>> teacher_weights, targets;  // of each training slot

/// Output: the teacher's output for the input, [batch, 16]. No gradient enters it.
class Teacher final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "teacher", .summary = "targets from frozen weights"};
  explicit Teacher(const Options&) {}
  void infer(InferContext& context) override {
    auto* layers = static_cast<LayerFactory*>(context.host().query(LayerFactory::kId));
    ASSERT_NE(layers, nullptr);
    ExecutorSpec spec;
    spec.layers = layers;
    spec.device = &context.device();
    spec.host = &context.host();
    spec.precision = &precision_;
    spec.batch = context.input(0).shape[0];
    spec.training = false;
    spec.keep_values = true;
    DataInfo data;
    data.fields = {{"x", DType::kF32, Shape{kWidth}}};
    const auto linear = [](const char* name, const char* input, std::int64_t features) {
      return NodeSpec{name, "linear", {input}, {{"features", features}}};
    };
    const GraphSpec graph{
        {linear("hidden", "x", kHidden), {"act", "relu", {"hidden"}, {}}, linear("out", "act", kWidth)}};
    teacher_ = std::make_unique<Executor>(spec, graph, data);
    weights_ =
        make_parameter_set("teacher", teacher_->parameters(), context.device(), SetContents::kEverything);
    initialise(*weights_, 99, context.device());
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    std::copy_n(context.input(0).as<float>(), kBatch * kWidth, teacher_->inputs()[0].as<float>());
    teacher_->forward(*weights_, {.slot = context.step(), .training = false});
    std::copy_n(teacher_->value("out").as<float>(), kBatch * kWidth, context.output(0).as<float>());
    if (!context.training()) return;
    const auto all = weights_->arena(0).span<float>(), target = context.output(0).span<float>();
    teacher_weights.emplace_back(all.begin(), all.end());
    targets.emplace_back(target.begin(), target.end());
  }
  void backward(BackwardContext&) override { ADD_FAILURE() << "nothing of a teacher is trained"; }
  void* query(std::string_view) override { return nullptr; }

 private:
  PlainPrecision precision_;
  std::unique_ptr<Executor> teacher_;
  std::unique_ptr<ParameterSet> weights_;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{.id = "rehearsal.teacher", .version = "1.0.0", .summary = "distillation"},
                    Teacher)

TEST(FrozenTeacher, GivesTargetsAndStaysAsItWas) {
  const Folder folder;
  const std::string graph =
      "model.layer=[{name='t', type='teacher', inputs=['x']}, {name='loss', type='quadratic', inputs=['t']}]";
  const RunResult result = train(plugin, "[recovery]\ntype = 'full'\n",
                                 {graph, "optimizer={type='sgd', lr=0.1, weight_decay=0.5}"}, folder);
  ASSERT_EQ(teacher_weights.size(), 12U);
  for (const auto& weights : teacher_weights)
    EXPECT_EQ(weights, teacher_weights[0]) << "neither updated nor decayed";

  const auto files = make_posix_files();
  CheckpointReader reader = CheckpointStore(*files, result.folder + "/checkpoints", {}).open(12);
  ASSERT_EQ(reader.tensors().size(), 1U) << "the student's w, and nothing of the teacher";
  std::vector<float> w(kWidth);
  const TensorView view{w.data(), Shape{kWidth}};
  reader.read("replica0/model/w", view);
  StateHasher hasher;
  hasher.add("w", view);
  EXPECT_EQ(result.weights_hash, hasher.hex());

  double moved = 0;
  for (std::size_t j = 0; j < kWidth; ++j) {
    double expected = static_cast<float>(random_normal(random_key(1, "init:w"), 0, j));
    for (const auto& target : targets) {
      const double mean = (target[j] + target[kWidth + j]) / 2.0;
      moved += std::abs(mean);
      expected -= 0.1 * (expected - mean + 0.5 * expected);
    }
    EXPECT_NEAR(w[j], expected, 2e-6);
  }
  EXPECT_GT(moved, 0.1) << "a teacher of zeros would teach nothing";
}

}  // namespace
}  // namespace rehearsal::frozen_teacher_test
