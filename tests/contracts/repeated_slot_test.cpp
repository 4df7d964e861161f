// The first gradients of a run are computed twice: differences are named, and without any the repetition
// leaves no trace, neither in the weights nor in counts of layers and sites.
#include "support.hpp"

#include <fstream>
#include <sstream>

namespace rehearsal::repeated_slot_test {
namespace {

using namespace tenon;

/// Passes its input on, and from the call `from` on shifts it by a little more every time.
class Drifting final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("by", "0"), option::integer("on_rank", "0")};
  static constexpr ComponentInfo kInfo{.id = "drifting", .summary = "moves", .options = kOptions};
  explicit Drifting(const Options& options) : by_(options.real("by")), rank_(options.integer("on_rank")) {}
  void infer(InferContext& context) override {
    context.output(context.input(0));
    moves_ = context.host().rank() == rank_;
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), y = context.output(0);
    const auto shift = static_cast<float>(moves_ ? by_ * calls_++ : 0);
    for (std::int64_t i = 0; i < x.elements(); ++i) y.as<float>()[i] = x.as<float>()[i] + shift;
  }
  void backward(BackwardContext& context) override {
    const GradientSink dx = context.input_gradient(0);
    const TensorView dy = context.output_gradient(0);
    if (!dx.view.empty()) std::copy_n(dy.as<float>(), dy.elements(), dx.view.as<float>());
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  const double by_;
  const std::int64_t rank_;
  int calls_ = 0;
  bool moves_ = false;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.drifting", .version = "1.0.0", .summary = "moves"},
                    Drifting)

struct Seen {
  std::string nondeterminism, weights, log;
  std::map<std::string, std::int64_t> operands;
};

Seen run(const Folder& folder, const std::string& name, int steps, double by, int replicas = 1,
         std::vector<std::string> more = {}) {
  std::vector<std::string> sets = {
      "run.steps=" + std::to_string(steps),
      "model.layer=[{name='fc', type='linear', features=16, inputs=['x']}, {name='y', type='drifting', "
      "inputs=['fc'], by=" +
          std::to_string(by) + ", on_rank=" + std::to_string(replicas - 1) +
          "}, {name='loss', type='quadratic', inputs=['y']}]"};
  sets.insert(sets.end(), more.begin(), more.end());
  const RunResult result = train(
      plugin, replicas > 1 ? std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n" : "", sets, folder, name);
  std::ostringstream log;
  log << std::ifstream(result.folder + "/log.rank" + std::to_string(replicas - 1) + ".txt").rdbuf();
  return {result.nondeterminism, result.weights_hash, log.str(), result.quantized_operands};
}

TEST(RepeatedSlot, NamesTheGradientThatDiffers) {
  const Folder folder;
  for (const int replicas : {1, 2}) {
    const Seen seen = run(folder, "drifts" + std::to_string(replicas), 20, 0.25, replicas);
    EXPECT_EQ(seen.nondeterminism, "the gradient of 'w' differed when slot 0 was computed twice on rank " +
                                       std::to_string(replicas - 1));
    EXPECT_NE(seen.log.find("'w' of slot 0 has other bits when it is computed twice"), std::string::npos);
  }
}

// A run that its budget ends after 19 slots, and one of 19 slots, which is too short for a repetition.
TEST(RepeatedSlot, LeavesNoTraceWhereTheBitsAreEqual) {
  const Folder folder;
  for (const int replicas : {1, 2}) {
    for (const int accumulate : {1, 2}) {
      const std::string name = std::to_string(replicas) + std::to_string(accumulate);
      std::vector<std::string> sets = {
          "run.accumulate=" + std::to_string(accumulate), "precision.type=bf16",
          "model.layer=[{name='fc', type='linear', features=16, inputs=['x']}, {name='loss', type='mse', "
          "inputs=['fc', 'x']}]"};
      const Seen plain = run(folder, name + "plain", 19, 0, replicas, sets);
      EXPECT_EQ(plain.nondeterminism,
                "not checked: the run has fewer than 20 slots, one of which would be computed twice");
      sets.push_back("run.max_samples=" + std::to_string(19 * 2 * replicas * accumulate));
      const Seen repeated = run(folder, name, 20, 0, replicas, sets);
      EXPECT_EQ(repeated.nondeterminism, "");
      EXPECT_EQ(repeated.weights, plain.weights);
      EXPECT_FALSE(plain.operands.empty());
      EXPECT_EQ(repeated.operands, plain.operands);
    }
  }
}

}  // namespace
}  // namespace rehearsal::repeated_slot_test
