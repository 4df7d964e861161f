// State smaller than the weights: a value per row, per column and per tensor beside one per weight. It is
// sharded as the weights are along what it keeps, saved under the shape that it has, and moved by strategies.
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <mutex>

namespace rehearsal::reduced_state_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

constexpr StateSlot kSlots[] = {
    {"moment"}, {"row", StateSlot::kRow}, {"column", StateSlot::kColumn}, {"whole", StateSlot::kTensor}};

struct Seen {
  std::mutex mutex;
  std::vector<std::string> shapes;  ///< of the matrix's weights and state, at each update
  std::vector<float> whole;         ///< the matrix's value per tensor, before each update

  void clear() {
    const std::lock_guard lock(mutex);
    shapes.clear();
    whole.clear();
  }
} seen;

/// Divides each gradient by the root of what its row, column and tensor have summed so far.
class Factored final : public OptimizerBase, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1"),
                                            option::boolean("elementwise", "false")};
  static constexpr ComponentInfo kInfo{.id = "factored", .summary = "sums per row", .options = kOptions};
  explicit Factored(const Options& options)
      : OptimizerBase(options), elementwise_(options.boolean("elementwise")) {}
  std::span<const StateSlot> slots() const override { return kSlots; }
  bool elementwise() const override { return elementwise_; }
  void bind(const OptimizerSetup& setup) override { setup_ = setup; }
  void* query(std::string_view id) override {
    return id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
  }

  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    const std::int64_t columns = slice.weights.shape.rank() == 2 ? slice.weights.shape[1] : 1;
    const std::int64_t rows = slice.weights.elements() / std::max<std::int64_t>(1, columns);
    note(slice);
    std::vector<float> by_row(rows), by_column(columns), whole(1);
    for (std::int64_t i = 0; i < slice.weights.elements(); ++i) {
      const float g = slice.gradients.as<float>()[i] * static_cast<float>(context.gradient_scale);
      by_row[i / columns] += g * g;
      by_column[i % columns] += g * g;
      whole[0] += g * g;
    }
    const ParameterSpec& spec = setup_.parameters[slice.parameter].spec;
    for (const DimSharding& sharding : spec.sharding) {  // one axis: the mesh is its ranks
      if (sharding.dim != 0) sum(by_row);
      if (sharding.dim != 1) sum(by_column);
      sum(whole);
    }
    for (std::int64_t r = 0; r < rows; ++r) slice.state[1].as<float>()[r] += by_row[r];
    if (slice.weights.shape.rank() == 2)
      for (std::int64_t c = 0; c < columns; ++c) slice.state[2].as<float>()[c] += by_column[c];
    slice.state[3].as<float>()[0] += whole[0];
    for (std::int64_t i = 0; i < slice.weights.elements(); ++i) {
      const float scale = std::sqrt(slice.state[1].as<float>()[i / columns] + slice.state[3].as<float>()[0]);
      float& moment = slice.state[0].as<float>()[i];
      moment = 0.5f * moment + slice.gradients.as<float>()[i] * static_cast<float>(context.gradient_scale);
      slice.weights.as<float>()[i] -= static_cast<float>(context.lr) * moment / (1 + scale);
    }
  }

 private:
  void sum(std::vector<float>& values) const {
    if (setup_.mesh == nullptr) return;
    setup_.mesh->all_reduce({values.data(), Shape{static_cast<std::int64_t>(values.size())}}, ReduceOp::kSum);
  }
  void note(const ParameterSlice& slice) const {
    if (slice.weights.shape.rank() != 2) return;
    const std::lock_guard lock(seen.mutex);
    std::string shapes = slice.weights.shape.text();
    for (const TensorView& state : slice.state) shapes += " " + state.shape.text();
    seen.shapes.push_back(shapes);
    seen.whole.push_back(slice.state[3].as<float>()[0]);
  }

  OptimizerSetup setup_;
  bool elementwise_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.factored", .version = "1.0.0", .summary = "factored"},
                    Factored)

using Sets = std::vector<std::string>;

/// 16 numbers, a matrix of 8 by 16 with a bias, and a distance. `axes`: of the matrix's rows.
Sets run_of(std::int64_t steps, const std::string& axes = "") {
  return {"run.steps=" + std::to_string(steps), "optimizer.type=factored",
          "model.layer=[{name='fc', type='linear', features=8, inputs=['x']" + axes +
              "}, {name='all', type='repartition', inputs=['fc']}, "
              "{name='loss', type='quadratic', inputs=['all']}]"};
}
constexpr const char* kSaved = "[recovery]\ntype = 'full'\nasync = false\nevery = 50\n";
constexpr const char* kMesh = "[parallel]\ngrid = [2]\n[transport]\ntype = 'thread'\n";
constexpr const char* kRows = ", axes=[0]";

TEST(ReducedState, HasItsShapeAndResumesToTheSameBits) {
  const Folder folder;
  seen.clear();
  const RunResult whole = train(plugin, kSaved, run_of(6), folder, "whole");
  EXPECT_THAT(seen.shapes, ::testing::Each("[8, 16] [8, 16] [8, 1] [1, 16] [1, 1]"));
  train(plugin, kSaved, run_of(3), folder, "parts");
  const RunResult resumed = train(plugin, kSaved, run_of(6), folder, "parts", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
  const auto files = make_posix_files();
  const CheckpointReader reader = CheckpointStore(*files, whole.folder + "/checkpoints", {}).open(6);
  for (const auto& [name, shape] : {std::pair{"moment/fc.weight", Shape{8, 16}},
                                    {"row/fc.weight", Shape{8, 1}},
                                    {"column/fc.weight", Shape{1, 16}},
                                    {"whole/fc.weight", Shape{1, 1}},
                                    {"column/fc.bias", Shape{1}}}) {
    const TensorSpec* found = reader.find("replica0/optimizer." + std::string(name));
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->shape, shape) << name;
  }
}

TEST(ReducedState, IsShardedAsTheWeightsAreAlongWhatItKeeps) {
  const Folder folder;
  const std::string saved = kSaved;
  const RunResult one = train(plugin, saved, run_of(6), folder, "one");
  seen.clear();
  const RunResult two = train(plugin, saved + kMesh, run_of(6, kRows), folder, "two");
  EXPECT_THAT(seen.shapes, ::testing::Each("[4, 16] [4, 16] [4, 1] [1, 16] [1, 1]"));
  EXPECT_NEAR(two.metrics.at("train/loss"), one.metrics.at("train/loss"), 1e-5);
  train(plugin, saved + kMesh, run_of(3, kRows), folder, "moved");
  seen.clear();
  const RunResult moved = train(plugin, saved, run_of(6), folder, "moved", true);
  EXPECT_GT(seen.whole.at(0), 0) << "the state of the mesh came along";
  EXPECT_NEAR(moved.metrics.at("train/loss"), one.metrics.at("train/loss"), 1e-5);
}

TEST(ReducedState, IsMovedByStrategies) {
  const Folder folder;
  seen.clear();
  train(plugin,
        std::string(kTwoReplicas) + "[sync]\ntype = 'local_sgd'\ninterval = 2\nlocal_state = 'reset'\n",
        run_of(4), folder);
  const auto zero = [](float value) { return value == 0; };
  EXPECT_EQ(seen.whole.size(), 8u);
  EXPECT_EQ(std::count_if(seen.whole.begin(), seen.whole.end(), zero), 4) << "slots 0 and 2 of two replicas";
}

TEST(ReducedState, IsRefusedOfAnElementwiseRule) {
  const Folder folder;
  Sets sets = run_of(2);
  sets.push_back("optimizer.elementwise=true");
  try {
    try_train(plugin, "", sets, folder, "run", false);
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("factored is elementwise, and its state 'row' has not the shape of the "
                          "weights; return false from elementwise()"));
    EXPECT_EQ(error.exit_status(), 3);
  }
}

}  // namespace
}  // namespace rehearsal::reduced_state_test
