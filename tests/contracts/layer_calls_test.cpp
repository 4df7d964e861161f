// Layers and optimizers are called under the guard like every component: everything that they log or throw
// carries the names of plugin, component, node, rank and slot. Also, a run without a [sync] table may have
// several workers.
#include "support.hpp"

#include <tenon/host.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace rehearsal::layer_calls_test {
namespace {

using namespace tenon;

/// Passes its input on, until it fails as configured.
class Frail final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("how", "\"\""),
                                            option::text("where", "\"forward\"")};
  static constexpr ComponentInfo kInfo{.id = "frail", .summary = "fails", .options = kOptions};
  explicit Frail(const Options& options) : how_(options.text("how")), where_(options.text("where")) {}
  void infer(InferContext& context) override {
    context.output(context.input(0));
    context.host().log(LogLevel::kInfo, "the layer was here");
    if (where_ == "infer") fail();
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), y = context.output(0);
    std::copy_n(x.as<float>(), x.elements(), y.as<float>());
    if (where_ == "forward" && context.step() == 3) fail();
  }
  void backward(BackwardContext& context) override {
    if (where_ == "backward" && context.step() == 3) fail();
    const GradientSink dx = context.input_gradient(0);
    if (!dx.view.empty()) std::fill_n(dx.view.as<float>(), dx.view.elements(), 0.f);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  void fail() const {
    if (how_ == "number") throw 7;
    if (how_ == "out of range") throw std::out_of_range("index 9 of 4");
    if (how_ == "config") fail_config("node 'y': no such width");
  }
  std::string how_, where_;
};

/// Moves nothing, and throws in the function that its option names.
class FrailRule final : public OptimizerBase, public OptimizerBinding {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1"), option::text("where", nullptr)};
  static constexpr ComponentInfo kInfo{.id = "frail_rule", .summary = "fails", .options = kOptions};
  explicit FrailRule(const Options& options) : OptimizerBase(options), where_(options.text("where")) {}
  double base_lr() const override { return may("base_lr"), OptimizerBase::base_lr(); }
  std::span<const StateSlot> slots() const override { return may("slots"), OptimizerBase::slots(); }
  bool elementwise() const override { return may("elementwise"), true; }
  void bind(const OptimizerSetup&) override { may("bind"); }
  void step(const UpdateContext& context, const ParameterSlice&) override {
    if (context.count == 3) may("step");
  }
  void state(StateVisitor& visitor) override {
    may("state");
    OptimizerBase::state(visitor);
  }
  void* query(std::string_view id) override {
    may("query");
    return id == OptimizerBinding::kId ? static_cast<OptimizerBinding*>(this) : nullptr;
  }

 private:
  void may(std::string_view function) const {
    if (where_ == function) throw std::out_of_range("index 9 of 4");
  }
  std::string where_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.frail", .version = "1.0.0", .summary = "frail"},
                    Frail, FrailRule)

std::vector<std::string> graph(const std::string& how, const std::string& where) {
  return {
      "model.layer=[{name='fc', type='linear', features=16, inputs=['x']}, {name='y', type='frail', "
      "inputs=['fc'], how='" +
      how + "', where='" + where + "'}, {name='loss', type='quadratic', inputs=['y']}]"};
}

TEST(LayerCalls, FailuresAreNamed) {
  const Folder folder;
  const struct {
    const char *how, *where, *error;
  } cases[] = {
      {"out of range", "forward",
       "plugin rehearsal.frail (layer.frail, node 'y', forward, rank 0, step 3): index 9 of 4"},
      {"out of range", "backward",
       "plugin rehearsal.frail (layer.frail, node 'y', backward, rank 0, step 3): index 9 of 4"},
      {"number", "forward",
       "plugin rehearsal.frail (layer.frail, node 'y', forward, rank 0, step 3): threw an object that is not "
       "a std::exception"},
  };
  int run = 0;
  for (const auto& c : cases) {
    const RunResult result =
        try_train(plugin, "", graph(c.how, c.where), folder, std::to_string(run++), false);
    EXPECT_EQ(result.status, "failed");
    EXPECT_EQ(result.error, c.error);
    EXPECT_EQ(result.exit_status, 3);
  }
}

TEST(OptimizerCalls, FailuresAreNamed) {
  const Folder folder;
  for (const auto& [where, place] :
       {std::pair{"query", "rank 0"}, std::pair{"slots", "rank 0"}, std::pair{"elementwise", "rank 0"},
        std::pair{"bind", "rank 0"}, std::pair{"base_lr", "rank 0"}, std::pair{"state", "rank 0"},
        std::pair{"step", "rank 0, step 2"}}) {
    std::string error;
    int status = 0;
    try {
      const RunResult result =
          try_train(plugin, "", {"optimizer.type=frail_rule", "optimizer.where=" + std::string(where)},
                    folder, where, false);
      error = result.error;
      status = result.exit_status;
    } catch (const Error& refused) {
      error = refused.what();
      status = refused.exit_status();
    }
    EXPECT_THAT(error,
                testing::StartsWith("plugin rehearsal.frail (optimizer.frail_rule, " + std::string(place)));
    EXPECT_THAT(error, testing::EndsWith("): index 9 of 4")) << where;
    EXPECT_EQ(status, 3) << where;
  }
}

TEST(LayerCalls, RefusalsOfAShapeAreTheLayersOwnWords) {
  const Folder folder;
  const auto message = [&](const std::string& how) -> std::string {
    try {
      try_train(plugin, "", graph(how, "infer"), folder, "run", false);
    } catch (const Error& error) {
      return std::to_string(error.exit_status()) + " " + error.what();
    }
    return "no error";
  };
  EXPECT_THAT(message("config"), testing::StartsWith("2 --set model.layer="));
  EXPECT_THAT(message("config"), testing::EndsWith(": model node 'y': node 'y': no such width"));
  EXPECT_EQ(message("out of range"),
            "3 plugin rehearsal.frail (layer.frail, node 'y', rank 0): index 9 of 4");
}

TEST(LayerCalls, LogLinesAreTheLayers) {
  const Folder folder;
  const RunResult result = train(plugin, "", graph("", ""), folder);
  std::ifstream in(result.folder + "/log.rank0.txt");
  std::string line, found;
  while (std::getline(in, line)) {
    if (line.find("the layer was here") != std::string::npos) found = line;
  }
  EXPECT_NE(found.find("layer.frail, node 'y'"), std::string::npos) << found;
}

TEST(Workers, NeedNoSyncTable) {
  const Folder folder;
  train(plugin, "", {"parallel.workers=2"}, folder);
}

}  // namespace
}  // namespace rehearsal::layer_calls_test
