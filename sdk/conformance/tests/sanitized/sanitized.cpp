// Built once with the thread and once with the address sanitizer, for a core built with neither: optimizers
// with errors that no result shows, a correct one, and a correct strategy that uses communicators, buffers
// and a background loop.
#include <tenon/host.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>
#include <tenon/sync.hpp>

#include <atomic>
#include <memory>
#include <vector>

namespace {

using namespace tenon;

constexpr OptionSpec kOptions[] = {option::real("lr", "0.05").at_least(0).doc_text("rate")};

class Descent : public Optimizer {
 public:
  explicit Descent(const Options& options) : lr_(options.real("lr")) {}
  double base_lr() const override { return lr_; }
  std::span<const StateSlot> slots() const override { return {}; }
  bool elementwise() const override { return true; }
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    if (slice.weights.dtype == DType::kF64) return descend<double>(context, slice);
    descend<float>(context, slice);
  }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  template <typename T>
  static void descend(const UpdateContext& context, const ParameterSlice& slice) {
    const auto rate = static_cast<T>(context.lr * context.gradient_scale);
    for (std::int64_t i = 0; i < slice.weights.elements(); ++i)
      slice.weights.as<T>()[i] -= rate * slice.gradients.as<T>()[i];
  }
  double lr_;
};

class Clean final : public Descent {
 public:
  static constexpr ComponentInfo kInfo{.id = "clean", .summary = "as it should be", .options = kOptions};
  using Descent::Descent;
};

long steps_of_all_ranks = 0;

class Races final : public Descent {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "races", .summary = "ranks share a counter", .options = kOptions};
  using Descent::Descent;
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    ++steps_of_all_ranks;
    Descent::step(context, slice);
  }
};

class Overflows final : public Descent {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "overflows", .summary = "writes past a buffer", .options = kOptions};
  using Descent::Descent;
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    const std::unique_ptr<volatile char[]> note(new volatile char[20]);
    note[20 + static_cast<std::ptrdiff_t>(context.count % 3)] = 1;  // malloc rounds up to 24
    Descent::step(context, slice);
  }
};

/// The mean over replicas; a background loop counts, under an atomic, how often it looked.
class Looks final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "looks", .summary = "a mean with a background loop"};
  Looks(const Options&, Host& host) : host_(host) {}
  ~Looks() override {
    actor_.reset();
    if (buffer_ != nullptr) replica().device().release(buffer_, 64);
  }
  void start(Replica& replica) override {
    SyncBase::start(replica);
    buffer_ = replica.device().allocate(64);
    maps_ = &replica.device().family<Elementwise>();
    group_ = replica.group(Purpose::kGradient);
    actor_ = host_.spawn("looks", [this](Actor& actor) {
      while (actor.checkpoint()) {
        ++looked_;
        actor.sleep(0.001);
      }
    });
  }
  GradientGroup gradient_group() const override { return GradientGroup::kAllReplicas; }
  void finish_gradients() override {
    if (group_ == nullptr) return;
    for (const Bucket& bucket : replica().buckets()) {
      group_->all_reduce(bucket.gradients, ReduceOp::kSum);
      maps_->scale(bucket.gradients, 1.0 / group_->size());
    }
  }

 private:
  Host& host_;
  std::unique_ptr<Actor> actor_;
  std::atomic<long> looked_{0};
  void* buffer_ = nullptr;
  Elementwise* maps_ = nullptr;
  Communicator* group_ = nullptr;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.sanitized", .version = "1.0.0", .summary = "for sanitizers"}, Clean,
             Races, Overflows, Looks)
