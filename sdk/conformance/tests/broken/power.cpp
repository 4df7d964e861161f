// Power policies, sources and actuators that are wrong in one way each.
#include <tenon/phases.hpp>
#include <tenon/plugin.hpp>
#include <tenon/power.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace {

using namespace tenon;

/// Holds the power of the last sample, if that was higher, for one more.
class Base : public PowerPolicyBase {
 public:
  explicit Base(const Options&) {}
  bool neutral() const override { return false; }
  void start(const PowerSetup&) override { last_ = 0; }
  PowerOutput step(const PowerSample& sample) override {
    PowerOutput output;
    output.watts = std::max(last_, sample.watts);
    output.burnt = output.watts - sample.watts;
    last_ = sample.watts;
    return output;
  }
  void state(StateVisitor& visitor) override { visitor.real("last", last_); }

 protected:
  double last_ = 0;
};

class HasNoRole final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "has_no_role", .summary = "answers no id"};
  using Base::Base;
  void* query(std::string_view) override { return nullptr; }
};

class LosesEnergy final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "loses_energy", .summary = "does not report what it burns"};
  using Base::Base;
  PowerOutput step(const PowerSample& sample) override {
    PowerOutput output = Base::step(sample);
    output.burnt = 0;
    return output;
  }
};

class CallsItselfNeutral final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "calls_itself_neutral", .summary = "is not"};
  using Base::Base;
  bool neutral() const override { return true; }
};

class Remembers final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "remembers", .summary = "start() keeps the last sample"};
  using Base::Base;
  void start(const PowerSetup&) override {}
};

class ForgetsItsState final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_its_state", .summary = "state() visits nothing"};
  using Base::Base;
  void state(StateVisitor&) override {}
};

class Allocates final : public Base {
 public:
  static constexpr ComponentInfo kInfo{.id = "allocates", .summary = "asks the heap in step()"};
  using Base::Base;
  PowerOutput step(const PowerSample& sample) override {
    kept_ = std::make_unique<double>(sample.watts);
    return Base::step(sample);
  }

 private:
  std::unique_ptr<double> kept_;
};

/// A sensor that always reads half of what it can.
class Source : public PowerSourceBase {
 public:
  explicit Source(const Options&) {}
  PowerSourceInfo open(int) override { return {"a constant", PowerOrigin::kModelled, PowerUnit::kShare, 1}; }
  double read(double) override { return 0.5; }
};

class HasNoSensor final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "has_no_sensor", .summary = "names nothing"};
  using Source::Source;
  PowerSourceInfo open(int) override { return {}; }
};

class BlamesTheConfiguration final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "blames_the_configuration",
                                       .summary = "an absent sensor ends the run"};
  using Source::Source;
  PowerSourceInfo open(int) override { fail_config("there is no sensor"); }
};

class SharesAboveOne final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "shares_above_one", .summary = "its share is in percent"};
  using Source::Source;
  double read(double) override { return 50; }
};

class DividesByNoTime final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "divides_by_no_time", .summary = "its first value is infinite"};
  using Source::Source;
  double read(double now_s) override { return 0.5 / now_s; }
};

class CountsDown final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_down",
                                       .summary = "its counter does not go on after a wrap"};
  using Source::Source;
  double joules() override { return static_cast<double>(7 * ++calls_ % 11); }

 private:
  int calls_ = 0;
};

class Dawdles final : public Source {
 public:
  static constexpr ComponentInfo kInfo{.id = "dawdles", .summary = "reads for longer than a second"};
  using Source::Source;
  double read(double) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    return 0.5;
  }
};

/// Works from start() on until it is destroyed.
class WorksAfterStop final : public Power, public PowerActuator {
 public:
  static constexpr ComponentInfo kInfo{.id = "works_after_stop",
                                       .summary = "its thread goes on after stop()"};
  explicit WorksAfterStop(const Options&) {}
  ~WorksAfterStop() override {
    ended_ = true;
    if (thread_.joinable()) thread_.join();
  }
  void* query(std::string_view interface_id) override {
    return interface_id == PowerActuator::kId ? static_cast<PowerActuator*>(this) : nullptr;
  }
  void prepare(const PowerPlace&) override {}
  void start(const PowerPlace&) override {
    if (thread_.joinable()) return;
    thread_ = std::thread([this] {
      while (!ended_.load(std::memory_order_relaxed)) {
      }
    });
  }
  void stop() override {}
  void account(const std::function<void(std::string_view, double)>& sink) const override {
    sink("starts", 1);
  }

 private:
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

class CountsBackwards final : public Power, public PowerActuator, public PhaseObserver {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_backwards", .summary = "its account falls below zero"};
  explicit CountsBackwards(const Options&) {}
  void* query(std::string_view interface_id) override {
    if (interface_id == PowerActuator::kId) return static_cast<PowerActuator*>(this);
    return interface_id == PhaseObserver::kId ? static_cast<PhaseObserver*>(this) : nullptr;
  }
  void prepare(const PowerPlace&) override {}
  void start(const PowerPlace&) override {}
  void stop() override {}
  void on_phase(Phase, double) override { --phases_; }
  void account(const std::function<void(std::string_view, double)>& sink) const override {
    sink("phases", phases_);
  }

 private:
  double phases_ = 0;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.power",
                        .version = "1.0.0",
                        .summary = "wrong power policies, sources and actuators"},
             HasNoRole, LosesEnergy, CallsItselfNeutral, Remembers, ForgetsItsState, Allocates, HasNoSensor,
             BlamesTheConfiguration, SharesAboveOne, DividesByNoTime, CountsDown, Dawdles, WorksAfterStop,
             CountsBackwards)
