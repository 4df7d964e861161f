// Rehearses weights tied between two layers that both keep running statistics: one parameter with the
// gradient of both users, and buffers that micro-batches update, that a refused slot leaves unchanged, and
// that two replicas average.
#include "support.hpp"

#include <tenon/sync.hpp>

#include <set>

namespace rehearsal::tied_running_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWidth = 16, kBatch = 2, kRefused = 2, kSlots = 6;
constexpr float kStart = 1.5F;

/// y = x * scale with the one parameter "scale" of all such layers; buffer "<node>.mean" follows the mean of
/// x.
class Scaled final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "scaled", .summary = "a tied scale with running statistics"};
  explicit Scaled(const Options&) {}
  void infer(InferContext& context) override {
    scale_ = context.parameter(vector_parameter("scale", kWidth, Initializer::kConstant, kStart));
    auto mean = vector_parameter(std::string(context.name()) + ".mean", kWidth, Initializer::kZero, 0);
    mean.role = Role::kBuffer;
    mean_ = context.parameter(mean);
    context.keep_input(0);
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    const auto x = context.input(0).span<float>(), y = context.output(0).span<float>();
    const float* scale = context.parameter(scale_).as<float>();
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale[i % kWidth];
    if (!context.training()) return;
    float* mean = context.staged(mean_).as<float>();
    for (std::size_t j = 0; j < kWidth; ++j) mean[j] = mean[j] / 2 + (x[j] + x[kWidth + j]) / kBatch / 2;
  }
  void backward(BackwardContext& context) override {
    const auto x = context.input(0).span<float>(), dy = context.output_gradient(0).span<float>();
    const float* scale = context.parameter(scale_).as<float>();
    const GradientSink dx = context.input_gradient(0), sums = context.gradient(scale_);
    if (!sums.accumulate) std::fill_n(sums.view.as<float>(), kWidth, 0.0F);
    for (std::size_t i = 0; i < x.size(); ++i) {
      sums.view.as<float>()[i % kWidth] += dy[i] * x[i];
      if (!dx.view.empty()) dx.view.as<float>()[i] = dy[i] * scale[i % kWidth];
    }
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  ParameterRef scale_, mean_;
};

std::mutex seen_mutex;
std::vector<float> seen_means[2];  // element 3 of "a.mean" at each slot's backward, by replica
std::set<std::string> seen_names;

class Watch final : public SyncDecorator {
 public:
  static constexpr OptionSpec kOptions[] = {option::component("inner", "sync/1").mandatory()};
  static constexpr ComponentInfo kInfo{.id = "watch", .summary = "looks at buffers", .options = kOptions};
  explicit Watch(const Options& options) : SyncDecorator(options.component<Sync>("inner")) {}
  void finish_gradients() override {
    const std::lock_guard lock(seen_mutex);
    for (const ParameterInfo& info : replica().live().parameters()) {
      seen_names.insert(info.spec.name);
      if (info.spec.name != "a.mean") continue;
      seen_means[replica().replica()].push_back(replica().live().tensor(info.index).as<float>()[3]);
    }
    SyncDecorator::finish_gradients();
  }
};

class Refuses final : public PlainPrecision {
 public:
  static constexpr ComponentInfo kInfo{.id = "refuses", .summary = "refuses one slot"};
  explicit Refuses(const Options&) {}
  bool after_backward(const BackwardStats& stats) override { return stats.slot != kRefused; }
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "rehearsal.tied", .version = "1.0.0", .summary = "tied"}, Scaled,
                    Watch, Refuses)

TEST(TiedRunning, SharesOneParameterAndPublishesAppliedStatisticsOnly) {
  const Folder folder;
  const std::string graph =
      "model.layer=[{name='a', type='scaled', inputs=['x']}, {name='b', type='scaled'}, {name='loss', "
      "type='quadratic'}]";
  train(plugin,
        std::string(kTwoReplicas) +
            "[sync]\ntype = 'watch'\n[sync.inner]\ntype = 'ddp'\n[precision]\ntype = 'refuses'\n",
        {graph, "run.steps=6", "run.accumulate=2"}, folder);

  EXPECT_EQ(seen_names, (std::set<std::string>{"scale", "w", "a.mean", "b.mean"}));
  const auto mean_of = [](std::int64_t micro, int r) {
    return (point((micro * 2 + r) * kBatch, 3) + point((micro * 2 + r) * kBatch + 1, 3)) / 2.0;
  };
  double mean = 0;
  for (std::int64_t t = 0; t < kSlots; ++t) {
    for (const auto& means : seen_means) EXPECT_NEAR(means.at(t), mean, 1e-6) << t;
    double next = 0;
    for (int r = 0; r < 2; ++r) next += ((mean + mean_of(2 * t, r)) / 2 + mean_of(2 * t + 1, r)) / 2 / 2;
    if (t != kRefused) mean = next;
  }
  // d(|s^2 x - w|^2 / 2) / ds = (s^2 x - w) 2 s x: both uses of the one scale.
  double expected = 0;
  const auto w = static_cast<float>(random_normal(random_key(1, "init:w"), 0, 3));
  for (std::int64_t i = 0; i < 8; ++i)
    expected += (kStart * kStart * point(i, 3) - w) * 2 * kStart * point(i, 3) / 8;
  std::vector<Update> updates = probe_log.take(0);
  std::erase_if(updates, [](const Update& update) { return update.weight[0] != kStart; });
  ASSERT_EQ(updates.size(), 1U) << "updated once, though two layers use it";
  EXPECT_NEAR(updates[0].gradient[3], expected, 1e-5);
}

}  // namespace
}  // namespace rehearsal::tied_running_test
