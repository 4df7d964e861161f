// Rehearses a compressing decorator: it keeps the largest quarter of each bucket, carries the rest as error
// to the next slot, and passes the bucket to the inner strategy. A refused update restores its error, and a
// change of the loss scale does not change the meaning of the error.
#include "support.hpp"

#include <tenon/sync.hpp>

#include <array>
#include <cmath>

namespace rehearsal::error_feedback_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 16, kKept = 4, kSlots = 8, kRefused = 3, kBatch = 2;
constexpr double kLr = 0.1;

/// Zeroes all but the kKept elements of largest magnitude.
template <typename Real>
void keep_top(std::span<Real> values) {
  std::vector<Real> sizes;
  for (const Real value : values) sizes.push_back(std::abs(value));
  std::nth_element(sizes.begin(), sizes.begin() + kKept - 1, sizes.end(), std::greater<>());
  for (Real& value : values) value = std::abs(value) >= sizes[kKept - 1] ? value : 0;
}

class TopK final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{
      .id = "top_k", .summary = "sparse gradients with error feedback", .options = kOptions};
  explicit TopK(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}

  void start(Replica& replica) override {
    SyncDecorator::start(replica);
    error_ = &replica.create_set("error");
    before_ = &replica.create_set("error_before");
  }
  void on_gradients_ready(const Bucket& bucket) override {
    if (bucket.index == 0) replica().copy(*error_, *before_);
    const auto gradients = bucket.gradients.span<float>();
    const std::int64_t end = bucket.begin + bucket.gradients.elements();
    const auto error = error_->arena(bucket.arena).rows(bucket.begin, end).span<float>();
    const auto unscale = static_cast<float>(replica().gradient_scale());
    for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] += error[i] / unscale;
    const std::vector<float> wanted(gradients.begin(), gradients.end());
    keep_top(gradients);
    for (std::size_t i = 0; i < gradients.size(); ++i) error[i] = (wanted[i] - gradients[i]) * unscale;
    SyncDecorator::on_gradients_ready(bucket);
  }
  void after_step(const Slot& slot, const StepOutcome& outcome) override {
    if (outcome.kind == SlotKind::kGrad && !outcome.applied) replica().copy(*before_, *error_);
    SyncDecorator::after_step(slot, outcome);
  }

 private:
  ParameterSet *error_ = nullptr, *before_ = nullptr;
};

/// Scales the loss by 8, refuses one update, and continues with half the scale.
class RefusesOnce final : public PlainPrecision {
 public:
  static constexpr ComponentInfo kInfo{.id = "refuses_once", .summary = "a loss scale that changes"};
  explicit RefusesOnce(const Options&) {}
  double loss_scale() const override { return scale_; }
  bool after_backward(const BackwardStats& stats) override {
    if (stats.slot == kRefused) scale_ /= 2;
    return stats.slot != kRefused;
  }
  void state(StateVisitor& visitor) override { visitor.real("scale", scale_); }

 private:
  double scale_ = 8;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.feedback", .version = "1.0.0", .summary = "top-k"},
                    TopK, RefusesOnce)

TEST(ErrorFeedback, FollowsTheHandComputation) {
  const Folder folder;
  const std::string toml =
      std::string(kTwoReplicas) +
      "[sync]\ntype = 'top_k'\n[sync.inner]\ntype = 'ddp'\n[precision]\ntype = 'refuses_once'\n";
  train(plugin, toml, {"run.steps=8"}, folder);

  using Vector = std::array<double, kWidth>;
  Vector w{}, error[2] = {};
  for (std::size_t j = 0; j < kWidth; ++j)
    w[j] = static_cast<float>(random_normal(random_key(1, "init:w"), 0, j));
  const std::vector<Update> updates = probe_log.take(0);
  ASSERT_EQ(updates.size(), kSlots - 1) << "all slots but the refused one";
  std::size_t next = 0;
  for (std::int64_t t = 0; t < kSlots; ++t) {
    Vector mean{}, carried[2];
    for (int r = 0; r < 2; ++r) {
      Vector g;
      for (std::int64_t j = 0; j < kWidth; ++j) {
        const std::int64_t first = (t * 2 + r) * kBatch;
        g[j] = w[j] - (point(first, j) + point(first + 1, j)) / 2.0 + error[r][j];
      }
      Vector kept = g;
      keep_top(std::span<double>(kept));
      for (std::size_t j = 0; j < kWidth; ++j) carried[r][j] = g[j] - kept[j], mean[j] += kept[j] / 2;
    }
    if (t == kRefused) continue;  // neither the weights nor the errors include this slot
    for (std::size_t j = 0; j < kWidth; ++j) {
      EXPECT_NEAR(updates[next].weight[j], w[j], 2e-6) << t;
      EXPECT_NEAR(updates[next].gradient[j], mean[j], 2e-6) << t;
      w[j] -= kLr * mean[j];
      error[0][j] = carried[0][j], error[1][j] = carried[1][j];
    }
    ++next;
  }
}

}  // namespace
}  // namespace rehearsal::error_feedback_test
