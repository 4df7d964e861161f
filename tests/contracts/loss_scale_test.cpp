// Precision `fp16` in real runs: agreement of replicas that share an update, state that a refused update
// leaves unchanged, master weights against binary16, resuming between two growths, and the two ways in which
// overflow ends a run. A wrapper records each slot's scale.
#include "support.hpp"

#include <tenon/ops/quant.hpp>
#include <tenon/sync.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>

#include <fstream>
#include <mutex>

namespace rehearsal::loss_scale_test {
namespace {

using namespace tenon;

struct ScaleLog {
  std::mutex mutex;
  std::vector<double> ranks[2];

  std::vector<double> take(int rank) {
    const std::lock_guard lock(mutex);
    return std::exchange(ranks[rank], {});
  }
} scales;

/// Forwards everything to the precision under `inner` and records the scale of each slot.
class Watched final : public Precision {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "precision/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "watched", .summary = "sees the scale", .options = kOptions};
  Watched(const Options& options, Host& host)
      : inner_(*options.component<Precision>("inner")), rank_(host.rank()) {}
  DType activations() const override { return inner_.activations(); }
  DType parameters() const override { return inner_.parameters(); }
  std::unique_ptr<LinearSite> bind(const SiteInfo& site, SiteHost& host) override {
    return inner_.bind(site, host);
  }
  double loss_scale() const override { return inner_.loss_scale(); }
  bool after_backward(const BackwardStats& stats) override {
    {
      const std::lock_guard lock(scales.mutex);
      scales.ranks[rank_].push_back(inner_.loss_scale());
    }
    return inner_.after_backward(stats);
  }
  void state(StateVisitor& visitor) override { inner_.state(visitor); }
  void* query(std::string_view id) override { return inner_.query(id); }

 private:
  Precision& inner_;
  int rank_;
};

/// The loss -slope * y of y = w x with x = 1: every gradient of w is -slope, by default -2^-6. In slot
/// `burst` the slope of one rank is 1e35, so that its gradient, times a scale of 65536, is no float32.
class Pull final : public Loss {
 public:
  static constexpr OptionSpec kOptions[] = {option::real("slope", "0.015625"), option::integer("burst", "-1"),
                                            option::integer("burst_end", "-1"), option::integer("rank", "1")};
  static constexpr ComponentInfo kInfo{.id = "pull", .summary = "a constant gradient", .options = kOptions};
  Pull(const Options& options, Host& host)
      : slope_(options.real("slope")),
        first_(options.integer("burst")),
        end_(std::max(options.integer("burst_end"), first_ + 1)),
        bursts_(host.rank() == options.integer("rank")) {}
  void infer(InferContext& context) override {
    auto spec = vector_parameter("w", 1, Initializer::kOne, 1);
    spec.shape = Shape{1, 1};
    w_ = context.parameter(spec);
    SiteSpec site;
    site.weight = w_;
    site.m = site.n = site.k = 1;
    site_ = context.linear_site(site);
    context.output({Shape{2}, DType::kF64});
  }
  void forward(ForwardContext& context) override {
    context.fprop(site_, one(x_), {}, one(y_), 0);
    context.output(0).as<double>()[0] = -static_cast<double>(y_);
    context.output(0).as<double>()[1] = 1;
  }
  void backward(BackwardContext& context) override {
    const bool burst = bursts_ && context.step() >= first_ && context.step() < end_;
    float dy = static_cast<float>(-(burst ? 1e35 : slope_) * seed_);
    const GradientSink dw = context.gradient(w_);
    context.wgrad(site_, one(x_), one(dy), dw.accumulate, 0);
  }

 private:
  static TensorView one(float& value) { return {&value, Shape{1, 1}}; }
  double slope_;
  std::int64_t first_, end_;
  bool bursts_;
  ParameterRef w_;
  SiteRef site_;
  float x_ = 1, y_ = 0;
};

/// Replicas that do not communicate: each decides alone.
class Alone final : public SyncBase {
 public:
  static constexpr ComponentInfo kInfo{.id = "alone", .summary = "every replica for itself"};
  explicit Alone(const Options&) {}
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.scale", .version = "1.0.0", .summary = "loss scales"},
                    Watched, Pull, Alone)

std::string pull(const std::string& options, const std::string& inner) {
  return "[[model.layer]]\nname = 'loss'\ntype = 'pull'\ninputs = ['x']\n" + options +
         "\n[precision]\ntype = 'watched'\n[precision.inner]\ntype = 'fp16'\n" + inner;
}

std::vector<double> steady(std::initializer_list<std::pair<int, double>> parts) {
  std::vector<double> values;
  for (const auto& [count, value] : parts)
    values.insert(values.end(), static_cast<std::size_t>(count), value);
  return values;
}

TEST(LossScale, P34_ReplicasThatShareAnUpdateAgree) {
  const Folder folder;
  const std::string sets = pull("burst = 4\nburst_end = 6", "interval = 3\n");
  const RunResult result =
      train(plugin, kTwoReplicas + sets + "[sync]\ntype = 'ddp'\n", {"run.steps=12"}, folder);
  // Slots 0 to 3: 65536, grown after 3; the overflows of slots 4 and 5 on rank 1 halve it on both.
  const std::vector<double> expected = steady({{3, 65536}, {2, 131072}, {1, 65536}, {3, 32768}, {3, 65536}});
  EXPECT_EQ(scales.take(0), expected);
  EXPECT_EQ(scales.take(1), expected);
  EXPECT_EQ(result.metrics.at("train/skipped_updates"), 2);
  EXPECT_EQ(result.metrics.at("train/loss_scale"), 65536);
  const std::vector<Update> updates = probe_log.take();
  EXPECT_EQ(updates.size(), 20u) << "10 on each rank";
}

TEST(LossScale, P34_ReplicasThatUpdateAloneDecideAlone) {
  const Folder folder;
  train(plugin,
        kTwoReplicas + pull("burst = 4\nburst_end = 6", "interval = 3\n") + "[sync]\ntype = 'alone'\n",
        {"run.steps=8"}, folder);
  EXPECT_EQ(scales.take(0), steady({{3, 65536}, {3, 131072}, {2, 262144}}));
  EXPECT_EQ(scales.take(1), steady({{3, 65536}, {2, 131072}, {1, 65536}, {2, 32768}}));
  probe_log.take();
}

TEST(LossScale, P42_ARefusedUpdateLeavesEverythingAlone) {
  const Folder folder;
  train(plugin, pull("burst = 3\nburst_end = 5\nrank = 0", ""), {"run.steps=8"}, folder);
  scales.take(0);
  const std::vector<Update> updates = probe_log.take(0);
  ASSERT_EQ(updates.size(), 6u) << "no call of the optimizer in slots 3 and 4, so no moment can have moved";
  for (std::size_t i = 0; i < updates.size(); ++i) {
    EXPECT_EQ(updates[i].count, static_cast<std::int64_t>(i) + 1);
    // Weights before an update: 1 + 0.1 * 2^-6 per update so far, in float32.
    EXPECT_NEAR(updates[i].weight[0], 1 + 0.1 / 64 * static_cast<double>(i), 1e-6);
  }
}

TEST(LossScale, P41_MasterWeightsTakeWhatBinary16Loses) {
  const Folder folder;
  train(plugin, pull("slope = 1.0", "loss_scale = 'static'\nscale = 8.0\n"),
        {"run.steps=4097", "run.log_every=4097", "optimizer.lr=2.44140625e-4"}, folder);
  scales.take(0);
  const std::vector<Update> updates = probe_log.take(0);
  ASSERT_EQ(updates.size(), 4097u);
  EXPECT_EQ(updates[0].weight[0], 1.0);
  EXPECT_EQ(updates[4096].weight[0], 2.0) << "after 4096 updates of 2^-12";

  tenon::testing::Bench bench("cpu", "reference", 1);
  auto& quant = bench.device->family<QuantOps>();
  float half = 1;
  for (int i = 0; i < 4096; ++i) {
    half += 0x1p-12F;
    quant.round_to_f16({&half, Shape{1}}, {&half, Shape{1}});
  }
  EXPECT_EQ(half, 1.0F) << "half a unit of binary16 at 1 is 2^-11";
}

TEST(LossScale, P41_SmallGradientsNeedTheScale) {
  const auto gradient = [](const std::string& inner) {
    const Folder folder;
    train(plugin, pull("slope = 2.98023223876953125e-08", inner), {"run.steps=1"}, folder);
    scales.take(0);
    return probe_log.take(0).at(0).gradient.at(0);
  };
  EXPECT_EQ(gradient("loss_scale = 'none'"), 0.0) << "2^-25 is half of the smallest subnormal";
  EXPECT_EQ(gradient("loss_scale = 'static'\nscale = 8.0"), -0x1p-25);
  EXPECT_EQ(gradient("loss_scale = 'none'\ngradients = 'fp32'"), -0x1p-25);
}

TEST(LossScale, ResumesBetweenTwoGrowths) {
  const Folder folder;
  const std::string toml = pull("burst = 4\nrank = 0", "scaler = 'megatron'\ninterval = 5\ninit = 1024.0\n") +
                           "[recovery]\ntype = 'full'\nasync = false\nevery = 8\n";
  const RunResult whole = train(plugin, toml, {"run.steps=16"}, folder, "whole");
  const std::vector<double> expected = scales.take(0);
  train(plugin, toml, {"run.steps=16", "run.max_samples=16"}, folder, "parts");
  std::vector<double> found = scales.take(0);
  ASSERT_EQ(found.size(), 8u);
  const RunResult resumed = train(plugin, toml, {"run.steps=16"}, folder, "parts", true);
  const std::vector<double> rest = scales.take(0);
  found.insert(found.end(), rest.begin(), rest.end());
  EXPECT_EQ(found, expected);
  // Overflow in slot 4 spends one of two; growth after slots 5 to 9, two slots after the save.
  EXPECT_EQ(expected, steady({{10, 1024}, {5, 2048}, {1, 4096}}));
  EXPECT_EQ(resumed.state_hash, whole.state_hash);
  probe_log.take();
}

TEST(LossScale, AScaleOfOneStillAnswersOverflow) {
  const Folder folder;
  // The scale cannot shrink, and yet the run continues while patience lasts.
  const RunResult result =
      train(plugin, pull("burst = 2\nburst_end = 4\nrank = 0", "init = 1.0\n"), {"run.steps=6"}, folder);
  EXPECT_EQ(result.metrics.at("train/skipped_updates"), 2)
      << "1e35 is infinite in binary16, whatever the scale";
  EXPECT_EQ(scales.take(0), steady({{6, 1}}));
  probe_log.take();
}

TEST(LossScale, WithoutOneOverflowIsLeftToOnNan) {
  const Folder folder;
  const std::string toml = pull("burst = 2\nrank = 0", "loss_scale = 'none'\n");
  const RunResult stopped = try_train(plugin, toml, {"run.steps=6"}, folder, "stop", false);
  EXPECT_EQ(stopped.status, "failed");
  EXPECT_THAT(stopped.error, ::testing::HasSubstr("gradient norm is infinite at step 2"));
  const RunResult went_on = train(plugin, toml, {"run.steps=6", "run.on_nan=continue"}, folder, "continue");
  EXPECT_EQ(went_on.metrics.at("train/skipped_updates"), 1);
  scales.take(0);
  probe_log.take();
}

TEST(LossScale, AtTheFloorTheRunEndsWithAdvice) {
  const Folder folder;
  const RunResult result =
      try_train(plugin, pull("burst = 2\nburst_end = 100\nrank = 0", "init = 4.0\npatience = 5\n"),
                {"run.steps=40"}, folder, "run", false);
  EXPECT_EQ(result.status, "failed");
  EXPECT_THAT(
      result.error,
      ::testing::HasSubstr(
          "gradients were not finite in 5 slots in a row although the loss scale is at its floor, 1: a "
          "smaller scale would not help. Lower optimizer.lr, set run.clip"));
  EXPECT_EQ(scales.take(0), steady({{3, 4}, {1, 2}, {5, 1}}));
  probe_log.take();
}

}  // namespace
}  // namespace rehearsal::loss_scale_test
