// A simulator controlled by a test: waits, fails, returns NaN, ends its process.
#include <tenon/plugin.hpp>
#include <tenon/random.hpp>
#include <tenon/simulator.hpp>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using namespace tenon;

class Rehearsal final : public SimulatorBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("wait_ms", "0").doc_text("of a task, in steps of a millisecond"),
      option::boolean("deaf", "false").doc_text("does not look at the watch"),
      option::integer("fail_at", "-1").doc_text("this sample breaks a condition"),
      option::integer("nan_at", "-1").doc_text("this sample is not finite"),
      option::integer("end_at", "-1").doc_text("this sample ends the process"),
      option::integer("hang_at", "-1").doc_text("this sample takes a minute"),
      option::integer("elements", "4").at_least(1),
  };
  static constexpr ComponentInfo kInfo{.id = "rehearsal", .summary = "for tests", .options = kOptions};

  explicit Rehearsal(const Options& options)
      : wait_ms_(options.integer("wait_ms")),
        fail_at_(options.integer("fail_at")),
        nan_at_(options.integer("nan_at")),
        end_at_(options.integer("end_at")),
        hang_at_(options.integer("hang_at")),
        deaf_(options.boolean("deaf")) {
    fields_ = {{"x", DType::kF32, Shape{options.integer("elements")}, false},
               {"label", DType::kI32, Shape{1}, true}};
  }
  std::span<const SimulatedField> fields() const override { return fields_; }
  void run(const SimulationTask& task, std::span<const TensorView>, std::span<const TensorView> fields,
           TaskWatch& watch) override {
    const std::int64_t wait = task.index == hang_at_ ? 60000 : wait_ms_;
    for (std::int64_t ms = 0; ms < wait; ++ms) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (!deaf_) watch.step(ms, wait);
    }
    if (task.index == fail_at_) fail_run("step 3: the CFL number 1.5 exceeds 1");
    if (task.index == end_at_) std::_Exit(5);
    const RandomKey key = random_key(task.seed, "rehearsal");
    double sum = 0;
    for (std::size_t i = 0; i < fields[0].span<float>().size(); ++i) {
      const double x = random_normal(key, static_cast<std::uint64_t>(task.index), i);
      fields[0].span<float>()[i] = static_cast<float>(x);
      sum += x;
    }
    if (task.index == nan_at_) fields[0].span<float>()[1] = std::nanf("");
    fields[1].span<std::int32_t>()[0] = sum > 0 ? 1 : 0;
  }

 private:
  std::int64_t wait_ms_, fail_at_, nan_at_, end_at_, hang_at_;
  bool deaf_;
  std::vector<SimulatedField> fields_;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.rehearsal", .version = "1.0.0", .summary = "a simulator for tests"},
             Rehearsal)
