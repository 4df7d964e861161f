// The filler of runs: its rounds, when its threads work and when they do not, its class, ramps, account and
// spans. A machine that is busy gives threads of this class little time, so tests wait for work and bound
// what must not be.
#include "actuator.hpp"

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/sdk/ops/background.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

namespace tenon::filler {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::uint32_t bit_of(Phase phase) {
  return 1u << static_cast<unsigned>(phase);
}
constexpr std::uint32_t kWaits = bit_of(Phase::kCommunication) | bit_of(Phase::kWait);
const Actuator::Settings kUsual{2e-4, 0, 0, kWaits};

PowerPlace place_of(int threads, Host* host = nullptr) {
  PowerPlace place;
  place.threads = threads;
  place.host = host;
  return place;
}

std::map<std::string, double> account_of(const Actuator& filler) {
  std::map<std::string, double> facts;
  filler.account([&](std::string_view name, double value) { facts.emplace(name, value); });
  return facts;
}

double fact(const Actuator& filler, const std::string& name) {
  const auto facts = account_of(filler);
  const auto found = facts.find(name);
  EXPECT_NE(found, facts.end()) << name;
  return found == facts.end() ? std::nan("") : found->second;
}

/// On a busy machine a thread of this class may wait for seconds.
bool becomes_true(const std::function<bool()>& condition) {
  const auto end = steady_clock::now() + std::chrono::seconds(30);
  while (!condition())
    if (steady_clock::now() > end)
      return false;
    else
      std::this_thread::sleep_for(milliseconds(1));
  return true;
}

bool works(const Actuator& filler) {
  const double before = fact(filler, "blocks");
  return becomes_true([&] { return fact(filler, "blocks") > before; });
}

/// Whether blocks end. Blocks that were in flight get half a second for it.
bool rests(const Actuator& filler) {
  std::this_thread::sleep_for(milliseconds(500));
  const double before = fact(filler, "blocks");
  std::this_thread::sleep_for(milliseconds(100));
  return fact(filler, "blocks") == before;
}

/// CPU time of the process, or of the calling thread.
double cpu_s(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Thread ids of this process that have this name.
std::vector<int> threads_named(const std::string& name) {
  std::vector<int> found;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string text;
    std::ifstream comm(task.path() / "comm");
    if (std::getline(comm, text) && text == name) found.push_back(std::stoi(task.path().filename()));
  }
  return found;
}

/// Whether there is no such thread: one that was joined may still be listed for a moment.
bool none_named(const std::string& name) {
  for (int tries = 0; tries < 1000 && !threads_named(name).empty(); ++tries)
    std::this_thread::sleep_for(milliseconds(5));
  return threads_named(name).empty();
}

TEST(FmaRounds, EveryFormDoesItsRounds) {
  constexpr std::int64_t kRounds = 500;
  for (const FmaRounds& form : fma_rounds()) {
    FmaState state;
    for (int i = 0; i < FmaState::kLanes; ++i) state.lanes[i] = static_cast<float>(i);
    form.run(state, kRounds);
    const double kept = std::pow(0.999, kRounds);
    for (int i = 0; i < FmaState::kLanes; ++i)
      EXPECT_NEAR(state.lanes[i], i * kept + (1 - kept), 1e-4 * (i + 1)) << form.name << " lane " << i;
  }
  EXPECT_EQ(fma_rounds().back().name, "plain");
}

TEST(TimeHistogram, ClassesHoldTheirTimesAndAreNarrow) {
  for (const std::int64_t ns : {0, 1, 15, 16, 17, 31, 32, 33, 200000, 201000, 123456789}) {
    TimeHistogram one;
    one.add(ns);
    EXPECT_EQ(one.count(), 1u);
    EXPECT_EQ(one.largest_ns(), ns);
    int index = 0;
    while (one.in_class(index) == 0) ++index;
    EXPECT_LE(ns, TimeHistogram::end_ns(index));
    EXPECT_TRUE(index == 0 || ns > TimeHistogram::end_ns(index - 1)) << ns;
    EXPECT_LE(static_cast<double>(TimeHistogram::end_ns(index)), static_cast<double>(ns) * (1 + 1.0 / 16));
  }
  TimeHistogram far;
  far.add(std::int64_t{1} << 62);
  EXPECT_EQ(far.in_class(TimeHistogram::kClasses - 1), 1u);
}

TEST(FillerActuator, BeginsAndEndsWithThePhase) {
  Actuator filler(kUsual);
  filler.start(place_of(2));
  EXPECT_EQ(fact(filler, "threads"), 2);
  for (int turn = 0; turn < 3; ++turn) {
    filler.on_phase(Phase::kCommunication, turn);
    EXPECT_TRUE(works(filler));
    filler.on_phase(Phase::kWait, turn + 0.3);  // filled as well: goes on
    EXPECT_TRUE(works(filler));
    filler.on_phase(Phase::kForward, turn + 0.5);
    const double at_end = fact(filler, "blocks");
    ASSERT_TRUE(rests(filler)) << "turn " << turn;
    EXPECT_LE(fact(filler, "blocks"), at_end + 2) << "each thread may end one block, and begin none";
  }
  EXPECT_EQ(fact(filler, "fills"), 3);
  EXPECT_EQ(fact(filler, "started_late"), 0);
}

TEST(FillerActuator, LeavesComputingAlone) {
  Actuator filler(kUsual);
  filler.start(place_of(2));
  const double cpu = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
  for (const Phase phase :
       {Phase::kBegin, Phase::kIdle, Phase::kForward, Phase::kBackward, Phase::kOptimizer, Phase::kCompute,
        Phase::kData, Phase::kEvaluate, Phase::kSave, Phase::kGenerate, Phase::kEnd}) {
    filler.on_phase(phase, 0);
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(fact(filler, "blocks"), 0);
  EXPECT_EQ(fact(filler, "fills"), 0);
  EXPECT_LT(cpu_s(CLOCK_PROCESS_CPUTIME_ID) - cpu, 0.02);
}

TEST(FillerActuator, ThreadsAreOfTheIdleClass) {
  Actuator filler(kUsual);
  filler.start(place_of(3));
  const std::vector<int> threads = threads_named("tenon-filler");
  EXPECT_EQ(threads.size(), 3u);
  for (const int thread : threads) EXPECT_EQ(::sched_getscheduler(thread), SCHED_IDLE);
  EXPECT_EQ(::sched_getscheduler(0), SCHED_OTHER) << "that of the training thread";
  filler.stop();
  EXPECT_TRUE(none_named("tenon-filler"));
  Actuator::Settings one = kUsual;
  one.threads = 1;
  Actuator other(one);
  other.start(place_of(3));
  EXPECT_EQ(threads_named("tenon-filler").size(), 1u);
}

/// 200 phases that are filled, of 5 ms each.
std::map<std::string, double> account_of_200_phases() {
  Actuator filler(kUsual);
  filler.start(place_of(2));
  for (int turn = 0; turn < 200; ++turn) {
    filler.on_phase(Phase::kWait, 0.01 * turn);
    std::this_thread::sleep_for(milliseconds(5));
    filler.on_phase(Phase::kCompute, 0.01 * turn + 0.005);
    std::this_thread::sleep_for(milliseconds(5));
  }
  filler.stop();
  return account_of(filler);
}

/// How much longer than the usual one of equal blocks the slowest in a hundred takes, in CPU time, of two
/// threads that do nothing else: 1 where the machine is left alone.
double spread_of_blocks() {
  constexpr std::int64_t kRounds = 20000;
  constexpr std::size_t kBlocks = 1000;
  double spreads[2] = {};
  std::vector<std::thread> threads;
  for (double& spread : spreads)
    threads.emplace_back([&spread] {
      FmaState state;
      std::vector<double> taken;
      for (std::size_t block = 0; block < kBlocks; ++block) {
        const double begin = cpu_s(CLOCK_THREAD_CPUTIME_ID);
        fma_rounds().front().run(state, kRounds);
        taken.push_back(cpu_s(CLOCK_THREAD_CPUTIME_ID) - begin);
      }
      std::sort(taken.begin(), taken.end());
      spread = taken[kBlocks * 99 / 100] / taken[kBlocks / 2];
    });
  for (std::thread& thread : threads) thread.join();
  return std::max(spreads[0], spreads[1]);
}

TEST(FillerActuator, BlocksAndDrainsAreAsLongAsTheySay) {
  // A neighbour that slows a core down, or a host that takes it away, lengthens CPU time as well: one quiet
  // try of five is enough, and where none is, blocks are as even as plain ones after the last.
  std::map<std::string, double> facts;
  double spread = 1;
  for (int tries = 0; tries < 5; ++tries) {
    facts = account_of_200_phases();
    if (std::max(facts["block_p99_s"], facts["drain_cpu_p99_s"]) <= 1.5 * kUsual.block_s) break;
    spread = spread_of_blocks();
  }
  const double most = 1.5 * kUsual.block_s * (spread < 1.2 ? 1 : spread);
  facts["spread"] = spread;
  for (const auto& [name, value] : facts) RecordProperty(name, std::to_string(value));
  EXPECT_EQ(facts.at("fills"), 200);
  EXPECT_LT(facts.at("started_late"), 200);
  EXPECT_GT(facts.at("blocks"), 0);
  EXPECT_GT(facts.at("block_p50_s"), 0.6 * kUsual.block_s);
  EXPECT_LT(facts.at("block_p50_s"), 1.5 * kUsual.block_s);
  EXPECT_LE(facts.at("block_p99_s"), most);
  EXPECT_GT(facts.at("drain_cpu_p99_s"), 0);
  EXPECT_LE(facts.at("drain_cpu_p99_s"), most) << "within one block of CPU time";
  EXPECT_GE(facts.at("drain_max_s"), facts.at("drain_p99_s"));
  EXPECT_GE(facts.at("phases_s"), 1.0);
  EXPECT_GT(facts.at("cpu_s"), facts.at("blocks") * 0.5 * kUsual.block_s);
  EXPECT_LE(facts.at("cpu_s"), 2 * (facts.at("busy_s") + 0.05));
}

TEST(FillerActuator, PhasesMayBeShorterThanABlock) {
  Actuator::Settings long_blocks = kUsual;
  long_blocks.block_s = 0.005;
  Actuator filler(long_blocks);
  filler.start(place_of(2));
  for (int turn = 0; turn < 300; ++turn) {
    filler.on_phase(Phase::kWait, turn);
    std::this_thread::sleep_for(std::chrono::microseconds(50));
    filler.on_phase(Phase::kCompute, turn);
    std::this_thread::sleep_for(milliseconds(1));
  }
  EXPECT_TRUE(rests(filler));
  const auto facts = account_of(filler);
  EXPECT_EQ(facts.at("fills"), 300);
  EXPECT_GT(facts.at("started_late"), 0) << "a thread is in an earlier block while phases pass";
  EXPECT_LT(facts.at("started_late"), 300);
  EXPECT_LE(facts.at("blocks"), 2 * 300) << "one block a phase for each thread at most";
}

TEST(FillerActuator, AStormOfPhasesLeavesTheRightState) {
  Actuator filler(kUsual);
  filler.start(place_of(2));
  for (int i = 0; i < 50000; ++i) {
    filler.on_phase(Phase::kCommunication, i);
    filler.on_phase(Phase::kBackward, i);
  }
  EXPECT_TRUE(rests(filler)) << "it ended with a phase of computing";
  EXPECT_EQ(fact(filler, "fills"), 50000);
  for (int i = 0; i < 50000; ++i) {
    filler.on_phase(Phase::kBackward, i);
    filler.on_phase(Phase::kCommunication, i);
  }
  EXPECT_TRUE(works(filler)) << "it ended with a phase that is filled";
  EXPECT_EQ(fact(filler, "fills"), 100000);
  filler.stop();
  const auto facts = account_of(filler);
  EXPECT_LE(facts.at("started_late"), 99999);
}

TEST(FillerActuator, StopsInTheMiddleOfAFillOnABusyMachine) {
  std::atomic<bool> busy{true};
  std::vector<std::thread> others;
  for (unsigned i = 0; i < std::max(1u, std::thread::hardware_concurrency()); ++i)
    others.emplace_back([&] {
      while (busy.load(std::memory_order_relaxed)) {
      }
    });
  Actuator filler(kUsual);
  filler.start(place_of(2));
  filler.on_phase(Phase::kWait, 1);
  const auto begin = steady_clock::now();
  filler.stop();
  EXPECT_LT(duration<double>(steady_clock::now() - begin).count(), 10);
  busy = false;
  for (std::thread& thread : others) thread.join();
  EXPECT_TRUE(none_named("tenon-filler"));
  filler.stop();
  filler.on_phase(Phase::kWait, 2);
  EXPECT_EQ(fact(filler, "fills"), 1) << "phases after stop() are not heard";
  const double cpu = cpu_s(CLOCK_PROCESS_CPUTIME_ID);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_LT(cpu_s(CLOCK_PROCESS_CPUTIME_ID) - cpu, 0.01) << "nothing runs after stop()";
}

TEST(FillerActuator, StartsAgainAndTwice) {
  Actuator filler(kUsual);
  for (int turn = 0; turn < 3; ++turn) {
    filler.start(place_of(2));
    EXPECT_EQ(fact(filler, "blocks"), 0) << "an account is of one start";
    filler.on_phase(Phase::kWait, 0);
    EXPECT_TRUE(works(filler));
    if (turn != 1) filler.stop();  // the third start() ends the second
  }
  EXPECT_TRUE(none_named("tenon-filler"));
  {
    Actuator other(kUsual);
    other.start(place_of(1));
    other.on_phase(Phase::kWait, 0);
  }
  EXPECT_TRUE(none_named("tenon-filler")) << "the destructor ends them";
}

TEST(FillerActuator, RefusesSettingsThatFillNothing) {
  const auto reason = [](Actuator::Settings settings) {
    Actuator filler(settings);
    try {
      filler.prepare(place_of(1));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig);
      return std::string(error.what());
    }
    return std::string("started");
  };
  EXPECT_THAT(reason({2e-4, 0, 0, 0}), HasSubstr("'fill' names no phase"));
  EXPECT_THAT(reason({0, 0, 0, kWaits}),
              HasSubstr("'block_s' is 0 s; filling a run needs from 1e-05 to 0.01 s"));
  EXPECT_THAT(reason({0.5, 0, 0, kWaits}), HasSubstr("'block_s' is 0.5 s"));
  EXPECT_EQ(reason({2e-4, 0.01, 0, 0}), "started") << "ramps alone";
  EXPECT_TRUE(none_named("tenon-filler"));
}

TEST(FillerActuator, RampsByTheIntegralOfTheDuty) {
  Actuator::Settings ramps = kUsual;
  ramps.ramp_s = 0.6;
  Actuator filler(ramps);
  auto begin = steady_clock::now();
  filler.start(place_of(1));
  const double up = fact(filler, "cpu_s");
  EXPECT_GE(duration<double>(steady_clock::now() - begin).count(), 0.6);
  EXPECT_GT(up, 0);
  EXPECT_LT(up, 0.3 + 0.02) << "half of the time, which a busy machine may not give";
  EXPECT_TRUE(works(filler)) << "full until the first phase";
  filler.on_phase(Phase::kBegin, 1);
  EXPECT_TRUE(rests(filler));
  const double before = fact(filler, "cpu_s");
  begin = steady_clock::now();
  filler.stop();
  const double took = duration<double>(steady_clock::now() - begin).count();
  EXPECT_GE(took, 0.6);
  EXPECT_LT(took, 5);
  const double down = fact(filler, "cpu_s") - before;
  EXPECT_GT(down, 0);
  EXPECT_LT(down, 0.3 + 0.02);
  RecordProperty("up", std::to_string(up));
  RecordProperty("down", std::to_string(down));
  begin = steady_clock::now();
  filler.stop();
  EXPECT_LT(duration<double>(steady_clock::now() - begin).count(), 0.3) << "the second stop() has no ramp";
}

TEST(FillerActuator, APhaseCostsLittleOnTheTrainingThread) {
  Actuator filler(kUsual);
  filler.start(place_of(2));
  std::vector<double> same, begins, ends;
  const auto timed = [&](Phase phase) {
    const auto begin = steady_clock::now();
    filler.on_phase(phase, 0);
    return duration<double>(steady_clock::now() - begin).count();
  };
  for (int turn = 0; turn < 301; ++turn) {
    same.push_back(timed(turn % 2 == 0 ? Phase::kForward : Phase::kBackward));
    begins.push_back(timed(Phase::kWait));
    std::this_thread::sleep_for(milliseconds(1));
    ends.push_back(timed(Phase::kForward));
    std::this_thread::sleep_for(milliseconds(1));
  }
  const auto median = [](std::vector<double>& values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  const double middle[] = {median(same), median(begins), median(ends)};
  RecordProperty("same_us", std::to_string(middle[0] * 1e6));
  RecordProperty("begins_us", std::to_string(middle[1] * 1e6));
  RecordProperty("ends_us", std::to_string(middle[2] * 1e6));
  EXPECT_LT(middle[0], 5e-6);
  EXPECT_LT(middle[1], 50e-6) << "wakes the threads";
  EXPECT_LT(middle[2], 5e-6);
}

struct Recorded {
  std::string track, name;
  double begin_s, end_s;
};

class SpanHost final : public Host, public SpanSink {
 public:
  void log(LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override {
    return duration<double>(steady_clock::now().time_since_epoch()).count() - origin_;
  }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override { return nullptr; }
  double deadline() const override { return 10; }
  void* query(std::string_view id) override {
    return id == SpanSink::kId ? static_cast<SpanSink*>(this) : nullptr;
  }
  bool wanted() const noexcept override { return wants.load(); }
  void add(const Span& span) override {
    if (std::this_thread::get_id() != owner_) ++foreign;
    spans.push_back({std::string(span.track), std::string(span.name), span.begin_s, span.end_s});
  }

  std::atomic<bool> wants{true};
  std::atomic<int> foreign{0};
  std::vector<Recorded> spans;

 private:
  const double origin_ = duration<double>(steady_clock::now().time_since_epoch()).count();
  const std::thread::id owner_ = std::this_thread::get_id();
};

TEST(FillerActuator, HandsSpansOverOnTheTrainingThread) {
  SpanHost host;
  Actuator filler(kUsual);
  filler.start(place_of(2, &host));
  std::vector<std::pair<double, double>> phases;
  for (int turn = 0; turn < 5; ++turn) {
    const double begin = host.now();
    filler.on_phase(Phase::kCommunication, begin);
    EXPECT_TRUE(works(filler));
    std::this_thread::sleep_for(milliseconds(10));
    const double end = host.now();
    filler.on_phase(Phase::kOptimizer, end);
    phases.emplace_back(begin, end);
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_TRUE(rests(filler));
  filler.stop();
  EXPECT_EQ(host.foreign, 0)
      << "a thread of the idle class that holds the sink's lock would stop the training";
  ASSERT_GE(host.spans.size(), 2u);
  EXPECT_EQ(host.spans.size() % 2, 0u);
  for (std::size_t i = 0; i < host.spans.size(); i += 2) {
    const Recorded &fill = host.spans[i], &drain = host.spans[i + 1];
    EXPECT_EQ(fill.track + fill.name + drain.track + drain.name, "fillerfillfillerdrain");
    EXPECT_LE(fill.begin_s, fill.end_s);
    EXPECT_EQ(fill.end_s, drain.begin_s);
    EXPECT_LE(drain.begin_s, drain.end_s);
    const bool of_a_phase = std::any_of(phases.begin(), phases.end(), [&](const auto& phase) {
      return fill.end_s == phase.second && fill.begin_s >= phase.first;
    });
    EXPECT_TRUE(of_a_phase) << fill.begin_s << " to " << fill.end_s;
  }
  const std::size_t before = host.spans.size();
  host.wants = false;
  filler.start(place_of(2, &host));
  filler.on_phase(Phase::kWait, host.now());
  EXPECT_TRUE(works(filler));
  filler.stop();
  EXPECT_EQ(host.spans.size(), before) << "nobody wants them";
}

/// A device whose blocks end after a time, or that fails.
class TimedDevice final : public Device, public BackgroundWork {
 public:
  void open(const DeviceSpec&) override {}
  MemorySpace space() const override { return MemorySpace::kCuda; }
  void* allocate(std::size_t) override { return nullptr; }
  void release(void*, std::size_t) noexcept override {}
  void copy(TensorView, TensorView) override {}
  void synchronize() override { ++synchronised; }
  std::string_view kernel_choice() const override { return "timed"; }
  std::string_view features() const override { return ""; }
  void* query(std::string_view id) override {
    return offers && id == BackgroundWork::kId ? static_cast<BackgroundWork*>(this) : nullptr;
  }

  double open(double seconds) override {
    ++opened;
    return block_s_ = seconds;
  }
  void start_block() override {
    if (fails) fail_run("device timed: no block");
    const double now = seconds_now();
    ends_.push_back(std::max(now, ends_.empty() ? now : ends_.back()) + block_s_);
    ++blocks;
    most = std::max(most, in_flight());
  }
  int in_flight() override {
    const double now = seconds_now();
    return static_cast<int>(std::count_if(ends_.begin(), ends_.end(), [&](double end) { return end > now; }));
  }
  void close() noexcept override { ++closed; }

  bool offers = true, fails = false;
  int opened = 0, closed = 0, blocks = 0, most = 0, synchronised = 0;

 private:
  static double seconds_now() { return duration<double>(steady_clock::now().time_since_epoch()).count(); }
  double block_s_ = 0;
  std::vector<double> ends_;
};

TEST(FillerActuator, RefusesSeveralThreadsOnADevice) {
  TimedDevice device;
  PowerPlace place = place_of(4);
  Actuator::Settings settings = kUsual;
  settings.threads = 2;
  Actuator filler(settings);
  EXPECT_NO_THROW(filler.prepare(place));
  place.device = &device;
  EXPECT_THROW(filler.prepare(place), Error);
  EXPECT_EQ(device.opened, 0);
}

TEST(FillerActuator, KeepsTwoBlocksInFlightOnADevice) {
  TimedDevice device;
  PowerPlace place = place_of(4);
  place.device = &device;
  Actuator::Settings settings = kUsual;
  settings.block_s = 0.01;
  {
    Actuator filler(settings);
    filler.start(place);
    const std::vector<int> threads = threads_named("tenon-filler");
    ASSERT_EQ(threads.size(), 1u);
    EXPECT_EQ(::sched_getscheduler(threads[0]), SCHED_OTHER);
    for (int turn = 0; turn < 3; ++turn) {
      filler.on_phase(Phase::kWait, turn);
      EXPECT_TRUE(becomes_true([&] { return fact(filler, "blocks") >= 4 * (turn + 1); }));
      filler.on_phase(Phase::kForward, turn);
      const double at_end = fact(filler, "blocks");
      EXPECT_TRUE(rests(filler));
      EXPECT_LE(fact(filler, "blocks"), at_end + 1) << "one may have been on its way";
    }
    EXPECT_EQ(fact(filler, "fills"), 3);
    EXPECT_EQ(fact(filler, "device_block_s"), 0.01);
    EXPECT_GT(fact(filler, "drain_max_s"), 0);
    EXPECT_EQ(fact(filler, "failed"), 0);
  }
  EXPECT_EQ(device.most, Actuator::kInFlight);
  EXPECT_EQ(device.opened, 1);
  EXPECT_EQ(device.closed, 1);
  EXPECT_EQ(device.synchronised, 0) << "the training's stream is never waited for";
}

TEST(FillerActuator, EndsAloneWhereTheDeviceRefusesABlock) {
  TimedDevice device;
  PowerPlace place = place_of(1);
  place.device = &device;
  device.fails = true;
  Actuator filler(kUsual);
  filler.start(place);
  filler.on_phase(Phase::kWait, 1);
  EXPECT_TRUE(becomes_true([&] { return fact(filler, "failed") == 1; }));
  filler.on_phase(Phase::kForward, 2);
  filler.stop();
  EXPECT_EQ(device.closed, 1);
  EXPECT_EQ(fact(filler, "blocks"), 0);
  device.offers = false;
  EXPECT_THROW(filler.start(place), Error);
}

}  // namespace
}  // namespace tenon::filler
