// Rehearses losses that choose which samples count: micro-batches with different numbers of counted samples,
// on two replicas. The optimizer sees the gradient of each replica's mean over all its counted samples.
#include "support.hpp"

namespace rehearsal::ragged_counts_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 16, kBatch = 2, kMicros = 3;

bool counted(std::int64_t sample) {
  return point(sample, 0) > -0.3F;
}

/// |w - x|^2 / 2 of the samples whose first element is above -0.3; the others count for nothing.
class Ragged final : public Loss {
 public:
  static constexpr ComponentInfo kInfo{.id = "ragged", .summary = "counts some samples"};
  explicit Ragged(const Options&) {}
  void infer(InferContext& context) override {
    context.keep_input(0);
    context.output({Shape{2}, DType::kF64});
    w_ = context.parameter(vector_parameter("w", kWidth, Initializer::kZero, 0));
  }
  void forward(ForwardContext& context) override {
    const auto out = context.output(0).span<double>();
    out[0] = out[1] = 0;
    for (std::int64_t b = 0; b < kBatch; ++b)
      out[1] += context.input(0).as<float>()[b * kWidth] > -0.3F ? 1 : 0;
  }
  void backward(BackwardContext& context) override {
    const float *x = context.input(0).as<float>(), *w = context.parameter(w_).as<float>();
    const GradientSink dw = context.gradient(w_);
    for (std::int64_t j = 0; j < kWidth; ++j) {
      double sum = dw.accumulate ? dw.view.as<float>()[j] : 0;
      for (std::int64_t b = 0; b < kBatch; ++b)
        sum += x[b * kWidth] > -0.3F ? seed_ * (w[j] - x[b * kWidth + j]) : 0;
      dw.view.as<float>()[j] = static_cast<float>(sum);
    }
  }

 private:
  ParameterRef w_;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.ragged", .version = "1.0.0", .summary = "ragged"},
                    Ragged)

TEST(RaggedCounts, GiveTheGradientOfTheMeanOfAllThatCount) {
  const Folder folder;
  train(plugin, std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\n",
        {"model.layer=[{name='loss', type='ragged', inputs=['x']}]", "run.accumulate=3", "run.steps=8"},
        folder);
  const std::vector<Update> updates = probe_log.take(0);
  ASSERT_EQ(updates.size(), 8U);
  int unequal = 0;
  for (std::int64_t t = 0; t < 8; ++t) {
    const Update& update = updates[t];
    for (std::int64_t j = 0; j < kWidth; ++j) {
      double mean = 0;
      std::int64_t counts[2] = {0, 0};
      for (std::int64_t r = 0; r < 2; ++r) {
        double sum = 0;
        for (std::int64_t i = 0; i < kMicros * kBatch; ++i) {
          const std::int64_t sample = ((t * kMicros + i / kBatch) * 2 + r) * kBatch + i % kBatch;
          if (!counted(sample % 64)) continue;
          ++counts[r];
          sum += update.weight[j] - point(sample % 64, j);
        }
        mean += sum / static_cast<double>(counts[r]) / 2;
      }
      unequal += counts[0] != counts[1] ? 1 : 0;
      EXPECT_NEAR(update.gradient[j], mean, 1e-5) << "slot " << t;
    }
  }
  EXPECT_GT(unequal, 0) << "the samples must make a difference";
}

TEST(RaggedCounts, ReplicasWeighByWhatTheyCountedIfAsked) {
  const Folder folder;
  train(plugin, std::string(kTwoReplicas) + "[sync]\ntype = 'ddp'\nweigh_by = 'count'\n",
        {"model.layer=[{name='loss', type='ragged', inputs=['x']}]", "run.accumulate=3", "run.steps=8"},
        folder);
  const std::vector<Update> updates = probe_log.take(0);
  ASSERT_EQ(updates.size(), 8U);
  double apart = 0;
  for (std::int64_t t = 0; t < 8; ++t) {
    const Update& update = updates[t];
    for (std::int64_t j = 0; j < kWidth; ++j) {
      double sums[2] = {0, 0}, counts[2] = {0, 0};
      for (std::int64_t r = 0; r < 2; ++r) {
        for (std::int64_t i = 0; i < kMicros * kBatch; ++i) {
          const std::int64_t sample = ((t * kMicros + i / kBatch) * 2 + r) * kBatch + i % kBatch;
          if (!counted(sample % 64)) continue;
          ++counts[r];
          sums[r] += update.weight[j] - point(sample % 64, j);
        }
      }
      const double mean = (sums[0] + sums[1]) / (counts[0] + counts[1]);
      apart = std::max(apart, std::abs(mean - (sums[0] / counts[0] + sums[1] / counts[1]) / 2));
      EXPECT_NEAR(update.gradient[j], mean, 1e-5) << "slot " << t;
    }
  }
  EXPECT_GT(apart, 1e-2) << "the mean of means is another one";
}

}  // namespace
}  // namespace rehearsal::ragged_counts_test
