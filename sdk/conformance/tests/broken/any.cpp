// Components that each break one promise made for any kind. They are schedules because these are the
// smallest.
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace tenon;

/// A correct schedule.
class Plain : public Schedule {
 public:
  explicit Plain(const Options&) {}
  double rate(const SchedulePoint& point) const override { return point.base_lr; }
};

class Undocumented final : public Plain {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("factor", "1.0")};
  static constexpr ComponentInfo kInfo{
      .id = "undocumented", .summary = "an option without a text", .options = kOptions};
  using Plain::Plain;
};

int alive = 0;

class CrashesTheSecondTime final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "crashes_the_second_time",
                                       .summary = "a static that is not reset"};
  explicit CrashesTheSecondTime(const Options& options) : Plain(options) {
    static int made = 0;
    if (++made == 2) std::abort();
  }
};

class AllowsOneOnly final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "allows_one_only", .summary = "global state"};
  explicit AllowsOneOnly(const Options& options) : Plain(options) {
    if (++alive == 2) fail_plugin("there is one already");
  }
  ~AllowsOneOnly() override { --alive; }
};

class RefusesItsBound final : public Plain {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("period", "4").between(0, 8).doc_text("steps from one peak to the next")};
  static constexpr ComponentInfo kInfo{
      .id = "refuses_its_bound", .summary = "0 is allowed and fails", .options = kOptions};
  explicit RefusesItsBound(const Options& options) : Plain(options) {
    std::vector<int>(4).at(options.integer("period") == 0 ? 4 : 0) = 1;
  }
};

class ReadsTextTwice final : public Plain {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("shape", "\"flat\"").doc_text("of the curve")};
  static constexpr ComponentInfo kInfo{
      .id = "made_once_per_text", .summary = "cannot be made again", .options = kOptions};
  explicit ReadsTextTwice(const Options& options) : Plain(options) {
    static bool made = false;
    if (std::exchange(made, true)) fail_plugin("the table is taken");
  }
};

class NeedsAValue final : public Plain {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("shape", nullptr).mandatory().doc_text("of the curve")};
  static constexpr ComponentInfo kInfo{
      .id = "needs_a_value", .summary = "no default, no case", .options = kOptions};
  using Plain::Plain;
};

/// Not a number at the end.
class NotANumber final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "not_a_number", .summary = "a rate that ruins the run"};
  using Plain::Plain;
  double rate(const SchedulePoint& point) const override {
    return point.slot == 5 ? std::numeric_limits<double>::infinity() : point.base_lr;
  }
};

class Random final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "random", .summary = "draws from the machine"};
  using Plain::Plain;
  double rate(const SchedulePoint& point) const override {
    return point.base_lr * std::uniform_real_distribution<>(0.5, 1)(engine_);
  }

 private:
  mutable std::random_device engine_;
};

/// Counts its own calls in a field that no checkpoint saves.
class Remembers final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "remembers", .summary = "state that is not saved"};
  using Plain::Plain;
  double rate(const SchedulePoint& point) const override { return point.base_lr / ++calls_; }

 private:
  mutable int calls_ = 0;
};

class Allocates final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "allocates", .summary = "takes from the heap in every slot"};
  using Plain::Plain;
  double rate(const SchedulePoint& point) const override {
    table_ = std::vector<double>(static_cast<std::size_t>(point.steps) + 1, point.base_lr);
    return table_[point.slot];
  }

 private:
  mutable std::vector<double> table_;
};

class Exits final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "exits", .summary = "ends the program"};
  explicit Exits(const Options& options) : Plain(options) { std::exit(0); }
};

class ThrowsANumber final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "throws_a_number", .summary = "no std::exception"};
  explicit ThrowsANumber(const Options& options) : Plain(options) { throw 7; }
};

class SleepsForEver final : public Plain {
 public:
  static constexpr ComponentInfo kInfo{.id = "sleeps_for_ever", .summary = "waits without a deadline"};
  explicit SleepsForEver(const Options& options) : Plain(options) {
    while (true) std::this_thread::sleep_for(std::chrono::hours(1));
  }
};

/// Breaks nothing: it says what it refuses.
class HostOnly : public OptimizerBase {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1").doc_text("rate")};
  static constexpr ComponentInfo kInfo{
      .id = "host_only", .summary = "refuses what it cannot do", .options = kOptions};
  explicit HostOnly(const Options& options) : OptimizerBase(options) {}
  void step(const UpdateContext& context, const ParameterSlice& slice) override {
    if (slice.weights.space != MemorySpace::kHost)
      fail_config("host_only: the weights are not in host memory");
    if (slice.weights.dtype != DType::kF32) fail_config("host_only: the weights are not f32");
    const auto lr = static_cast<float>(context.lr), scale = static_cast<float>(context.gradient_scale);
    for (std::int64_t i = 0; i < slice.weights.elements(); ++i)
      slice.weights.as<float>()[i] -= lr * (scale * slice.gradients.as<float>()[i]);
  }
};

/// Gradient descent, which states an identity.
class Stating : public HostOnly, private ComponentIdentities {
 public:
  using HostOnly::HostOnly;
  void* query(std::string_view id) override {
    return id == ComponentIdentities::kId ? static_cast<ComponentIdentities*>(this) : nullptr;
  }
};

class StatesAMisspeltOption final : public Stating {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "states_a_misspelt_option", .summary = "an option that there is not", .options = kOptions};
  static constexpr Identity kIdentities[] = {
      {.why = "a rate of 0 changes nothing", .options = "rate = 0.0", .other = "type = 'sgd'\nlr = 0.0"}};
  using Stating::Stating;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

class StatesWhatIsFalse final : public Stating {
 public:
  static constexpr ComponentInfo kInfo{
      .id = "states_what_is_false", .summary = "runs that end elsewhere", .options = kOptions};
  static constexpr Identity kIdentities[] = {{.why = "twice the rate is the rate",
                                              .options = "lr = 0.2",
                                              .other = "type = 'sgd'\nlr = 0.1",
                                              .within = 1e-9}};
  using Stating::Stating;

 private:
  std::span<const Identity> identities() const override { return kIdentities; }
};

/// Answers every query with itself.
class SaysYes final : public Optimizer {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("lr", "0.1").doc_text("rate")};
  static constexpr ComponentInfo kInfo{.id = "says_yes", .summary = "offers everything", .options = kOptions};
  explicit SaysYes(const Options&) {}
  double base_lr() const override { return 0.1; }
  std::span<const StateSlot> slots() const override { return {}; }
  bool elementwise() const override { return true; }
  void step(const UpdateContext&, const ParameterSlice&) override {}
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return this; }
};

}  // namespace

extern "C" __attribute__((visibility("default"))) int another_symbol() {
  return alive;
}

TENON_PLUGIN(PluginInfo{.id = "broken.any", .version = "1.0.0", .summary = "wrong in general"}, Undocumented,
             CrashesTheSecondTime, AllowsOneOnly, RefusesItsBound, ReadsTextTwice, NeedsAValue, NotANumber,
             Random, Remembers, Allocates, Exits, ThrowsANumber, SleepsForEver, HostOnly,
             StatesAMisspeltOption, StatesWhatIsFalse, SaysYes)
