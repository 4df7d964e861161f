// Promises of the core about [power] (P8 of the specification, and P7 for components that break): a source or
// an actuator that throws, hangs or gives nonsense ends alone and is named, the run goes on to the same
// weights, and no step waits. Phases come in order, as they begin, to all who listen.
#include "support.hpp"

#include <tenon/observer.hpp>
#include <tenon/phases.hpp>
#include <tenon/power.hpp>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <chrono>
#include <cmath>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <limits>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <thread>

namespace rehearsal::power_test {
namespace {

using namespace tenon;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

struct Heard {
  Phase phase;
  double at_s;
};

std::mutex mutex;
std::condition_variable released;
bool release = false;
std::vector<Heard> heard_by_actuator, heard_by_observer;
std::thread::id reader, trainer;

/// Reads 5 W, except where its option says.
class Sensor final : public Power, public PowerSource {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("breaks", "''")};
  static constexpr ComponentInfo kInfo{.id = "sensor", .summary = "reads five watts", .options = kOptions};
  explicit Sensor(const Options& options) : breaks_(options.text("breaks")) {}
  bool every_rank() const override { return breaks_ == "nowhere"; }
  PowerSourceInfo open(int) override {
    if (breaks_ == "open") fail_run("no sensor in this machine");
    reader = std::this_thread::get_id();
    const PowerUnit unit = breaks_ == "percent" ? PowerUnit::kShare : PowerUnit::kWatts;
    return {"a sensor of this test", PowerOrigin::kMeasured, unit, 10};
  }
  double read(double) override {
    ++reads_;
    if (breaks_ == "read" && reads_ > 1) throw std::runtime_error("it was pulled out");
    if (breaks_ == "nan") return std::numeric_limits<double>::quiet_NaN();
    if (breaks_ == "negative") return -3;
    if (breaks_ == "infinite") return std::numeric_limits<double>::infinity();
    if (breaks_ == "hang") {
      std::unique_lock lock(mutex);
      released.wait(lock, [] { return release; });
    }
    return 5;
  }
  double joules() override {
    if (breaks_ == "joules") throw 7;
    return 1.5;
  }
  void* query(std::string_view id) override {
    return id == PowerSource::kId ? static_cast<PowerSource*>(this) : nullptr;
  }

 private:
  std::string breaks_;
  int reads_ = 0;
};

/// Writes down the phases, except where its option says.
class Drawer final : public Power, public PowerActuator, public PhaseObserver {
 public:
  static constexpr OptionSpec kOptions[] = {option::text("breaks", "''")};
  static constexpr ComponentInfo kInfo{.id = "drawer", .summary = "hears phases", .options = kOptions};
  explicit Drawer(const Options& options) : breaks_(options.text("breaks")) {}
  void prepare(const PowerPlace&) override {
    if (breaks_ == "options") fail_config("'breaks' cannot serve this run");
  }
  void start(const PowerPlace& place) override {
    trainer = std::this_thread::get_id();
    heard_by_actuator.clear();
    if (breaks_ == "start") throw std::runtime_error("no thread to spare");
    if (place.device == nullptr || place.host == nullptr || place.threads != 1)
      throw std::logic_error("place");
  }
  void stop() override {
    ++stops_;
    if (breaks_ == "stop") throw std::runtime_error("does not stop");
  }
  void account(const std::function<void(std::string_view, double)>& sink) const override {
    if (breaks_ == "account") throw std::runtime_error("lost count");
    sink("stops", stops_);
  }
  void on_phase(Phase phase, double at_s) override {
    heard_by_actuator.push_back({phase, at_s});
    if (breaks_ == "phase" && heard_by_actuator.size() == 9) throw std::runtime_error("deaf");
  }
  void* query(std::string_view id) override {
    if (id == PowerActuator::kId) return static_cast<PowerActuator*>(this);
    return id == PhaseObserver::kId ? static_cast<PhaseObserver*>(this) : nullptr;
  }

 private:
  std::string breaks_;
  int stops_ = 0;
};

class Listener final : public Observer, public PhaseObserver {
 public:
  static constexpr OptionSpec kOptions[] = {option::boolean("breaks", "false")};
  static constexpr ComponentInfo kInfo{.id = "listener", .summary = "hears phases", .options = kOptions};
  explicit Listener(const Options& options) : breaks_(options.boolean("breaks")) {}
  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override { heard_by_observer.clear(); }
  void on_slot(const SlotRecord&) override {}
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void on_phase(Phase phase, double at_s) override {
    heard_by_observer.push_back({phase, at_s});
    if (breaks_ && heard_by_observer.size() == 5) throw 7;
  }
  void* query(std::string_view id) override {
    return id == PhaseObserver::kId ? static_cast<PhaseObserver*>(this) : nullptr;
  }

 private:
  bool breaks_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.power", .version = "1.0.0", .summary = "power"},
                    Sensor, Drawer, Listener)

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> names_of(const std::vector<Heard>& heard) {
  std::vector<std::string> names;
  for (const Heard& one : heard) names.emplace_back(phase_name(one.phase));
  return names;
}

class RunPower : public ::testing::Test {
 protected:
  RunPower() : plain_(train(plugin, "", {}, folder_, "plain")) {}

  /// A run with this [power] ends with the weights of the plain one.
  RunResult run(const std::string& power, const std::string& name) {
    ::testing::internal::CaptureStderr();
    RunResult result = train(plugin, power, {}, folder_, name);
    said_ = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_EQ(result.steps, 12);
    EXPECT_EQ(result.weights_hash, plain_.weights_hash) << power;
    return result;
  }
  Json record(const RunResult& result) { return Json::parse(text_of(result.folder + "/power.rank0.json")); }

  Folder folder_;
  RunResult plain_;
  std::string said_;
};

TEST_F(RunPower, P8ASourceThatBreaksEndsAloneAndIsNamed) {
  const struct {
    const char* breaks;
    const char* reason;
  } cases[] = {{"open", "no sensor in this machine"},
               {"nan", "it gave no reading"},
               {"negative", "it gave -3 watts; expected a finite number that is not negative"},
               {"infinite", "it gave inf watts"},
               {"percent", "it gave 5 share; expected a finite number that is not negative and at most 1"},
               {"joules", "plugin rehearsal.power (power.sensor, rank 0"}};
  for (const auto& c : cases) {
    const RunResult result =
        run(std::string("[power.source]\ntype = 'sensor'\nbreaks = '") + c.breaks + "'\n", c.breaks);
    EXPECT_THAT(record(result)["source"]["ended"].get<std::string>(), HasSubstr(c.reason)) << c.breaks;
    EXPECT_THAT(text_of(result.folder + "/log.rank0.txt"),
                HasSubstr("power source ends; training goes on without it: "));
    EXPECT_THAT(said_, HasSubstr(c.reason));
    EXPECT_EQ(result.metrics.count("train/power/watts"), std::string(c.breaks) == "joules" ? 1U : 0U)
        << c.breaks;
  }
}

TEST_F(RunPower, P8ASourceThatVanishesLeavesWhatItGave) {
  const RunResult result =
      train(plugin, "[power]\nrate_hz = 10000\nsource = {type = 'sensor', breaks = 'read'}\n",
            {"run.steps=400"}, folder_, "vanishes");
  const Json source = record(result)["source"];
  EXPECT_THAT(source["ended"].get<std::string>(), HasSubstr("it was pulled out"));
  EXPECT_EQ(source["rows"], 1);
  EXPECT_EQ(source["mean"], 5);
  EXPECT_EQ(text_of(result.folder + "/power.rank0.csv"),
            "# a sensor of this test, measured\nseconds,watts\n0.000000,5\n");
}

TEST_F(RunPower, P8NoStepWaitsForASourceThatHangs) {
  const auto begin = std::chrono::steady_clock::now();
  const RunResult result = run("[power.source]\ntype = 'sensor'\nbreaks = 'hang'\n", "hangs");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_THAT(record(result)["source"]["ended"].get<std::string>(),
              HasSubstr("read() has not returned within 2 s"));
  EXPECT_THAT(text_of(result.folder + "/log.rank0.txt"), HasSubstr("read() has not returned"));
  const std::lock_guard lock(mutex);
  release = true;
  released.notify_all();
}

TEST_F(RunPower, P8AnActuatorThatBreaksEndsAloneAndIsNamed) {
  const struct {
    const char* breaks;
    const char* reason;
  } cases[] = {{"start", "no thread to spare"},
               {"phase", "deaf"},
               {"stop", "does not stop"},
               {"account", "lost count"}};
  for (const auto& c : cases) {
    const RunResult result =
        run(std::string("[power.actuator]\ntype = 'drawer'\nbreaks = '") + c.breaks + "'\n", c.breaks);
    EXPECT_THAT(record(result)["actuator"]["ended"].get<std::string>(),
                ::testing::AllOf(HasSubstr(c.reason), HasSubstr("(power.drawer, rank 0")));
    EXPECT_THAT(said_, HasSubstr("power actuator ends; training goes on without it"));
    if (std::string(c.breaks) == "start") {
      EXPECT_TRUE(heard_by_actuator.empty());
    }
    if (std::string(c.breaks) == "phase") {
      EXPECT_EQ(heard_by_actuator.size(), 9U);
    }
  }
}

TEST_F(RunPower, OptionsThatCannotServeARunAreRefusedBeforeIt) {
  try {
    try_train(plugin, "[power.actuator]\ntype = 'drawer'\nbreaks = 'options'\n", {}, folder_, "options",
              false);
    FAIL() << "the run began";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_status(), 2);
    EXPECT_THAT(error.what(), HasSubstr("'breaks' cannot serve this run"));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path + "/options"));
}

TEST_F(RunPower, AWorkingSourceIsReadBesideTheTrainingAndRecorded) {
  const RunResult result =
      run("[power]\nrate_hz = 1000\nsource = {type = 'sensor'}\nactuator = {type = 'drawer'}\n", "works");
  EXPECT_NE(reader, trainer);
  const Json whole = record(result), source = whole["source"];
  EXPECT_EQ(source["ended"], "");
  EXPECT_EQ(source["sensor"], "a sensor of this test");
  EXPECT_EQ(source["origin"], "measured");
  EXPECT_EQ(source["unit"], "watts");
  EXPECT_EQ(source["rated"], 10);
  EXPECT_EQ(source["counted_joules"], 1.5);
  EXPECT_EQ(source["mean"], 5);
  EXPECT_DOUBLE_EQ(source["joules"].get<double>(), 5 * source["rows"].get<double>() / 1000);
  EXPECT_EQ(result.metrics.at("train/power/watts"), 5);
  EXPECT_EQ(whole["actuator"]["account"]["stops"], 1);
  EXPECT_EQ(said_, "");
}

TEST_F(RunPower, PhasesComeInOrderToAllWhoListen) {
  const RunResult result =
      train(plugin, "[power.actuator]\ntype = 'drawer'\n[[observe]]\ntype = 'listener'\n",
            {"run.steps=2", "run.eval_every=0"}, folder_, "phases");
  const std::vector<std::string> names = names_of(heard_by_actuator);
  std::vector<std::string> expected = {"begin", "idle"};
  for (int slot = 0; slot < 2; ++slot) {
    for (const char* name : {"compute", "data", "compute", "forward", "compute", "backward", "compute",
                             "optimizer", "compute", "idle"})
      expected.emplace_back(name);
  }
  for (const char* name : {"evaluate", "idle", "end"}) expected.emplace_back(name);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(names_of(heard_by_observer), names);
  for (std::size_t i = 1; i < heard_by_actuator.size(); ++i)
    EXPECT_LE(heard_by_actuator[i - 1].at_s, heard_by_actuator[i].at_s);
}

TEST_F(RunPower, PhasesEndForAnObserverThatThrowsInOne) {
  const RunResult result = run("[[observe]]\ntype = 'listener'\nbreaks = true\n", "deaf");
  EXPECT_EQ(heard_by_observer.size(), 5U);
  EXPECT_THAT(text_of(result.folder + "/log.rank0.txt"),
              HasSubstr("observer 'listener' failed and is disabled"));
}

TEST_F(RunPower, MistakesInTheTableAreNamed) {
  const auto error_of = [&](const std::string& toml,
                            const std::vector<std::string>& sets = {}) -> std::string {
    try {
      train(plugin, toml, sets, folder_, "mistake");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of("[power]\nrate_hz = 50\n"), HasSubstr("[power] has neither a source nor an actuator"));
  EXPECT_THAT(error_of("[power.source]\ntype = 'drawer'\n"), HasSubstr("reads no power"));
  EXPECT_THAT(error_of("[power.actuator]\ntype = 'sensor'\n"), HasSubstr("draws none in a run"));
  EXPECT_THAT(error_of("[power]\nsource = 'sensor'\n"), HasSubstr("expected the table [power.source]"));
  EXPECT_THAT(error_of("[power]\nrate = 5\nsource = {type = 'sensor'}\n"), HasSubstr("'rate'"));
  EXPECT_THAT(error_of("[power.source]\ntype = 'sensr'\n"), HasSubstr("did you mean 'sensor'"));
  EXPECT_THAT(error_of(std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n[power.source]\ntype = 'sensor'\n",
                       {"transport.clock.type=simulated", "transport.clock.compute_seconds=1"}),
              HasSubstr("the clock of this run is simulated"));
}

}  // namespace
}  // namespace rehearsal::power_test
