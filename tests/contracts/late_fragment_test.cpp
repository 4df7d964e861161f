// Rehearses streaming DiLoCo: one half of the arena at a time is all-reduced in the background and merged two
// slots later. A checkpoint is saved while a fragment is in transit, the run crashes, and continues with the
// bits of an undisturbed run.
#include "support.hpp"

#include <tenon/error.hpp>
#include <tenon/sync.hpp>

#include <atomic>
#include <optional>

namespace rehearsal::late_fragment_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 32, kPeriod = 6, kDelay = 2;
std::atomic<int> saved_in_flight{0}, merges{0};

class Streaming final : public SyncBase {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("crash_at", "-1"),
                                            option::boolean("merge", "true")};
  static constexpr ComponentInfo kInfo{
      .id = "streaming", .summary = "fragments in flight during training", .options = kOptions};
  explicit Streaming(const Options& options)
      : crash_at_(options.integer("crash_at")), merge_(options.boolean("merge")) {}

  void start(Replica& replica) override {
    SyncBase::start(replica);
    maps_ = &replica.device().family<Elementwise>();
    group_ = replica.open("fragments", Purpose::kParameter);
    anchor_ = &replica.create_set("anchor");
    delta_ = &replica.create_set("delta");
    replica.copy(replica.live(), *anchor_);
  }
  void after_step(const Slot& slot, const StepOutcome&) override {
    const std::int64_t done = slot.t + 1;
    if (flying_ >= 0 && done == due_) {
      land();
      const TensorView anchor = fragment(*anchor_), live = fragment(replica().live());
      maps_->axpy(-0.8 / replica().replicas(), fragment(*delta_), anchor);
      if (merge_) maps_->lerp(live, anchor, 0.5);
      replica().live().touch(-1);
      flying_ = -1;
      ++merges;
    }
    if (done % (kPeriod / 2) == 1) {
      flying_ = done % kPeriod == 1 ? 0 : 1;
      due_ = done + kDelay;
      maps_->subtract(fragment(*anchor_), fragment(replica().live()), fragment(*delta_));
      request_ = group_->start_all_reduce(fragment(*delta_), ReduceOp::kSum);
    }
    if (slot.t == crash_at_) fail_run("the crash of the rehearsal");
  }
  void quiesce() override {
    if (request_) ++saved_in_flight;
    land();
  }
  void state(StateVisitor& visitor) override {
    visitor.integer("flying", flying_);
    visitor.integer("due", due_);
  }

 private:
  TensorView fragment(const ParameterSet& set) const {
    return set.arena(0).rows(flying_ * kWidth / 2, (flying_ + 1) * kWidth / 2);
  }
  /// After this the sum is in `delta`, which the core saves; `flying` says whether it was merged.
  void land() {
    if (request_) group_->wait(*std::exchange(request_, std::nullopt));
  }

  std::int64_t crash_at_;
  bool merge_;
  Elementwise* maps_ = nullptr;
  ParameterSet *anchor_ = nullptr, *delta_ = nullptr;
  std::unique_ptr<Communicator> group_;
  std::optional<Request> request_;
  std::int64_t flying_ = -1, due_ = 0;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.late", .version = "1.0.0", .summary = "streaming"},
                    Streaming)

TEST(LateFragment, SurvivesACrashWhileOnItsWay) {
  const Folder folder;
  const std::string toml =
      std::string(kTwoReplicas) +
      "[sync]\ntype = 'streaming'\n[recovery]\ntype = 'full'\nevery = 5\nasync = false\n";
  const std::vector<std::string> sets = {"run.steps=14", "data.width=32"};
  const RunResult whole = train(plugin, toml, sets, folder, "whole");
  EXPECT_EQ(merges.exchange(0), 2 * 4) << "at slots 3, 6, 9 and 12 of both replicas";
  EXPECT_GE(saved_in_flight.exchange(0), 2) << "slot 5 lies between the start at 4 and the merge at 6";
  EXPECT_EQ(whole.bytes_by_purpose.at("parameter"), kWidth / 2 * 4 * 5) << "five starts of half an arena";

  std::vector<std::string> crash = sets;
  crash.push_back("sync.crash_at=7");
  EXPECT_EQ(try_train(plugin, toml, crash, folder, "broken", false).status, "failed");
  const RunResult resumed = train(plugin, toml, sets, folder, "broken", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
  EXPECT_EQ(resumed.state_hash, whole.state_hash);

  std::vector<std::string> apart = sets;
  apart.push_back("sync.merge=false");
  EXPECT_NE(train(plugin, toml, apart, folder, "apart").weights_hash, whole.weights_hash)
      << "merges change weights";
}

}  // namespace
}  // namespace rehearsal::late_fragment_test
