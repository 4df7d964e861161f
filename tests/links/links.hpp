// Runs of a small perceptron under a link model, and test strategies that read the clock.
#pragma once

#include "world.hpp"

#include <tenon/clock.hpp>
#include <tenon/control.hpp>
#include <tenon/host.hpp>

namespace tenon::links_test {

using integration::Scratch;
using sync_test::Trace;
using sync_test::Weights;

/// A bucket, and the time at which it was passed on.
struct Ready {
  std::int64_t slot = 0, elements = 0;
  double at_s = 0;
};
struct Times {
  std::mutex mutex;
  std::map<int, std::vector<Ready>> ready;        ///< by replica
  std::map<int, std::vector<double>> after_step;  ///< by replica and slot
};
inline Times times;

/// Records the times of buckets and of the ends of slots.
class Timed final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "timed", .summary = "records times", .options = kOptions};
  explicit Timed(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}
  void on_gradients_ready(const Bucket& bucket) override {
    {
      const std::lock_guard lock(times.mutex);
      times.ready[replica().replica()].push_back(
          {replica().slot(), bucket.gradients.elements(), replica().host().now()});
    }
    SyncDecorator::on_gradients_ready(bucket);
  }
  void after_step(const Slot& slot, const StepOutcome& outcome) override {
    SyncDecorator::after_step(slot, outcome);
    const std::lock_guard lock(times.mutex);
    times.after_step[slot.replica].push_back(replica().host().now());
  }
};

/// Trains alone while an actor all-reduces a number of its own; records a number in each slot.
class Shadow final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "shadow", .summary = "a transfer in the background"};
  explicit Shadow(const Options&) {}
  void start(Replica& replica) override {
    SyncBase::start(replica);
    group_ = replica.open("shadow", Purpose::kActor);
    actor_ = replica.host().spawn("shadow", [this](Actor&) {
      TensorView view;
      view.data = &number_;
      view.dtype = DType::kF64;
      view.shape = Shape{1};
      group_->all_reduce(view, ReduceOp::kSum);
    });
  }
  GradientGroup gradient_group() const override { return GradientGroup::kReplica; }
  void after_step(const Slot& slot, const StepOutcome&) override {
    record_metric(replica().host(), "slot_number", static_cast<double>(slot.t));
  }

 private:
  double number_ = 1;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Actor> actor_;  // ends before the communicator is destroyed
};

TENON_STATIC_PLUGIN(timing, PluginInfo{.id = "test.timing", .version = "1.0.0", .summary = "looks at clocks"},
                    Timed, Shadow)

struct Trial {
  int ranks = 2;
  std::int64_t slots = 4;
  std::string strategy = "{type = 'ddp'}";
  std::string more = {};               ///< tables after [sync]
  std::vector<std::string> sets = {};  ///< like --set
  std::string hidden = "[6]";
  std::string folder = {};  ///< a folder of the test's own unless set
  bool resume = false;
};

inline RunResult train(const Trial& run) {
  const sync_test::World world{
      .replicas = run.ranks,
      .slots = run.slots,
      .precision = "fp32",
      .more = run.more,
      .sets = run.sets,
      .model =
          "[data]\ntype = \"mnist\"\nbatch = 4\nscale = \"standard\"\n[model]\ntype = \"mlp\"\nhidden = " +
          run.hidden + "\n"};
  const Scratch scratch;
  Runtime runtime;
  runtime.add_plugin(sync_test::watching);
  runtime.add_plugin(timing);
  runtime.discover({std::string(TENON_BINARY_DIR) + "/lib/tenon/plugins"});
  sync_test::watch.replicas.clear();
  times.ready.clear();
  times.after_step.clear();
  TrainRequest request;
  request.run_dir = run.folder.empty() ? (scratch / "run").string() : run.folder;
  request.quiet = true;
  request.resume = run.resume;
  return runtime.train(sync_test::config_of(run.strategy, world), request);
}

inline const char* kSimulated =
    "[transport.clock]\ntype = \"simulated\"\ncompute_seconds = 1.0\nbackward_share = 0.5\n";

inline double parts(const RankTime& time) {
  return time.compute_s + time.exposed_s + time.late_s + time.data_s + time.evaluate_s + time.save_s +
         time.other_s;
}

}  // namespace tenon::links_test
