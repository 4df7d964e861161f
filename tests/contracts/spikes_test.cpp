// Rehearses training that diverges: the guard rolls back, moments start at zero, the rate rises again,
// batches are skipped, and a run that diverges repeatedly ends with a clear error.
#include "support.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/files.hpp>

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>

namespace rehearsal::spikes_test {
namespace {

using namespace tenon;
using ::testing::HasSubstr;

/// Samples that the loss received, slot by slot, over all attempts.
std::vector<std::pair<std::int64_t, float>> seen;

/// `quadratic` whose gradients explode in slot `at`, `times` times over the life of the process.
class Explosive final : public Loss {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("at", "-1"), option::integer("times", "1"),
                                            option::text("how", "'nan'")};
  static constexpr ComponentInfo kInfo{.id = "explosive", .summary = "explodes", .options = kOptions};
  explicit Explosive(const Options& options)
      : at_(options.integer("at")), times_(options.integer("times")), how_(options.text("how")) {}
  void infer(InferContext& context) override {
    context.keep_input(0);
    context.output({Shape{2}, DType::kF64});
    w_ = context.parameter(vector_parameter("w", context.input(0).shape[1], Initializer::kNormal, 1));
  }
  void forward(ForwardContext& context) override {
    const TensorView x = context.input(0), w = context.parameter(w_);
    // The first slot is computed twice (docs/determinism.md).
    const bool again = !seen.empty() && seen.back().first == context.step();
    if (context.training() && !again) seen.emplace_back(context.step(), x.as<float>()[0]);
    double sum = 0;
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const double distance = w.as<float>()[i % w.elements()] - x.as<float>()[i];
      sum += distance * distance / 2;
    }
    explodes_ = context.training() && context.step() >= at_ && at_ >= 0 && exploded < times_;
    if (explodes_ && how_ == "nan") ++exploded;
    context.output(0).as<double>()[0] = sum;
    context.output(0).as<double>()[1] = static_cast<double>(x.shape[0]);
  }
  void backward(BackwardContext& context) override {
    const TensorView x = context.input(0), w = context.parameter(w_);
    const GradientSink dw = context.gradient(w_);
    const float factor = !explodes_ ? 1.0f : how_ == "nan" ? std::numeric_limits<float>::quiet_NaN() : 1e4f;
    if (explodes_ && how_ == "norm") ++exploded;
    for (std::int64_t j = 0; j < w.elements(); ++j) {
      float sum = 0;
      for (std::int64_t b = 0; b < x.shape[0]; ++b)
        sum += w.as<float>()[j] - x.as<float>()[b * w.elements() + j];
      dw.view.as<float>()[j] = sum * static_cast<float>(seed_) * factor;
    }
  }
  static std::int64_t exploded;

 private:
  std::int64_t at_, times_;
  std::string how_;
  ParameterRef w_;
  bool explodes_ = false;
};
std::int64_t Explosive::exploded = 0;

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.spikes", .version = "1.0.0", .summary = "spikes"},
                    Explosive)

std::vector<std::string> sets(const std::string& explosive, const std::string& guard) {
  seen.clear();
  Explosive::exploded = 0;
  return {"model.layer=[{name='loss', type='explosive', inputs=['x']" + explosive + "}]",
          "optimizer={type='adamw', lr=0.01}",
          "recovery={type='spike_guard', inner={type='full', every=8, async=false}" + guard + "}",
          "run.steps=40", "run.log_every=1"};
}

std::string log_of(const Folder& folder) {
  const auto files = make_posix_files();
  return read_text(*files, folder.path + "/run/1/recovery.jsonl", 1 << 20);
}

/// Metric "name", by step.
std::map<std::int64_t, double> metric(const Folder& folder, const std::string& name) {
  const auto files = make_posix_files();
  const std::string text = read_text(*files, folder.path + "/run/1/metrics.jsonl", 1 << 22);
  std::map<std::int64_t, double> values;
  const std::string key = "\"name\": \"" + name + "\", \"value\": ";
  for (std::size_t at = 0; (at = text.find(key, at)) != std::string::npos; ++at) {
    const std::size_t step = text.rfind("\"step\": ", at) + 8;
    values[std::stoll(text.substr(step))] = std::stod(text.substr(at + key.size()));
  }
  return values;
}

TEST(Spikes, ANormThatIsNotFiniteLeadsBackWithANewWarmUp) {
  const Folder folder;
  const RunResult result = train(plugin, "", sets(", at=20", ", warmup=4"), folder);
  EXPECT_EQ(result.metrics.at("train/divergences"), 1);
  EXPECT_THAT(log_of(folder), HasSubstr(R"("slot":21,)"));
  EXPECT_THAT(log_of(folder), HasSubstr(R"("action":"diverged","from_slot":16)"));
  const auto rates = metric(folder, "lr");
  for (int slot = 0; slot < 5; ++slot)
    EXPECT_NEAR(rates.at(17 + slot), 0.01 * std::min(1.0, (slot + 1) / 5.0), 1e-12) << slot;
  EXPECT_NEAR(rates.at(16), 0.01, 1e-12);
  EXPECT_NEAR(rates.at(40), 0.01, 1e-12);
}

TEST(Spikes, AFiniteSpikeNeedsPatience) {
  const Folder folder;
  const std::string guard = ", after=10, window=10, patience=3";
  EXPECT_EQ(train(plugin, "", sets(", at=20, times=2, how='norm'", guard), folder, "two")
                .metrics.at("train/divergences"),
            0);
  EXPECT_EQ(train(plugin, "", sets(", at=20, times=3, how='norm'", guard), folder, "three")
                .metrics.at("train/divergences"),
            1);
}

TEST(Spikes, MomentsBeginAtZeroAndBatchesArePassedOver) {
  const Folder folder;
  // A canary would be one more batch.
  train(plugin, "", sets(", at=20", ", warmup=0, skip=5, canary=false"), folder);
  ASSERT_FALSE(seen.empty());
  std::vector<float> behind;  // first elements of the slots that were repeated
  for (std::size_t i = 21; i < 26 && i < seen.size(); ++i) {
    EXPECT_EQ(seen[i].first, static_cast<std::int64_t>(i) - 5) << "slot 16 and on";
    behind.push_back(seen[i].second);
  }
  for (std::size_t i = 0; i < behind.size(); ++i)
    EXPECT_EQ(behind[i], point((2 * (16 + 5 + static_cast<std::int64_t>(i))) % 64, 0))
        << "five batches later";
  const auto losses = metric(folder, "loss");
  const Folder kept;
  train(plugin, "", sets(", at=20", ", warmup=0, skip=5, reset_optimizer=false"), kept);
  EXPECT_EQ(metric(kept, "loss").at(17), losses.at(17)) << "the same weights and batch";
  EXPECT_NE(metric(kept, "loss").at(19), losses.at(19)) << "other moments";
}

TEST(Spikes, TheFirstUpdateBehindARollBackIsThatOfAFreshOptimizer) {
  const Folder folder;
  std::vector<std::string> words = sets(", at=20", ", warmup=0");
  words[1] = "optimizer={type='adamw', lr=0.01, weight_decay=0.0}";
  words[2] = "recovery={type='spike_guard', warmup=0, inner={type='full', every=1, async=false, keep=100}}";
  train(plugin, "", words, folder);
  const auto files = make_posix_files();
  CheckpointStore store(*files, folder.path + "/run/1/checkpoints", {});
  const auto weights = [&](std::int64_t slot) {
    CheckpointReader reader = store.open(slot);
    std::vector<float> w(16);
    for (const TensorSpec& tensor : reader.tensors()) {
      if (tensor.name.ends_with("model/w")) reader.read(tensor.name, {w.data(), Shape{16}});
    }
    return w;
  };
  // The first refused update was that of slot 20; the boundary after it leads back to slot 20. From zero,
  // Adam's first step is the rate in every element, whatever the gradient.
  const std::vector<float> before = weights(20), after = weights(21);
  for (std::size_t i = 0; i < before.size(); ++i)
    EXPECT_NEAR(std::abs(after[i] - before[i]), 0.01, 1e-5) << i;
}

TEST(Spikes, EndAfterSoManyRetries) {
  const Folder folder;
  const RunResult result =
      try_train(plugin, "", sets(", at=20, times=1000", ", retries=2"), folder, "run", false);
  EXPECT_EQ(result.status, "failed");
  EXPECT_THAT(result.error, HasSubstr("training diverged again before slot 21, after 2 roll-back(s) for it"));
}

TEST(Spikes, AResumeKeepsWhatARollBackChanged) {
  const Folder folder;
  const RunResult whole = train(plugin, "", sets(", at=20", ", warmup=30, skip=3"), folder, "whole");
  std::vector<std::string> budget = sets(", at=20", ", warmup=30, skip=3");
  budget.emplace_back("run.max_samples=56");  // stops after the roll-back, at slot 28
  train(plugin, "", budget, folder, "run");
  Explosive::exploded = 1;
  std::vector<std::string> rest = sets(", at=20", ", warmup=30, skip=3");
  Explosive::exploded = 1;
  const RunResult resumed = train(plugin, "", rest, folder, "run", true);
  EXPECT_EQ(resumed.weights_hash, whole.weights_hash);
}

TEST(Spikes, RefuseAnInnerPolicyThatSavesNothing) {
  const Folder folder;
  std::vector<std::string> bad = sets("", "");
  bad[2] = "recovery={type='spike_guard', inner={type='none'}}";
  EXPECT_THROW(
      {
        try {
          train(plugin, "", bad, folder);
        } catch (const Error& error) {
          EXPECT_THAT(error.what(), HasSubstr("its inner policy saves nothing"));
          throw;
        }
      },
      Error);
}

}  // namespace
}  // namespace rehearsal::spikes_test
