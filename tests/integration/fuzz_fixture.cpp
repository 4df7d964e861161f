// Optimizer `faulty`: gradient descent with one planted bug, for tests of what finds bugs. f32 weights in
// host memory alone.
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <string>
#include <thread>

namespace {

using namespace tenon;

constexpr const char* kBugs[] = {"none", "weights", "state",  "unsaved", "crash",
                                 "hang", "late",    "stated", nullptr};
constexpr StateSlot kSlots[] = {{"mark"}};

class Faulty final : public OptimizerBase, public ComponentIdentities {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("lr", "1e-2").at_least(0).doc_text("learning rate"),
      option::text("bug", "'none'")
          .one_of(kBugs)
          .doc_text(
              "weights, state: differ between runs of a process; unsaved: a number is not in checkpoints; "
              "stated: states an identity that is none; crash, hang, late: at the third update a signal, a "
              "hang, or a refusal that check had not"),
  };
  static constexpr ComponentInfo kInfo{.id = "faulty",
                                       .summary = "gradient descent with a planted bug",
                                       .options = kOptions,
                                       .capabilities = TENON_CAP_HOST};

  explicit Faulty(const Options& options) : OptimizerBase(options), bug_(options.text("bug")) {
    static std::atomic<int> made = 0;
    serial_ = ++made;
  }

  std::span<const Identity> identities() const override {
    static constexpr Identity kTrue[] = {{.why = "without a bug it is gradient descent",
                                          .options = "lr = 0.01\nbug = \"none\"",
                                          .other = "type = \"sgd\"\nlr = 0.01",
                                          .within = 1e-5}};
    static constexpr Identity kFalse[] = {{.why = "any rate is as good as another",
                                           .options = "lr = 0.01\nbug = \"stated\"",
                                           .other = "type = \"sgd\"\nlr = 0.02"}};
    return bug_ == "stated" ? kFalse : kTrue;
  }
  void* query(std::string_view interface_id) override {
    return interface_id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }

  std::span<const StateSlot> slots() const override { return kSlots; }

  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    if (slice.weights.dtype != DType::kF32) fail_config("optimizer faulty: weights of f32 alone");
    ++updates_;
    if (context.count == 3) third_update();
    auto* const weights = static_cast<float*>(slice.weights.data);
    const auto* const gradients = static_cast<const float*>(slice.gradients.data);
    auto* const mark = static_cast<float*>(slice.state[0].data);
    double lr = context.lr * context.gradient_scale;
    if (bug_ == "weights") lr *= 1 + 1e-3 * serial_;
    if (bug_ == "unsaved") lr *= 1 + 1e-3 * updates_;
    for (std::int64_t i = 0; i < slice.weights.elements(); ++i) {
      weights[i] -= static_cast<float>(lr) * gradients[i];
      mark[i] = bug_ == "state" ? static_cast<float>(serial_) : 1.0F;
    }
  }

 private:
  void third_update() const {
    if (bug_ == "crash") std::raise(SIGSEGV);
    if (bug_ == "late") fail_config("optimizer faulty: refused late");
    while (bug_ == "hang") std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }

  const std::string bug_;
  int serial_ = 0, updates_ = 0;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.faulty", .version = "0.1.0", .summary = "an optimizer with planted bugs"},
             Faulty);
