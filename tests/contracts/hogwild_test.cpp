// Rehearses lock-free workers under a background averager: two replicas of two Hogwild workers each, and per
// replica an actor that averages with the other one in the background, stopping the training only to write.
// The simulated clock makes the history reproducible bit for bit; threads and the wall clock give another one
// that learns as well.
#include "support.hpp"

#include <tenon/sync.hpp>

#include <atomic>
#include <cmath>

namespace rehearsal::hogwild_test {
namespace {

using namespace tenon;

std::atomic<int> rounds{0};

class Averager final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "averager",
                                       .summary = "averages beside lock-free workers",
                                       .capabilities = TENON_CAP_HOGWILD | TENON_CAP_NONDETERMINISTIC};
  explicit Averager(const Options&) {}
  ~Averager() override { actor_.reset(); }
  void start(Replica& replica) override {
    SyncBase::start(replica);
    center_ = &replica.create_set("center");
    mean_ = &replica.create_set("mean");
    replica.copy(replica.live(), *center_);
    group_ = replica.open("averager", Purpose::kActor);
    actor_ = replica.host().spawn("averager", [this](Actor& self) { loop(self); });
  }
  ParameterSet& evaluation_parameters() override { return *center_; }

 private:
  /// Waits in steps, so that a pause finds the actor parked even if the other replica is late.
  void finish(Actor& self, Request request) {
    while (!group_->done(request)) {
      self.checkpoint();
      self.sleep(0.001);
    }
    group_->wait(request);
  }
  void loop(Actor& self) {
    auto& maps = replica().device().family<Elementwise>();
    const TensorView mean = mean_->arena(0), center = center_->arena(0), live = replica().live().arena(0);
    // No actor stops alone: the other one would wait for ever.
    float stops = 0;
    while (stops < 2) {
      const bool stopping = !self.checkpoint();
      replica().pause();
      replica().copy(replica().live(), *mean_);
      replica().resume();
      stops = stopping ? 1 : 0;
      const TensorView flag{&stops, Shape{1}};
      finish(self, group_->start_all_reduce(mean, ReduceOp::kSum));
      finish(self, group_->start_all_reduce(flag, ReduceOp::kSum));
      if (stopping) continue;
      maps.scale(mean, 0.5);
      replica().pause();
      maps.lerp(center, mean, 0.5);
      maps.lerp(live, center, 0.2);
      replica().live().touch(-1);
      replica().resume();
      ++rounds;
      self.sleep(0.003);
    }
  }

  ParameterSet *center_ = nullptr, *mean_ = nullptr;
  std::unique_ptr<Communicator> group_;
  std::unique_ptr<Actor> actor_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.hogwild", .version = "1.0.0", .summary = "averager"},
                    Averager)

const std::string kParallel =
    "[parallel]\nranks = 2\nworkers = 2\n[sync]\ntype = 'averager'\n[transport]\ntype = 'thread'\n";
const std::vector<std::string> kSets = {"run.steps=60", "run.eval_every=15", "data.batch=16"};

TEST(Hogwild, IsOneHistoryUnderTheSimulatedClock) {
  const Folder folder;
  const std::string clock =
      "[transport.clock]\ntype = 'simulated'\ncompute_seconds = 0.002\n[transport.link]\nlatency = 0.001\n";
  const RunResult first = train(plugin, kParallel + clock, kSets, folder, "first");
  const int count = rounds.exchange(0);
  EXPECT_GT(count, 10);
  const RunResult second = train(plugin, kParallel + clock, kSets, folder, "second");
  EXPECT_EQ(rounds.exchange(0), count);
  EXPECT_EQ(first.weights_hash, second.weights_hash);
  EXPECT_EQ(first.state_hash, second.state_hash);
  EXPECT_EQ(first.metrics.at("val/loss"), second.metrics.at("val/loss"));
}

TEST(Hogwild, LearnsWithThreadsAndTheWallClock) {
  const Folder folder;
  std::vector<std::string> short_run = kSets;
  short_run[0] = "run.steps=1";
  const double before = train(plugin, kParallel, short_run, folder, "before").metrics.at("train/loss");
  rounds = 0;
  const RunResult result = train(plugin, kParallel, kSets, folder, "after");
  EXPECT_TRUE(std::isfinite(result.metrics.at("train/loss")));
  EXPECT_LT(result.metrics.at("train/loss"), before);
}

}  // namespace
}  // namespace rehearsal::hogwild_test
