// Norms, ratios and dead units of tensors with answers known by hand, and the slots that are observed.
#include "health.hpp"

#include "base/testing/allocation_count.hpp"

#include <tenon/config.hpp>
#include <tenon/testing/components.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

namespace tenon::health {
namespace {

struct Line {
  std::int64_t step;
  double value;
};

/// A host that collects metrics.
class SinkHost final : public Host, public MetricSink {
 public:
  void log(LogLevel, std::string_view) override {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  double now() const override { return 0; }
  std::unique_ptr<Actor> spawn(std::string_view, std::function<void(Actor&)>) override { return nullptr; }
  double deadline() const override { return 1; }
  void* query(std::string_view id) override {
    return id == MetricSink::kId ? static_cast<MetricSink*>(this) : nullptr;
  }
  void record(std::string_view, double) override {}
  void add(std::int64_t step, Split, std::string_view name, double value) override {
    if (keep) lines[std::string(name)] = {step, value};
    ++added;
  }
  std::map<std::string, Line> lines;
  int added = 0;
  bool keep = true;
};

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "test.health", .version = "1.0.0", .summary = "health"}, Health)

class HealthTest : public ::testing::Test {
 protected:
  HealthTest() { registry_.add_builtin(plugin); }
  testing::Made<Observer> make(const std::string& toml) {
    return testing::make<Observer>(registry_, host_, "health", toml);
  }
  static TensorObserver& tensors(testing::Made<Observer>& made) {
    return *static_cast<TensorObserver*>(made->query(TensorObserver::kId));
  }
  static SlotRecord slot(std::int64_t number) {
    SlotRecord record;
    record.slot = number;
    return record;
  }

  Registry registry_;
  SinkHost host_;
};

struct Parameter {
  Parameter(std::string name, std::vector<float> old, std::vector<float> fresh, std::vector<float> g)
      : before(std::move(old)), after(std::move(fresh)), gradient(std::move(g)) {
    info.spec.name = std::move(name);
  }
  ObservedParameter view(double scale) {
    const Shape shape{static_cast<std::int64_t>(before.size())};
    return {&info, {before.data(), shape}, {after.data(), shape}, {gradient.data(), shape}, scale};
  }
  ParameterInfo info;
  std::vector<float> before, after, gradient;
};

TEST_F(HealthTest, NormsAndRatiosPerLayer) {
  auto health = make("every = 5");
  EXPECT_FALSE(tensors(health).tensors(3).parameters);
  const TensorRequest request = tensors(health).tensors(4);
  EXPECT_TRUE(request.parameters);
  EXPECT_TRUE(request.outputs);
  // Layer h.0.q: |g| = 2 * 5 / 2, |dw| = 0.5, |w| = 10; a zero bias shares the layer.
  Parameter weight("h.0.q.weight", {6, 8}, {6.3F, 8.4F}, {6, 8});
  Parameter bias("h.0.q.bias", {0}, {0}, {0});
  Parameter fresh("h.1.q.bias", {0}, {1}, {4});
  const ObservedParameter all[] = {weight.view(0.5), bias.view(0.5), fresh.view(0.5)};
  tensors(health).on_parameters(all);
  health->on_slot(slot(4));
  ASSERT_EQ(host_.lines.size(), 3u);
  EXPECT_EQ(host_.lines.at("grad_norm/h.0.q").step, 5);
  EXPECT_DOUBLE_EQ(host_.lines.at("grad_norm/h.0.q").value, 5);
  EXPECT_NEAR(host_.lines.at("update_ratio/h.0.q").value, 0.05, 1e-7);  // 6.3 and 8.4 are rounded to f32
  EXPECT_DOUBLE_EQ(host_.lines.at("grad_norm/h.1.q").value, 2);
  EXPECT_EQ(host_.lines.count("update_ratio/h.1.q"), 0u) << "weights of zero have no ratio";
}

TEST_F(HealthTest, LongTensorsAreSummedWhole) {
  auto health = make("every = 1");
  const std::size_t n = 1000;  // more than one block of the loop
  Parameter long_one("w", std::vector<float>(n, 2), std::vector<float>(n, 3), std::vector<float>(n, 1));
  tensors(health).tensors(0);
  const ObservedParameter view = long_one.view(1);
  tensors(health).on_parameters({&view, 1});
  health->on_slot(slot(0));
  EXPECT_DOUBLE_EQ(host_.lines.at("grad_norm/w").value, std::sqrt(1000.0));
  EXPECT_DOUBLE_EQ(host_.lines.at("update_ratio/w").value, 0.5);
}

TEST_F(HealthTest, DeadUnitsAreSilentForTheWholeBatch) {
  auto health = make("every = 1");
  tensors(health).tensors(0);
  // [3, 4]: unit 1 is silent, unit 2 nearly, unit 3 is active once.
  float flat[12] = {1, 0, 1e-7F, 0, 1, 0, -1e-7F, 0, 1, 0, 0, 2};
  tensors(health).on_output({"act", "relu", 0, {flat, Shape{3, 4}}});
  // [2, 2, 1, 2]: channel 1 is silent.
  float image[8] = {0, 5, 0, 0, 0, 0, 0, 0};
  tensors(health).on_output({"conv_act", "gelu", 0, {image, Shape{2, 2, 1, 2}}});
  tensors(health).on_output({"linear", "linear", 0, {flat, Shape{3, 4}}});
  health->on_slot(slot(0));
  EXPECT_EQ(host_.lines.at("dead_units/act").value, 0.5);
  EXPECT_EQ(host_.lines.at("dead_units/conv_act").value, 0.5);
  EXPECT_EQ(host_.lines.size(), 2u) << "only activations, and no update was seen";
  host_.lines.clear();
  tensors(health).tensors(1);
  health->on_slot(slot(1));
  EXPECT_TRUE(host_.lines.empty()) << "old numbers are not told twice";
}

TEST_F(HealthTest, NotANumberIsNotSilence) {
  auto health = make("every = 1\nactivations = ['tanh']");
  tensors(health).tensors(0);
  float values[2] = {std::nanf(""), 0};
  tensors(health).on_output({"act", "tanh", 0, {values, Shape{1, 2}}});
  health->on_slot(slot(0));
  EXPECT_EQ(host_.lines.at("dead_units/act").value, 0.5);
}

TEST_F(HealthTest, ASteadyLookAllocatesNothing) {
  auto health = make("every = 1");
  host_.keep = false;
  Parameter weight("q.weight", {6, 8}, {6.5F, 8}, {6, 8});
  const ObservedParameter view = weight.view(1);
  float flat[4] = {1, 0, 1, 0};
  std::int64_t before = 0;
  for (std::int64_t s = 0; s < 50; ++s) {
    if (s == 1) before = testing::allocation_count();
    tensors(health).tensors(s);
    tensors(health).on_output({"act", "relu", 0, {flat, Shape{2, 2}}});
    tensors(health).on_parameters({&view, 1});
    health->on_slot(slot(s));
  }
  EXPECT_EQ(testing::allocation_count(), before);
  EXPECT_EQ(host_.added, 150);
}

}  // namespace
}  // namespace tenon::health
