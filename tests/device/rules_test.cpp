// Formulas and the rules that use them: the bits of loops on the host if nothing is summed, a bound if
// something is, no tensor is copied, and known rules have the bits of their steps.
#include "device_test.hpp"

#include <tenon/ops/formula.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/sdk/update_rule.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <cmath>
#include <limits>

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
    {"adamw", "adamw", "weight_decay = 0.2", true},
    {"sgd", "sgd", "weight_decay = 0.1", true},
    {"sgd_momentum", "sgd", "momentum = 0.9\ndampening = 0.1\nweight_decay = 0.1", true},
    {"sgd_nesterov", "sgd", "momentum = 0.9\nnesterov = true", true},
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

// Weights, gradients and state are copied to the loops on the host, unless they are there; weights and state
// are copied back.
TEST_P(Rules, RunOnTheHostWhereThereAreNoFormulas) {
  TestedDevice here;
  Bench there("cpu", "auto", 1);
  const auto rule = here.make_component<Optimizer>(GetParam().type, GetParam().options);
  const auto other = there.make_component<Optimizer>(GetParam().type, GetParam().options);
  Updated own(*here.device, *rule, DType::kF32, 1003), expected(*there.device, *other, DType::kF32, 1003);
  for (std::int64_t count = 1; count <= 3; ++count) {
    EXPECT_EQ(own.step(count, false),
              here.device->space() == MemorySpace::kHost ? 0 : static_cast<int>(2 * own.tensors() - 1));
    expected.step(count, false);
  }
  for (std::size_t i = 0; i < own.tensors(); ++i)
    EXPECT_EQ(own.tensor(i).bytes(), expected.tensor(i).bytes()) << "tensor " << i;
}

class Formulas : public ::testing::TestWithParam<std::string> {};

/// The first n values of a tensor for every rule: 0 is weights, 1 gradients, 2 and 3 state. Drawn once.
std::vector<double> start_of(int tensor, std::int64_t n, DType dtype) {
  static const std::vector<std::vector<double>> all = [] {
    std::vector<std::vector<double>> drawn;
    for (int i = 0; i < 4; ++i) {
      drawn.push_back(numbers(50021, "tensor " + std::to_string(i), DType::kF32));
      for (std::size_t k = 0; k < drawn[i].size(); ++k) {
        if (i == 2 && k % 3 == 0) drawn[i][k] = 0;
        if (i == 3) drawn[i][k] = std::abs(drawn[i][k]);
      }
    }
    return drawn;
  }();
  std::vector<double> values(all[tensor].begin(), all[tensor].begin() + n);
  if (dtype == DType::kF64)
    for (double& value : values) value *= 1.0 + 0x1p-40;
  return values;
}

/// The bytes with one NaN for all: which one an invalid operation yields belongs to a processor.
std::vector<std::byte> with_one_nan(std::vector<std::byte> bytes, DType dtype) {
  const auto replace = [&](auto nan) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof(nan)) {
      auto value = nan;
      std::memcpy(&value, &bytes[at], sizeof(value));
      if (value != value) std::memcpy(&bytes[at], &nan, sizeof(nan));
    }
  };
  if (dtype == DType::kF64)
    replace(std::numeric_limits<double>::quiet_NaN());
  else
    replace(std::numeric_limits<float>::quiet_NaN());
  return bytes;
}

/// Evaluates one rule in three ways over equal tensors: as the device does, as steps that it does not know,
/// and as a loop over host memory.
template <class KnownRule>
void expect_equal_bits(Bench& bench, const KnownRule& rule, const char* name) {
  auto& formulas = bench.device->family<FormulaOps>();
  Formula known, unknown;
  rule.write(known);
  rule.write(unknown);
  unknown.load(0);  // changes nothing but the steps
  for (const DType dtype : {DType::kF32, DType::kF64})
    for (const std::int64_t n : {0, 1, 7, 127, 129, 4095, 4097, 50021}) {
      std::vector<std::unique_ptr<Owned>> owned;
      std::vector<std::vector<std::byte>> here;
      std::vector<TensorView> first, second, third;
      for (int i = 0; i < KnownRule::kTensors; ++i) {
        const auto values = start_of(i, n, dtype);
        for (auto* const views : {&first, &second}) {
          owned.push_back(std::make_unique<Owned>(*bench.device, Shape{n}, dtype, values));
          views->push_back(*owned.back());
        }
        here.push_back(owned.back()->bytes());
      }
      for (std::size_t i = 0; i < here.size(); ++i)
        third.push_back({here[i].data(), Shape{n}, dtype, MemorySpace::kHost});
      std::vector<double> sums(KnownRule::kSums, -1), again(KnownRule::kSums, -2), host(KnownRule::kSums);
      formulas.evaluate(known, first, sums);
      formulas.evaluate(unknown, second, again);
      update_here(rule, third, host);
      EXPECT_EQ(sums, again) << name << " of " << n << " " << dtype_name(dtype);
      for (std::size_t i = 0; i < here.size(); ++i) {
        EXPECT_EQ(owned[2 * i]->bytes(), owned[2 * i + 1]->bytes())
            << name << " of " << n << " " << dtype_name(dtype) << ", tensor " << i << ", steps";
        EXPECT_EQ(with_one_nan(owned[2 * i]->bytes(), dtype), with_one_nan(here[i], dtype))
            << name << " of " << n << " " << dtype_name(dtype) << ", tensor " << i << ", host";
      }
    }
}

// Sums of squares of negative numbers (Adagrad's state here) have roots that are NaN, on all devices alike.
TEST_P(Formulas, KnownRulesHaveTheBitsOfTheirSteps) {
  for (const int threads : {1, 2}) {
    TestedDevice bench(GetParam(), threads);
    expect_equal_bits(bench, AdamWRule({.lr = 0.01, .decay = 0.1, .count = 3, .gradient_scale = 0.37}),
                      "adamw");
    for (const bool momentum : {false, true})
      for (const bool first : {false, true})
        for (const bool nesterov : {false, true}) {
          const SgdStep step{.lr = 0.1,
                             .momentum = momentum ? 0.9 : 0.0,
                             .dampening = nesterov ? 0.0 : 0.25,
                             .decay = 0.01,
                             .nesterov = nesterov,
                             .first = first,
                             .gradient_scale = 0.37};
          with_sgd_rule(step, [&](const auto& rule) { expect_equal_bits(bench, rule, "sgd"); });
        }
    expect_equal_bits(bench,
                      AdagradRule{.grad_scale = 0.37, .lr = 0.1, .decay = 0.01, .eps = 1e-10, .initial = 0.5},
                      "adagrad");
    const LambDirection direction{
        .mean_correction = 0.3, .square_correction = 0.1, .eps = 1e-6, .decay = 0.01};
    expect_equal_bits(
        bench, LambMomentsRule{.grad_scale = 0.37, .beta1 = 0.9, .beta2 = 0.99, .direction = direction},
        "moments of lamb");
    expect_equal_bits(bench, LambWeightsRule{.direction = direction, .rate = 0.02}, "weights of lamb");
  }
}

// y = x < 2 ? x : 5, z = x ? 5 : 2
TEST_P(Formulas, ChooseAsTheLanguageDoes) {
  TestedDevice bench(GetParam());
  auto& formulas = bench.device->family<FormulaOps>();
  const double nan = std::nan("");
  const Owned x(*bench.device, Shape{6}, DType::kF32, {1, 2, -3, nan, 0, -0.0}),
      y(*bench.device, Shape{6}, DType::kF32), z(*bench.device, Shape{6}, DType::kF32);
  Formula f;
  const auto two = f.constant(2), five = f.constant(5), value = f.load(0);
  f.store(1, select(less(value, two), value, five));
  f.store(2, select(value, five, two));
  const TensorView tensors[] = {x, y, z};
  formulas.evaluate(f, tensors, {});
  EXPECT_EQ(y.values(), (std::vector<double>{1, 5, -3, 5, 0, 0}));
  EXPECT_EQ(z.values(), (std::vector<double>{5, 5, 5, 5, 2, 2}));
}

TEST_P(Formulas, SumInOneOrderNearTheExactSum) {
  TestedDevice bench(GetParam(), 2);
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
  TestedDevice bench(GetParam());
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

INSTANTIATE_TEST_SUITE_P(Device, Rules, ::testing::ValuesIn(kRules),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(Device, Formulas, ::testing::ValuesIn(offered_choices()), choice_name);

}  // namespace
}  // namespace tenon::testing::rules_test
