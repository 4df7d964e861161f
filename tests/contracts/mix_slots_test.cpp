// Rehearses pseudo-asynchronous local SGD (PALSGD): random MIX slots that pull the weights to an anchor, GRAD
// slots between them, and an all-reduce with an outer step every few slots. Weights, kinds, counts and bytes
// are compared with a second computation that knows nothing of the core.
#include "support.hpp"

#include <tenon/sync.hpp>

#include <mutex>

namespace rehearsal::mix_slots_test {
namespace {

using namespace tenon;

constexpr double kP = 0.4, kEta = 0.3, kLr = 0.1, kOuter = 0.7;
constexpr std::int64_t kPeriod = 4, kSlots = 20, kWidth = 32, kBatch = 2;

struct Log {
  std::mutex mutex;
  std::vector<SlotKind> kinds[2];
  std::vector<float> weights[2];
} seen;

bool mixes(std::int64_t t, int replica) {
  return random_uniform(random_key(1, "sync.palsgd"), static_cast<std::uint64_t>(t),
                        static_cast<std::uint64_t>(replica)) < kP;
}

class Palsgd final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "mixing", .summary = "mix slots"};
  explicit Palsgd(const Options&) {}
  void start(Replica& replica) override {
    SyncBase::start(replica);
    maps_ = &replica.device().family<Elementwise>();
    anchor_ = &replica.create_set("anchor");
    delta_ = &replica.create_set("delta");
    replica.copy(replica.live(), *anchor_);
  }
  SlotPlan plan(const Slot& slot) const override {
    if (mixes(slot.t, slot.replica)) return {SlotKind::kMix, 1, false};
    return {SlotKind::kGrad, 1 / (1 - kP), true};
  }
  void after_step(const Slot& slot, const StepOutcome& outcome) override {
    ParameterSet& live = replica().live();
    const TensorView x = live.arena(0), a = anchor_->arena(0), d = delta_->arena(0);
    if (outcome.kind == SlotKind::kMix) maps_->lerp(x, a, slot.lr / kP * kEta);
    if ((slot.t + 1) % kPeriod == 0) {
      maps_->subtract(a, x, d);
      replica().group(Purpose::kParameter)->all_reduce(d, ReduceOp::kSum);
      maps_->axpy(-kOuter / replica().replicas(), d, a);
      anchor_->touch(-1);
      replica().copy(*anchor_, live);
    }
    live.touch(-1);
    const std::lock_guard lock(seen.mutex);
    seen.kinds[slot.replica].push_back(outcome.kind);
    seen.weights[slot.replica].assign(x.as<float>(), x.as<float>() + x.elements());
  }

 private:
  Elementwise* maps_ = nullptr;
  ParameterSet *anchor_ = nullptr, *delta_ = nullptr;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.mix", .version = "1.0.0", .summary = "palsgd"},
                    Palsgd)

TEST(MixSlots, FollowAnIndependentComputation) {
  const Folder folder;
  const RunResult result = train(plugin, std::string(kTwoReplicas) + "[sync]\ntype = 'mixing'\n",
                                 {"run.steps=20", "data.width=32"}, folder);
  ASSERT_EQ(result.steps, kSlots);

  const RandomKey init = random_key(1, "init:w");
  std::vector<double> x[2], anchor;
  for (std::int64_t j = 0; j < kWidth; ++j)
    anchor.push_back(static_cast<float>(random_normal(init, 0, static_cast<std::uint64_t>(j))));
  x[0] = x[1] = anchor;
  std::int64_t cursor[2] = {0, 0}, updates[2] = {0, 0};
  for (std::int64_t t = 0; t < kSlots; ++t) {
    for (int r = 0; r < 2; ++r) {
      ASSERT_EQ(seen.kinds[r][t], mixes(t, r) ? SlotKind::kMix : SlotKind::kGrad) << t;
      const std::int64_t first = (cursor[r] * 2 + r) * kBatch;
      for (std::int64_t j = 0; j < kWidth; ++j) {
        double& w = x[r][j];
        const double mean = (point(first % 64, j) + point((first + 1) % 64, j)) / 2.0;
        w -= mixes(t, r) ? kLr / kP * kEta * (w - anchor[j]) : kLr / (1 - kP) * (w - mean);
      }
      if (!mixes(t, r)) ++cursor[r], ++updates[r];
    }
    if ((t + 1) % kPeriod != 0) continue;
    for (std::size_t j = 0; j < kWidth; ++j) anchor[j] -= kOuter * (anchor[j] - (x[0][j] + x[1][j]) / 2);
    x[0] = x[1] = anchor;
  }
  ASSERT_GT(kSlots - updates[0], 2) << "the draw must mix now and then";
  for (int r = 0; r < 2; ++r) {
    for (std::size_t j = 0; j < kWidth; ++j) EXPECT_NEAR(seen.weights[r][j], x[r][j], 2e-6) << r << " " << j;
  }
  std::int64_t last = 0, all = 0;
  for (const Update& update : probe_log.take()) last = std::max(last, update.count), ++all;
  EXPECT_EQ(last, std::max(updates[0], updates[1])) << "MIX slots are no updates";
  EXPECT_EQ(all, updates[0] + updates[1]);
  // A ring of K ranks sends 2 (K - 1) / K of the bytes per all-reduce, and there were kSlots / kPeriod of
  // them.
  EXPECT_EQ(result.bytes_by_purpose.at("parameter"), 2 * (2 - 1) * kWidth * 4 / 2 * (kSlots / kPeriod));
}

}  // namespace
}  // namespace rehearsal::mix_slots_test
