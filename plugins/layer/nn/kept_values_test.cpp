// Outputs that stay readable after forward while all other memory is reused: the bits and the bytes, in
// evaluation and in training, and what is refused.
#include <tenon/executor.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/testing/poisoned_device.hpp>
#include <tenon/testing/tensors.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace tenon::testing::kept_values_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr std::int64_t kBatch = 4, kWidth = 64;

/// A chain with a map that a product applies with equal bits (relu), and one that it applies with others
/// (gelu).
GraphSpec chain() {
  const auto linear = [](const char* name, const char* input, std::int64_t features) {
    return NodeSpec{name, "linear", {input}, {{"features", features}}};
  };
  return {{linear("a", "x", 96),
           {"r", "relu", {"a"}, {}},
           linear("b", "r", 80),
           {"g", "gelu", {"b"}, {}},
           linear("c", "g", 72),
           linear("d", "c", 88),
           linear("y", "d", kWidth),
           {"loss", "mse", {"y", "target"}, {}}}};
}

DataInfo data() {
  DataInfo info;
  info.fields = {{"x", DType::kF32, {kWidth}}, {"target", DType::kF32, {kWidth}}};
  return info;
}

struct How {
  bool training = false, keep_values = false;
  std::vector<std::string> keep = {};
};

class Kept : public ::testing::TestWithParam<const char*> {
 protected:
  Kept()
      : bench_("cpu", "auto", 1),
        poisoned_(*bench_.device),
        policy_(bench_.make_component<Precision>(GetParam(), "")) {}

  std::unique_ptr<Executor> make(const How& how) {
    ExecutorSpec spec;
    spec.layers = bench_.layers.get(), spec.device = &poisoned_, spec.host = &bench_.host;
    spec.precision = &*policy_;
    spec.batch = kBatch;
    spec.training = how.training, spec.keep_values = how.keep_values, spec.keep = how.keep;
    return std::make_unique<Executor>(spec, chain(), data());
  }
  std::unique_ptr<ParameterSet> weights(Executor& executor) {
    auto set = make_parameter_set("live", executor.parameters(), poisoned_, SetContents::kEverything);
    initialise(*set, 3, poisoned_);
    return set;
  }
  void forward(Executor& executor, ParameterSet& weights, bool training) {
    write(poisoned_, executor.inputs()[0], normals(kBatch * kWidth, "x"));
    write(poisoned_, executor.inputs()[1], normals(kBatch * kWidth, "target"));
    executor.forward(weights, {.training = training});
  }
  std::vector<double> value(Executor& executor, const char* name) {
    return read(poisoned_, executor.value(name));
  }

  Bench bench_;
  PoisonedDevice poisoned_;
  Made<Precision> policy_;
};

TEST_P(Kept, EveryNodeHasTheBitsThatItHasWhenAllAreKept) {
  for (const bool training : {false, true}) {
    const auto all = make({.training = training, .keep_values = true});
    const auto set = weights(*all);
    forward(*all, *set, training);
    for (const char* name : {"a", "r", "b", "g", "c", "d", "y"}) {
      const auto some = make({.training = training, .keep = {name}});
      const auto own = weights(*some);
      forward(*some, *own, training);
      EXPECT_EQ(value(*some, name), value(*all, name)) << name << (training ? ", training" : "");
    }
  }
}

TEST_P(Kept, SeveralAreReadAfterBackwardToo) {
  const auto all = make({.training = true, .keep_values = true}),
             some = make({.training = true, .keep = {"c", "a"}});
  std::vector<std::vector<double>> gradients;
  for (Executor* executor : {all.get(), some.get()}) {
    const auto set = weights(*executor);
    const auto sum =
        make_parameter_set("gradients", executor->parameters(), poisoned_, SetContents::kGradients);
    forward(*executor, *set, true);
    const std::vector<double> a = value(*executor, "a"), c = value(*executor, "c");
    EXPECT_EQ(a, value(*all, "a"));
    EXPECT_EQ(c, value(*all, "c"));
    executor->backward(*set, *sum, 0.25, true, {});
    EXPECT_EQ(value(*executor, "a"), a) << "backward took its memory";
    EXPECT_EQ(value(*executor, "c"), c) << "backward took its memory";
    gradients.push_back(read(poisoned_, sum->arena(0)));
  }
  EXPECT_EQ(gradients[1], gradients[0]);
}

TEST_P(Kept, TakesTheMemoryOfWhatIsKeptAndNoMore) {
  for (const bool training : {false, true}) {
    const auto bytes = [&](const How& how) { return make(how)->activation_bytes(); };
    const std::int64_t none = bytes({.training = training}),
                       kept = bytes({.training = training, .keep = {"a", "c"}}),
                       all = bytes({.training = training, .keep_values = true});
    EXPECT_GE(kept, none);
    // Kernels without products in bf16 convert operands, in scratch that may be the peak of every plan.
    if (policy_->activations() == DType::kF32)
      EXPECT_LT(kept, all);
    else
      EXPECT_LE(kept, all);
  }
  const auto some = make({.keep = {"a", "c"}});
  const std::size_t element = policy_->activations() == DType::kF32 ? 4 : 2;
  bool found = false;
  for (const PlanLine& line : some->memory_plan()) {
    if (line.what != "outputs kept after forward (planned)") continue;
    found = true;
    EXPECT_EQ(line.bytes, element * kBatch * (96 + 72));
  }
  EXPECT_TRUE(found);
  for (const PlanLine& line : make({})->memory_plan())
    EXPECT_NE(line.what, "outputs kept after forward (planned)");
}

TEST_P(Kept, AMapIsFoldedOnlyWhereNoBitShows) {
  EXPECT_THAT(make({})->folded_nodes(), ElementsAre("r", "g"));
  EXPECT_THAT(make({.keep = {"y"}})->folded_nodes(), ElementsAre("r")) << "a product's gelu has other bits";
  EXPECT_THAT(make({.keep = {"r"}})->folded_nodes(), ElementsAre("r")) << "the map's own output is there";
  EXPECT_THAT(make({.keep = {"a"}})->folded_nodes(), IsEmpty()) << "what the map reads is kept";
}

INSTANTIATE_TEST_SUITE_P(Policies, Kept, ::testing::Values("fp32", "bf16"),
                         [](const ::testing::TestParamInfo<const char*>& info) {
                           return std::string(info.param);
                         });

TEST(KeptNames, UnknownOnesAreRefusedWithThoseThereAre) {
  Bench bench("cpu", "reference", 1);
  const auto policy = bench.make_component<Precision>("fp32", "");
  ExecutorSpec spec;
  spec.layers = bench.layers.get(), spec.device = &*bench.device, spec.host = &bench.host;
  spec.precision = &*policy;
  spec.training = false;
  spec.keep = {"c", "e", "y:1"};
  try {
    const Executor executor(spec, chain(), data());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_STREQ(error.what(),
                 "the graph has no value 'e', 'y:1' to keep; it has x, target, a, r, b, g, c, d, y, loss");
  }
}

}  // namespace
}  // namespace tenon::testing::kept_values_test
