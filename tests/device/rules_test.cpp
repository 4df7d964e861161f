// Formulas and the rules that use them, on devices whose memory the host does not reach: the processor's bits
// if nothing is summed, a bound if something is, and no tensor is copied.
#include "device_test.hpp"

#include <tenon/ops/formula.hpp>
#include <tenon/optimizer.hpp>

#include <cmath>

namespace tenon::testing::rules_test {
namespace {

using ::testing::HasSubstr;

/// The tested device, with its copies counted, and optionally without formulas.
class Watched final : public Device {
 public:
  Watched(Device& device, bool formulas) : device_(device), formulas_(formulas) {}
  void open(const DeviceSpec& spec) override { device_.open(spec); }
  MemorySpace space() const override { return device_.space(); }
  void* allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void release(void* memory, std::size_t bytes) noexcept override { device_.release(memory, bytes); }
  void copy(TensorView from, TensorView to) override {
    ++copies;
    device_.copy(from, to);
  }
  void synchronize() override { device_.synchronize(); }
  std::string_view kernel_choice() const override { return device_.kernel_choice(); }
  std::string_view features() const override { return device_.features(); }
  void* query(std::string_view id) override {
    return id == FormulaOps::kId && !formulas_ ? nullptr : device_.query(id);
  }

  int copies = 0;

 private:
  Device& device_;
  bool formulas_;
};

struct Rule {
  const char *name, *type, *options;
  bool elementwise;
};
const Rule kRules[] = {
    {"adagrad", "adagrad", "", true},
    {"adagrad_all", "adagrad", "lr_decay = 0.05\nweight_decay = 0.1\ninitial_accumulator = 0.5\neps = 1e-4",
     true},
    {"rowwise_adagrad", "rowwise_adagrad", "initial_accumulator = 0.1", true},
    {"lamb", "lamb", "", false},
    {"lamb_ranges", "lamb", "norm_range = [0.0, 1.0]\ntrust_range = [0.1, 4.0]\nweight_decay = 0.2", false},
};

/// Weights, gradients and state, by name of the device that holds them.
class Updated {
 public:
  Updated(Device& device, Optimizer& rule, DType dtype, std::int64_t elements)
      : device_(device), rule_(rule) {
    const std::size_t tensors = 2 + rule.slots().size();
    for (std::size_t i = 0; i < tensors; ++i) {
      owned_.push_back(std::make_unique<Owned>(
          device, Shape{elements}, dtype,
          i == 0 ? numbers(elements, "weights", dtype) : std::vector<double>(elements, 0.0)));
      views_.push_back(*owned_.back());
    }
  }
  /// One update; returns how many tensors it copied.
  int step(std::int64_t count, bool formulas) {
    auto gradients = numbers(views_[1].elements(), "gradients " + std::to_string(count), views_[1].dtype);
    for (std::size_t i = 0; i < gradients.size(); i += 5) gradients[i] = 0;
    owned_[1]->fill(gradients);
    Watched watched(device_, formulas);
    rule_.step({.lr = 0.05, .count = count, .gradient_scale = 0.37, .device = &watched},
               {.weights = views_[0],
                .gradients = views_[1],
                .state = std::span<const TensorView>(views_).subspan(2),
                .decay = true});
    return watched.copies;
  }
  const Owned& tensor(std::size_t i) const { return *owned_[i]; }
  std::size_t tensors() const { return owned_.size(); }

 private:
  Device& device_;
  Optimizer& rule_;
  std::vector<std::unique_ptr<Owned>> owned_;
  std::vector<TensorView> views_;
};

class Rules : public ::testing::TestWithParam<Rule> {};

// Lamb multiplies its steps by a ratio of two roots of sums, each of n terms of one sign: sums of two orders
// are 2 n 2^-53 apart at most, so ratios are, too, and rates one unit more after their rounding. Steps are
// below 0.05 * 4 * 4 (lr, trust ratio, Adam's quotient with decay); their products and differences are
// rounded on both sides; twice that leaves room for what it does to later steps.
TEST_P(Rules, StayOnTheDeviceAndAreTheProcessors) {
  constexpr std::int64_t kElements = 10007, kSteps = 3;
  TestedDevice here;
  Bench there("cpu", "auto", 1);
  for (const DType dtype : {DType::kF32, DType::kF64}) {
    const auto rule = here.make_component<Optimizer>(GetParam().type, GetParam().options);
    const auto other = there.make_component<Optimizer>(GetParam().type, GetParam().options);
    Updated own(*here.device, *rule, dtype, kElements), expected(*there.device, *other, dtype, kElements);
    for (std::int64_t count = 1; count <= kSteps; ++count) {
      EXPECT_EQ(own.step(count, true), 0) << "tensors travelled in update " << count;
      expected.step(count, true);
    }
    for (std::size_t i = 0; i < own.tensors(); ++i) {
      if (GetParam().elementwise || i > 0) {
        EXPECT_EQ(own.tensor(i).bytes(), expected.tensor(i).bytes()) << dtype_name(dtype) << ", tensor " << i;
        continue;
      }
      const auto found = own.tensor(i).values(), wanted = expected.tensor(i).values();
      const double step = 0.8, ratio = 2 * kElements * 0x1p-53 + 2 * unit(dtype);
      for (std::size_t k = 0; k < found.size(); ++k)
        ASSERT_NEAR(found[k], wanted[k],
                    2 * kSteps * (step * ratio + 2 * unit(dtype) * (step + std::abs(wanted[k]))))
            << dtype_name(dtype) << " " << k;
    }
  }
}

// Weights, gradients and state are copied to the loops on the host; weights and state are copied back.
TEST_P(Rules, RunOnTheHostWhereThereAreNoFormulas) {
  TestedDevice here;
  Bench there("cpu", "auto", 1);
  const auto rule = here.make_component<Optimizer>(GetParam().type, GetParam().options);
  const auto other = there.make_component<Optimizer>(GetParam().type, GetParam().options);
  Updated own(*here.device, *rule, DType::kF32, 1003), expected(*there.device, *other, DType::kF32, 1003);
  for (std::int64_t count = 1; count <= 3; ++count) {
    EXPECT_EQ(own.step(count, false), static_cast<int>(2 * own.tensors() - 1));
    expected.step(count, false);
  }
  for (std::size_t i = 0; i < own.tensors(); ++i)
    EXPECT_EQ(own.tensor(i).bytes(), expected.tensor(i).bytes()) << "tensor " << i;
}

class Formulas : public ::testing::TestWithParam<std::string> {};

TEST_P(Formulas, SumInOneOrderNearTheExactSum) {
  TestedDevice bench;
  auto& formulas = bench.device->family<FormulaOps>();
  for (const std::int64_t n : {0, 1, 2049, 100003}) {
    const auto x = numbers(n, "x", DType::kF32);
    const Owned tensor(*bench.device, Shape{n}, DType::kF32, x);
    Formula f;
    const auto value = f.load(0), zero = f.constant(0);
    const auto magnitude = select(less(value, zero), 0 - value, value);
    f.sum(0, magnitude, f.constant(1));
    f.sum(1, value, value);
    double exact[2] = {0, 0}, found[2] = {-1, -1}, again[2];
    for (const double one : x) {
      exact[0] += std::abs(one);
      exact[1] += one * one;
    }
    const TensorView tensors[] = {tensor};
    formulas.evaluate(f, tensors, found);
    formulas.evaluate(f, tensors, again);
    for (int i = 0; i < 2; ++i) {
      EXPECT_NEAR(found[i], exact[i], 2 * static_cast<double>(n) * 0x1p-53 * exact[i]) << n;
      EXPECT_EQ(found[i], again[i]);
    }
  }
}

TEST_P(Formulas, RefuseWhatDoesNotFit) {
  TestedDevice bench;
  auto& formulas = bench.device->family<FormulaOps>();
  const Owned x(*bench.device, Shape{4}, DType::kF32), shorter(*bench.device, Shape{3}, DType::kF32),
      narrow(*bench.device, Shape{4}, DType::kBF16);
  Formula f;
  f.store(1, f.load(0) + 1);
  const auto evaluate = [&](std::vector<TensorView> tensors, std::size_t sums = 0) {
    std::vector<double> found(sums);
    return message_of([&] { formulas.evaluate(f, tensors, found); });
  };
  EXPECT_THAT(evaluate({x}), HasSubstr("a formula of 2 tensors and 0 sums was given 1 and 0"));
  EXPECT_THAT(evaluate({x, x}, 1), HasSubstr("was given 2 and 1"));
  EXPECT_NE(evaluate({x, shorter}), "");
  EXPECT_NE(evaluate({narrow, narrow}), "");
  EXPECT_THAT(message_of([&] {
                for (int i = 0; i < 100; ++i) f.load(0);
              }),
              HasSubstr("a formula has more than 32 values"));
  EXPECT_THAT(message_of([&] { f.load(8); }), HasSubstr("more than"));
}

// The processor has its own loops for these rules.
const std::vector<Rule> kHere =
    tested_device() == "cpu" ? std::vector<Rule>{} : std::vector<Rule>(std::begin(kRules), std::end(kRules));
INSTANTIATE_TEST_SUITE_P(Device, Rules, ::testing::ValuesIn(kHere),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Device, Formulas,
                         ::testing::ValuesIn(tested_device() == "cpu" ? std::vector<std::string>{}
                                                                      : std::vector<std::string>{"auto"}));
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Rules);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Formulas);

}  // namespace
}  // namespace tenon::testing::rules_test
