// Layer `spread`: makes the second half of the channels 2^22 times smaller. Later layers get a spread of
// magnitudes that one scale of E4M3 cannot hold. bf16 alone.
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>

#include <bit>
#include <cstdint>

namespace {

using namespace tenon;

float to_float(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

class Spread final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "spread",
                                       .summary = "makes the second half of the channels 2^22 times smaller"};
  explicit Spread(const Options&) {}

  void infer(InferContext& context) override {
    if (context.activations() != DType::kBF16) fail_config("layer.spread knows bf16 alone");
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override { scale(context.input(0), context.output(0)); }
  void backward(BackwardContext& context) override {
    const GradientSink dx = context.input_gradient(0);
    if (dx.view.empty()) return;
    if (dx.accumulate) fail_plugin("layer.spread writes its gradient");
    scale(context.output_gradient(0), dx.view);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void scale(TensorView from, TensorView to) {
    const std::int64_t columns = from.shape[from.shape.rank() - 1], elements = from.elements();
    for (std::int64_t i = 0; i < elements; ++i) {
      // A power of two: the upper half of the product's bits is exact, down to the least normal number.
      const float factor = i % columns < columns / 2 ? 1 : 0x1p-22F;
      const float value = to_float(from.as<std::uint16_t>()[i]) * factor;
      to.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
    }
  }
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.planted", .version = "0.1.0", .summary = "a heavy-tailed layer"}, Spread);
