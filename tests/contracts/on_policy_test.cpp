// Rehearses data that the model makes: before each slot a data set draws two candidates for every sample and
// keeps the one of the smaller loss under the live weights. What it makes depends on the seed, the slot and
// the weights alone, so a slot that is run again has the same samples.
#include "support.hpp"

#include <tenon/executor.hpp>
#include <tenon/on_policy.hpp>
#include <tenon/testing/components.hpp>

#include <cstring>

namespace rehearsal::on_policy_test {
namespace {

using namespace tenon;

constexpr std::int64_t kWide = 4, kBatch = 3;

/// Field x [width] f32.
class BestOfTwo final : public Dataset, public OnPolicyDataset {
 public:
  static constexpr ComponentInfo kInfo{.id = "best_of_two", .summary = "samples that the model likes better"};
  explicit BestOfTwo(const Options&) {
    info_.fields = {{"x", DType::kF32, Shape{kWide}}};
    info_.train_samples = 1 << 20;
  }
  void open(std::uint64_t seed_order) override { key_ = random_key(seed_order, "best of two"); }
  std::int64_t batch() const override { return kBatch; }
  const DataInfo& info() const override { return info_; }
  void read(const BatchRequest& request, std::span<const TensorView> fields) override {
    ASSERT_GE(request.first, first_);
    ASSERT_LE((request.first - first_ + request.count) * kWide, static_cast<std::int64_t>(made_.size()));
    std::copy_n(made_.data() + (request.first - first_) * kWide, request.count * kWide,
                fields[0].as<float>());
  }
  void* query(std::string_view id) override {
    return id == OnPolicyDataset::kId ? static_cast<OnPolicyDataset*>(this) : nullptr;
  }

  void make(LiveModel& model, std::int64_t slot, std::int64_t first, std::int64_t count) override {
    first_ = first;
    made_.assign(count * kWide, 0);
    std::vector<float> batch(kBatch * kWide);
    const TensorView view{batch.data(), Shape{kBatch, kWide}};
    for (std::int64_t i = 0; i < count; ++i) {
      double least = 0;
      for (std::uint64_t candidate = 0; candidate < 2; ++candidate) {
        float drawn[kWide];
        for (std::int64_t j = 0; j < kWide; ++j) drawn[j] = draw(slot, first + i, candidate, j);
        // The loss is a sum over the batch, which holds the candidate alone.
        for (std::int64_t b = 0; b < kBatch; ++b) std::copy_n(drawn, kWide, batch.data() + b * kWide);
        model.forward({&view, 1});
        const double loss = model.value("loss").as<double>()[0];
        if (candidate > 0 && loss >= least) continue;
        least = loss;
        std::copy_n(drawn, kWide, made_.data() + i * kWide);
      }
    }
  }
  float draw(std::int64_t slot, std::int64_t sample, std::uint64_t candidate, std::int64_t j) const {
    return static_cast<float>(random_normal(
        key_, static_cast<std::uint64_t>(slot),
        (static_cast<std::uint64_t>(sample) * 2 + candidate) * kWide + static_cast<std::uint64_t>(j)));
  }

 private:
  DataInfo info_;
  RandomKey key_;
  std::int64_t first_ = 0;
  std::vector<float> made_;
};

TENON_STATIC_PLUGIN(plugin,
                    PluginInfo{
                        .id = "rehearsal.on_policy", .version = "1.0.0", .summary = "samples of the model"},
                    BestOfTwo)

/// A loop of one rank: gradient descent on the loss of the support's model.
class Loop final : private LiveModel {
 public:
  explicit Loop(std::uint64_t seed) : bench_("cpu", "reference", 1) {
    bench_.registry.add_builtin(support_plugin);
    bench_.registry.add_builtin(plugin);
    data_ = bench_.make_component<Dataset>("best_of_two", "");
    data_->open(seed);
    policy_ = static_cast<OnPolicyDataset*>(data_->query(OnPolicyDataset::kId));
    ExecutorSpec spec;
    spec.layers = bench_.layers.get();
    spec.device = bench_.device.component.get();
    spec.host = &bench_.host;
    spec.precision = &precision_;
    spec.batch = kBatch;
    const GraphSpec graph{{{"loss", "quadratic", {"x"}, {}}}};
    trained_ = std::make_unique<Executor>(spec, graph, data_->info());
    spec.training = false;
    live_ = std::make_unique<Executor>(spec, graph, data_->info());
    const auto& parameters = trained_->parameters();
    weights_ = make_parameter_set("live", parameters, *bench_.device, SetContents::kEverything);
    gradients_ = make_parameter_set("gradients", parameters, *bench_.device, SetContents::kGradients);
    initialise(*weights_, 1, *bench_.device);
  }

  std::vector<float> w() const {
    const auto values = weights_->tensor(0).span<float>();
    return {values.begin(), values.end()};
  }
  void set(const std::vector<float>& w) {
    std::copy(w.begin(), w.end(), weights_->tensor(0).as<float>());
    weights_->touch(-1);
  }
  /// Returns the samples of the slot.
  std::vector<float> slot(std::int64_t slot) {
    policy_->make(*this, slot, slot * kBatch, kBatch);
    data_->read({Split::kTrain, slot * kBatch, kBatch}, trained_->inputs());
    const auto x = trained_->inputs()[0].span<float>();
    const std::vector<float> samples(x.begin(), x.end());
    trained_->forward(*weights_, {.slot = slot});
    trained_->backward(*weights_, *gradients_, 1.0 / kBatch, true, {});
    for (std::int64_t j = 0; j < kWide; ++j)
      weights_->tensor(0).as<float>()[j] -= 0.3F * gradients_->tensor(0).as<float>()[j];
    weights_->touch(-1);
    return samples;
  }
  const BestOfTwo& data() const { return static_cast<const BestOfTwo&>(*data_); }

 private:
  void forward(std::span<const TensorView> fields) override {
    std::memcpy(live_->inputs()[0].data, fields[0].data, static_cast<std::size_t>(fields[0].bytes()));
    live_->forward(*weights_, {.training = false});
  }
  TensorView value(std::string_view name) override { return live_->value(name); }

  tenon::testing::Bench bench_;
  PlainPrecision precision_;
  tenon::testing::Made<Dataset> data_;
  OnPolicyDataset* policy_ = nullptr;
  std::unique_ptr<Executor> trained_, live_;
  std::unique_ptr<ParameterSet> weights_, gradients_;
};

using Rows = std::vector<std::vector<float>>;

TEST(OnPolicy, SamplesFollowTheSeedTheSlotAndTheWeights) {
  constexpr int kSlots = 8, kAgain = 5;
  Loop whole(7), same(7), other(8);
  Rows samples, weights;
  for (int slot = 0; slot < kSlots; ++slot) {
    weights.push_back(whole.w());
    samples.push_back(whole.slot(slot));
    EXPECT_EQ(same.slot(slot), samples.back()) << slot;
    EXPECT_NE(other.slot(slot), samples.back()) << slot;
  }
  EXPECT_EQ(same.w(), whole.w());
  EXPECT_NE(weights[1], weights[0]);

  // A run that goes on from the weights of a slot has its samples, whatever came before.
  Loop resumed(7);
  resumed.set(weights[kAgain]);
  for (int slot = kAgain; slot < kSlots; ++slot) EXPECT_EQ(resumed.slot(slot), samples[slot]) << slot;
  EXPECT_EQ(resumed.w(), whole.w());

  // With other weights the same slot has others: the live ones chose, and each choice is the nearer
  // candidate.
  int differ = 0;
  for (int slot = 0; slot < kSlots; ++slot) {
    Loop far(7);
    far.set(std::vector<float>(kWide, slot % 2 == 0 ? 3.0F : -3.0F));
    differ += far.slot(slot) == samples[slot] ? 0 : 1;
    for (int i = 0; i < kBatch; ++i) {
      double distance[2] = {};
      for (std::uint64_t c = 0; c < 2; ++c) {
        for (int j = 0; j < kWide; ++j) {
          const double apart = whole.data().draw(slot, slot * kBatch + i, c, j) - weights[slot][j];
          distance[c] += apart * apart;
        }
      }
      const std::uint64_t nearer = distance[1] < distance[0] ? 1 : 0;
      for (int j = 0; j < kWide; ++j)
        EXPECT_EQ(samples[slot][i * kWide + j], whole.data().draw(slot, slot * kBatch + i, nearer, j))
            << slot << ", " << i;
    }
  }
  EXPECT_GT(differ, 0);
}

}  // namespace
}  // namespace rehearsal::on_policy_test
