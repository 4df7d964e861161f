// Layer `endless` passes its input on, and in one pass of one slot of one rank it does not return, or only
// after a while.
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>

#include <atomic>
#include <chrono>
#include <cstring>
#include <string>

namespace {

using namespace tenon;

class Endless final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("pass", "'forward'"), option::integer("slot", "3"),
                                            option::integer("on_rank", "0"), option::real("seconds", "1e9")};
  static constexpr ComponentInfo kInfo{.id = "endless", .summary = "does not return", .options = kOptions};
  explicit Endless(const Options& options)
      : pass_(options.text("pass")),
        slot_(options.integer("slot")),
        rank_(options.integer("on_rank")),
        seconds_(options.real("seconds")) {}

  void infer(InferContext& context) override {
    context.output(context.input(0));
    here_ = context.host().rank() == rank_;
  }
  void forward(ForwardContext& context) override {
    spin(context.training() ? "forward" : "evaluation", context.step());
    copy(context.input(0), context.output(0));
  }
  void backward(BackwardContext& context) override {
    spin("backward", context.step());
    const GradientSink dx = context.input_gradient(0);
    if (dx.view.empty()) return;
    if (dx.accumulate) fail_plugin("layer.endless writes its gradient");
    copy(context.output_gradient(0), dx.view);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void copy(const TensorView& from, const TensorView& to) {
    std::memcpy(to.data, from.data, from.bytes());
  }
  /// Spins like a barrier whose other threads never come: in the processor, where no signal and no wait ends
  /// it.
  void spin(std::string_view pass, std::int64_t slot) const {
    if (!here_ || pass != pass_ || slot != slot_) return;
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds_);
    while (std::chrono::steady_clock::now() < end) std::atomic_signal_fence(std::memory_order_seq_cst);
  }

  const std::string pass_;
  const std::int64_t slot_, rank_;
  const double seconds_;
  bool here_ = false;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.endless", .version = "0.1.0", .summary = "a layer that does not return"},
             Endless);
