// Numbers of components of any kind come into metrics.jsonl and summary.json through one service of the host.
#include "support.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace rehearsal::metric_sink_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

/// Passes its input on; records the slot's number, and something that is no number where it is asked to.
class Counting final : public Layer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, ...]").of("activations"),
                                        port::output("y", "[batch, ...]").of("activations")};
  static constexpr OptionSpec kOptions[] = {option::boolean("nothing", "false")};
  static constexpr ComponentInfo kInfo{
      .id = "counting", .summary = "records", .options = kOptions, .ports = kPorts};
  Counting(const Options& options, Host& host) : host_(host), nothing_(options.boolean("nothing")) {}
  void infer(InferContext& context) override { context.output(context.input(0)); }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), y = context.output(0);
    std::copy_n(x.as<float>(), x.elements(), y.as<float>());
    if (!context.training()) return;
    record_metric(host_, "layer_slot", nothing_ ? std::nan("") : static_cast<double>(context.step()));
  }
  void backward(BackwardContext& context) override {
    const GradientSink dx = context.input_gradient(0);
    if (!dx.view.empty()) std::fill_n(dx.view.as<float>(), dx.view.elements(), 0.f);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  Host& host_;
  bool nothing_;
};

/// A constant rate that is recorded when it is asked for.
class Told final : public Schedule {
 public:
  static constexpr ComponentInfo kInfo{.id = "told", .summary = "records"};
  Told(const Options&, Host& host) : host_(host) {}
  double rate(const SchedulePoint& point) const override {
    record_metric(host_, "asked_slot", static_cast<double>(point.slot));
    return point.base_lr;
  }

 private:
  Host& host_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.metrics", .version = "1.0.0", .summary = "records"},
                    Counting, Told)

std::vector<std::string> graph(const std::string& more = "") {
  return {"run.steps=6", "run.log_every=3", "schedule.type=told",
          "model.layer=[{name='c', type='counting', inputs=['x']" + more +
              "}, {name='loss', type='quadratic', inputs=['c']}]"};
}

std::string file_of(const RunResult& result, const std::string& name) {
  std::ifstream in(result.folder + "/" + name);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(MetricSink, TakesNumbersOfAnyKind) {
  const Folder folder;
  const RunResult result =
      train(plugin, std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n", graph(), folder);
  const Distribution& slots = result.distributions.at("layer_slot");
  EXPECT_EQ(slots.count, 12u) << "two replicas";
  EXPECT_EQ(slots.mean, 2.5);
  EXPECT_GT(result.distributions.at("asked_slot").count, 0u);
  EXPECT_EQ(result.metrics.at("train/layer_slot"), 4) << "the mean of slots 3, 4, 5";
  EXPECT_THAT(file_of(result, "metrics.jsonl"), HasSubstr("\"name\": \"layer_slot\", \"value\": 1"));
  EXPECT_THAT(file_of(result, "summary.json"), HasSubstr("\"layer_slot\""));
}

TEST(MetricSink, RefusesWhatIsNoNumber) {
  const Folder folder;
  const RunResult result = try_train(plugin, "", graph(", nothing=true"), folder, "run", false);
  EXPECT_EQ(result.status, "failed");
  EXPECT_EQ(result.error,
            "plugin rehearsal.metrics (layer.counting, node 'c', forward, rank 0, step 0): record: "
            "'layer_slot' is nan");
  EXPECT_THAT(file_of(result, "log.rank0.txt"), HasSubstr("the run failed: plugin rehearsal.metrics"));
}

}  // namespace
}  // namespace rehearsal::metric_sink_test
