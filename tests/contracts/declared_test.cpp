// Declarations of components are compared with the run before anything runs: inputs and outputs of layers,
// and memory that is the host's alone.
#include "support.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>

namespace rehearsal::declared_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

/// Makes what it does not declare.
class Liar final : public Layer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, width]").of("activations"),
                                        port::output("y", "[batch, time, width]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "liar", .summary = "makes what it does not declare", .ports = kPorts};
  explicit Liar(const Options&) {}
  void infer(InferContext& context) override { context.output(context.input(0)); }
  void forward(ForwardContext&) override {}
  void backward(BackwardContext&) override {}
  void* query(std::string_view) override { return nullptr; }
};

/// An optimizer that reads weights in host memory.
class OnHost final : public OptimizerBase {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1")};
  static constexpr ComponentInfo kInfo{
      .id = "on_host", .summary = "reads", .options = kOptions, .capabilities = TENON_CAP_HOST};
  explicit OnHost(const Options& options) : OptimizerBase(options) {}
  void step(const UpdateContext&, const ParameterSlice& slice) override { slice.weights.as<float>()[0] += 1; }
};

TENON_STATIC_PLUGIN(declaring,
                    PluginInfo{.id = "rehearsal.declared", .version = "1.0.0", .summary = "declares"}, Liar,
                    OnHost)

std::string refusal(const std::vector<std::string>& sets) {
  const Folder folder;
  try {
    try_train(declaring, "", sets, folder, "run", false);
  } catch (const Error& error) {
    return std::to_string(error.exit_status()) + " " + error.what();
  }
  return "no error";
}

TEST(Declared, InputsAndOutputsAreCompared) {
  const auto graph = [](const std::string& type, const std::string& inputs, const std::string& more = "") {
    return std::vector<std::string>{"model.layer=[{name='n', type='" + type + "'" + more + ", inputs=[" +
                                    inputs + "]}, {name='loss', type='quadratic', inputs=['n']}]"};
  };
  EXPECT_THAT(refusal(graph("liar", "'x', 'x'")), HasSubstr("layer 'n': expected 1 input (x), found 2"));
  EXPECT_THAT(refusal(graph("attention", "'x', 'x'", ", heads=1")),
              HasSubstr("layer 'n': expected 3 to 4 inputs (q, k, v, documents?), found 2"));
  EXPECT_THAT(
      refusal(graph("conv2d", "'x'", ", features=1, kernel=[1]")),
      HasSubstr(
          "layer 'n': expected input 'x' to be f32 [batch, channels, height, width], found f32 [2, 16]"));
  const std::string made = refusal(graph("liar", "'x'"));
  EXPECT_THAT(made, ::testing::StartsWith("3 "));
  EXPECT_THAT(made,
              HasSubstr("layer 'n': liar declares other outputs: expected output 'y' to be f32 [batch, time, "
                        "width], found f32 [2, 16]"));
}

TEST(Declared, HostMemoryRulesOutADeviceWithItsOwn) {
  EXPECT_THAT(
      refusal({"optimizer.type=on_host", "device.type=cuda_emulated"}),
      HasSubstr("optimizer.on_host works on tensors in host memory alone (TENON_CAP_HOST), and device "
                "'cuda_emulated' has memory of its own; set [device] type = \"cpu\""));
}

}  // namespace
}  // namespace rehearsal::declared_test
