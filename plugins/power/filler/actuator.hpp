// Actuator `filler` (contract power/1): threads that work while the rank waits, and at no other time. They
// are of class SCHED_IDLE, so any other thread takes a core from them at once; on a device with memory of its
// own, one thread starts work of the lowest priority there instead. A phase wakes and stops them; nothing
// polls. A thread runs blocks of bounded length and looks between two of them, so filling ends within one
// block of CPU time.
//
// The training thread publishes one word, (changes << 3) | command; the threads wait on it. Measurements lie
// in counters with one writer each, and spans in a ring: a thread of this class must hold no lock that the
// training needs, since it may lose its core while it holds it.
#pragma once

#include "fma_rounds.hpp"

#include <tenon/options.hpp>
#include <tenon/phases.hpp>
#include <tenon/power.hpp>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

TENON_ABI_BEGIN
class BackgroundWork;
class SpanSink;
TENON_ABI_END

namespace tenon::filler {

/// Phases in which the training thread does not compute.
inline constexpr auto kFillable = option::choice<Phase>({{"communication", Phase::kCommunication},
                                                         {"wait", Phase::kWait},
                                                         {"idle", Phase::kIdle},
                                                         {"data", Phase::kData},
                                                         {"save", Phase::kSave}});

/// Counts of times in classes 1/16 of an octave wide. One thread adds, any thread reads; allocates nothing.
class TimeHistogram {
 public:
  void add(std::int64_t ns) noexcept;
  std::uint64_t count() const noexcept;
  std::int64_t largest_ns() const noexcept { return largest_.load(std::memory_order_relaxed); }
  std::uint64_t in_class(int index) const noexcept { return counts_[index].load(std::memory_order_relaxed); }

  static constexpr int kClasses = 16 * 40;
  /// End of a class.
  static std::int64_t end_ns(int index) noexcept;

 private:
  std::atomic<std::uint64_t> counts_[kClasses] = {};
  std::atomic<std::int64_t> largest_{0};
};

class Actuator final : public PowerActuator, public PhaseObserver {
 public:
  struct Settings {
    double block_s = 0;
    double ramp_s = 0;
    int threads = 0;           ///< 0: those of the rank
    std::uint32_t phases = 0;  ///< bit of each Phase that is filled
  };
  static constexpr int kInFlight = 2;  ///< blocks on a device at most
  /// What a block may last at least and at most.
  static constexpr double kLeastBlock = 1e-5, kMostBlock = 0.01;

  explicit Actuator(const Settings& settings) : settings_(settings) {}
  ~Actuator() override;

  /// Throws for settings that fill nothing, a block out of range, and several threads on a device.
  void prepare(const PowerPlace& place) override;
  /// Ends what an earlier start() began. Throws Error(kRun) where the system gives no threads of this class,
  /// or the device offers no BackgroundWork.
  void start(const PowerPlace& place) override;
  void stop() override;
  void on_phase(Phase phase, double at_s) override;
  void account(const std::function<void(std::string_view, double)>& sink) const override;

 private:
  enum class Command : std::uint32_t { kQuiet, kFill, kRampUp, kRampDown, kQuit };
  /// A change of the word: when it came. Read after `word` has been compared, before and after.
  struct Change {
    std::atomic<std::uint32_t> word{0};
    std::atomic<std::int64_t> ns{0};  ///< steady clock
    std::atomic<double> run_s{0};     ///< the run's clock; NaN: unknown
  };
  struct ChangeTime {
    std::int64_t ns = 0;
    double run_s = 0;
  };
  struct Ramp {
    std::int64_t begin_ns = 0, length_ns = 0;
    bool up = true;
    /// Time of work that is due `at_ns`: the integral of the duty.
    double due_ns(std::int64_t at_ns) const;
  };
  /// A fill interval of the first thread, on the run's clock.
  struct Interval {
    double begin_s = 0, event_s = 0, end_s = 0;
  };
  struct Worker {
    FmaState state;
    std::int64_t cpu_ns = 0;  ///< at the end of the last block; of this thread alone
    TimeHistogram blocks, drains, drains_cpu;
    std::atomic<std::uint64_t> block_count{0}, busy_ns{0}, used_ns{0}, drains_unmeasured{0};
    std::thread thread;
  };

  static Command command_of(std::uint32_t word) { return static_cast<Command>(word & 7u); }

  void open_device(Device& device);
  void begin_threads();
  /// Publishes the next word; the caller wakes.
  std::uint32_t change(Command command, double run_s);
  /// False where later changes have taken its place.
  bool time_of(std::uint32_t word, ChangeTime& time) const;
  void finish(bool ramps);
  double run_now() const;
  void hand_over_spans();

  void work(Worker& self);
  void obey(Worker& self);
  /// Returns the CPU time of the block. On a device: starts one and returns what open() measured, or waits a
  /// part of that and returns 0 while two are in flight.
  std::int64_t run_block(Worker& self);
  void fill(Worker& self, std::uint32_t word);
  void note_end(Worker& self, std::uint32_t word, std::int64_t begin_ns, std::int64_t block_ns);
  void follow(Worker& self, std::uint32_t word, const Ramp& ramp);

  Settings settings_;
  // Used by the training thread alone.
  bool running_ = false, filling_ = false;
  std::int64_t fill_began_ns_ = 0, wanted_ns_ = 0, fills_ = 0;
  PowerPlace place_;
  SpanSink* spans_ = nullptr;
  // Written before the threads begin, or before the word that makes them read it.
  BackgroundWork* device_work_ = nullptr;  ///< null: the threads work themselves
  double device_block_s_ = 0;
  FmaRounds rounds_{};
  std::int64_t rounds_in_block_ = 0;
  Ramp up_, down_;

  static constexpr std::uint32_t kChanges = 256;  ///< that are remembered, for threads that come late
  static constexpr std::uint32_t kIntervals = 256;
  alignas(64) std::atomic<std::uint32_t> word_{0};
  alignas(64) std::atomic<std::uint32_t> last_begun_{0};  ///< newest fill that a thread has begun
  std::atomic<std::uint32_t> fills_begun_{0};
  std::unique_ptr<Change[]> changes_;
  std::unique_ptr<Interval[]> intervals_;
  std::atomic<std::uint32_t> intervals_written_{0}, intervals_read_{0};
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<bool> failed_{false};  ///< the device refused a block
};

}  // namespace tenon::filler
