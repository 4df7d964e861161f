// Contract `power/1`: what draws, reads or smooths electrical power. A component takes roles, each of which
// is a whole contract with one caller and is asked for by id: PowerPolicy, which `tenon power` applies to a
// simulated load; PowerSource and PowerActuator, which a run's [power] names. A source or actuator that wants
// the rank's phases offers PhaseObserver (<tenon/phases.hpp>) through query() as well.
#pragma once

#include <tenon/state.hpp>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

class Device;
class Host;

/// The place of a policy: one worker, or all workers together. Options of policies are in shares of
/// rated_watts, so one setting serves both.
struct PowerSetup {
  double seconds_per_sample = 1e-3;
  double rated_watts = 1;  ///< of the load without mitigation: of a worker, or of the whole site
  int workers = 1;         ///< whose load is summed in a sample
};

/// The load during one interval.
struct PowerSample {
  double watts = 0;
  double activity = 0;  ///< of the workload itself, between 0 and 1: mean over the workers
  bool ended = false;   ///< the job is over; what a policy holds up may come down
};

/// A policy's answer: watts = load + burnt - withheld + stored, to rounding.
struct PowerOutput {
  double watts = 0;        ///< drawn from the next place on the way to the grid
  double burnt = 0;        ///< added and turned into heat
  double withheld = 0;     ///< of the load, not served: the worker is throttled
  double stored = 0;       ///< into a storage at its terminals; negative: out of it
  double charge_j = 0;     ///< in the storage after the interval
  double work = 1;         ///< share of the interval's work that was done; the rest comes later
  bool violation = false;  ///< a limit of the policy's hardware kept it from its aim
};

/// Role: changes a load, interval by interval. Pure in its inputs: options, setup and samples since start()
/// decide every bit; there is no clock and no random number. One thread.
class PowerPolicy {
 public:
  static constexpr const char* kId = "tenon.power.policy/1";
  virtual ~PowerPolicy();
  /// Whether the options leave every load as it is: step() then returns the sample's watts to the bit.
  virtual bool neutral() const = 0;
  /// Forgets all samples. Throws Error(kConfig) where the options cannot serve this place.
  virtual void start(const PowerSetup& setup) = 0;
  /// Allocates nothing. The first sample after start() is the state from which limits of change count.
  virtual PowerOutput step(const PowerSample& sample) = 0;
  /// All that step() reads of earlier samples. A policy that loads it after start() goes on to the same bits.
  virtual void state(StateVisitor& visitor) = 0;
  /// Counts of the policy beyond the sums of PowerOutput, for tables; names are valid during the call.
  virtual void account(const std::function<void(std::string_view, double)>& sink) const = 0;
};

enum class PowerOrigin : std::uint8_t { kMeasured, kModelled };
enum class PowerUnit : std::uint8_t {
  kWatts,
  kShare,  ///< of a resource, between 0 and 1: a proxy, which is never called power
};

/// A source that is open.
struct PowerSourceInfo {
  std::string sensor;  ///< for people: "RAPL package-0, package-1", "NVML instant power, GPU 0 (NVIDIA H100)"
  PowerOrigin origin = PowerOrigin::kMeasured;
  PowerUnit unit = PowerUnit::kWatts;
  double rated = 0;  ///< in the unit: what the hardware draws at most; 0: unknown
};

/// Role: reads power, or a proxy of it, while a run trains. Calls come from one thread, which is not the
/// training thread. A call that throws, or does not return within the run's patience, ends the source, not
/// the run.
class PowerSource {
 public:
  static constexpr const char* kId = "tenon.power.source/1";
  virtual ~PowerSource();
  /// Whether each rank reads a sensor of its own (its GPU); else rank 0 reads for all.
  virtual bool every_rank() const = 0;
  /// Looks for the sensor. Throws Error(kRun) with the reason where this machine has none: the run goes on
  /// without it. `rank`: on this machine.
  virtual PowerSourceInfo open(int rank) = 0;
  /// The value of now, in the unit; NaN: none since the last call. `now_s`: seconds of the run's clock.
  virtual double read(double now_s) = 0;
  /// Joules since open() by a counter of the hardware; NaN where there is none.
  virtual double joules() = 0;
};

/// Where an actuator works.
struct PowerPlace {
  int rank = 0;     ///< on this machine
  int threads = 1;  ///< of the rank
  Device* device = nullptr;
  Host* host = nullptr;
};

/// Role: draws power beside the training. It changes no clock, limit or profile of hardware, and no bit of
/// the run. Calls come from the training thread.
class PowerActuator {
 public:
  static constexpr const char* kId = "tenon.power.actuator/1";
  virtual ~PowerActuator();
  /// When a run is built, and when it is only checked: throws Error(kConfig) where the options cannot serve
  /// this place. Starts nothing.
  virtual void prepare(const PowerPlace& place) = 0;
  /// After prepare() for the same place, before the first slot. May start threads, and may ramp the load up
  /// before it returns.
  virtual void start(const PowerPlace& place) = 0;
  /// After the last slot, or when the run fails. May ramp down; nothing draws power after it.
  virtual void stop() = 0;
  /// Facts for people and tables; names are valid during the call. Any time after start().
  virtual void account(const std::function<void(std::string_view, double)>& sink) const = 0;
};

class Power {
 public:
  using Interface = Power;
  static constexpr const char* kKind = "power/1";
  virtual ~Power();
  /// A role of this component by its id, else null. At least one.
  virtual void* query(std::string_view interface_id) = 0;
};

/// Base of components that are a policy and nothing else.
class PowerPolicyBase : public Power, public PowerPolicy {
 public:
  ~PowerPolicyBase() override;
  void account(const std::function<void(std::string_view, double)>& sink) const override;
  void* query(std::string_view interface_id) override;
};

/// Base of components that are a source and nothing else: rank 0 reads for all, and no counter of joules.
class PowerSourceBase : public Power, public PowerSource {
 public:
  ~PowerSourceBase() override;
  bool every_rank() const override;
  double joules() override;
  void* query(std::string_view interface_id) override;
};

TENON_ABI_END
