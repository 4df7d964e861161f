// Properties of the layer whatever its numbers are: causality, documents, kept state against whole sequences,
// limits of the state space model, initial values and decay, memory for backward, frozen parameters, and what
// it refuses.
#include "testing.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

namespace tenon::testing::ssm_properties_test {
namespace {

class Mamba : public ::testing::Test {
 protected:
  HarnessSpec spec(Precision& precision, bool training = true) {
    return {.layers = &*bench_.layers,
            .device = &*bench_.device,
            .host = &bench_.host,
            .precision = &precision,
            .training = training};
  }
  std::vector<double> output(LayerHarness& harness) {
    harness.forward();
    return harness.value("n");
  }
  /// Output of one position of one sample.
  static std::vector<double> row(const std::vector<double>& y, const MambaCase& c, std::int64_t b,
                                 std::int64_t t) {
    const auto begin = y.begin() + (b * c.time + t) * c.width;
    return {begin, begin + c.width};
  }
  std::string refusal(const MambaCase& c, const std::vector<NamedOption>& other = {}, bool run = false) {
    try {
      std::vector<NodeSpec> nodes = c.nodes();
      for (const NamedOption& option : other) {
        std::erase_if(nodes[0].options, [&](const NamedOption& own) { return own.name == option.name; });
        nodes[0].options.push_back(option);
      }
      LayerHarness harness(spec(*exact_), nodes, {"n"}, c.fields());
      if (run) harness.forward();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  Bench bench_{"cpu", "reference", 1};
  Made<Precision> exact_ = bench_.make_component<Precision>("fp64", "");
};

TEST_F(Mamba, N7_APositionChangesNoOutputBeforeItAndOneAtIt) {
  const MambaCase c{.name = "", .time = 9};
  LayerHarness harness(spec(*exact_), c.nodes(), {"n"}, c.fields());
  const std::vector<double> x = harness.field("x"), before = output(harness);
  for (std::int64_t t = 0; t < c.time; ++t) {
    std::vector<double> moved = x;
    moved[t * c.width + 1] += 0.5;  // of the first sample
    harness.set_field("x", moved);
    const std::vector<double> after = output(harness);
    for (std::int64_t at = 0; at < c.time; ++at) {
      EXPECT_EQ(row(after, c, 1, at), row(before, c, 1, at)) << "another sample";
      if (at < t) {
        EXPECT_EQ(row(after, c, 0, at), row(before, c, 0, at)) << t << " changes " << at;
      }
      if (at == t) {
        EXPECT_NE(row(after, c, 0, at), row(before, c, 0, at)) << t;
      }
    }
  }
}

// The state reaches further back than the convolution and the chunk.
TEST_F(Mamba, N7_TheFirstPositionReachesTheLastUnlessDecaysAreInfinite) {
  const MambaCase c{.name = "", .conv = 2, .time = 12};
  const auto reaches = [&](double log_rate) {
    LayerHarness harness(spec(*exact_), c.nodes(), {"n"}, c.fields());
    spread_parameters(harness);
    harness.set_parameter("n.A_log", std::vector<double>(c.heads, log_rate));
    const std::vector<double> before = output(harness);
    std::vector<double> moved = harness.field("x");
    moved[0] += 0.5;
    harness.set_field("x", moved);
    const std::vector<double> after = output(harness);
    std::int64_t last = 0;
    for (std::int64_t t = 0; t < c.time; ++t)
      if (row(after, c, 0, t) != row(before, c, 0, t)) last = t;
    return last;
  };
  EXPECT_EQ(reaches(-1), c.time - 1);
  EXPECT_EQ(reaches(30), c.conv - 1) << "a decay of exp(-exp(30)) leaves nothing of the state";
}

TEST_F(Mamba, N7_WithoutStepsTheStateStaysEmptyAndBAndCDoNotMatter) {
  const MambaCase c{.name = "", .heads = 2, .groups = 1};
  std::vector<std::vector<double>> outputs;
  for (const double scale : {1.0, 3.0}) {
    LayerHarness harness(spec(*exact_), c.nodes(), {"n"}, c.fields());
    harness.set_parameter("n.dt_bias", std::vector<double>(c.heads, -800.0));
    std::vector<double> filters = harness.parameter("n.conv1d.weight");
    for (std::size_t i = c.heads * c.head_width * c.conv; i < filters.size(); ++i) filters[i] *= scale;
    harness.set_parameter("n.conv1d.weight", filters);
    outputs.push_back(output(harness));
  }
  EXPECT_EQ(outputs[0], outputs[1]);
}

TEST_F(Mamba, N6_DocumentsOfARowAreThoseOfEachAlone) {
  const std::vector<std::int64_t> lengths = {4, 1, 2, 5};
  const MambaCase packed{.name = "", .batch = 1, .time = 12, .lengths = lengths};
  LayerHarness whole(spec(*exact_), packed.nodes(), {"n"}, packed.fields());
  spread_parameters(whole);
  const std::vector<double> x = whole.field("x"), y = output(whole);
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    const MambaCase one{.name = "", .batch = 1, .time = length};
    LayerHarness alone(spec(*exact_, false), one.nodes(), {"n"}, one.fields());
    spread_parameters(alone);
    alone.set_field("x", {x.begin() + begin * one.width, x.begin() + (begin + length) * one.width});
    const std::vector<double> expected = output(alone);
    for (std::int64_t t = 0; t < length; ++t)
      EXPECT_EQ(row(y, packed, 0, begin + t), row(expected, one, 0, t))
          << "document at " << begin << ", " << t;
    begin += length;
  }
}

struct Split {
  const char *policy, *device, *kernels;
  double bound;  ///< relative; 0: the same bits
};

// On other kernels sums depend on the number of rows of a pass, and on other devices a chunk is summed by
// tiles.
TEST_F(Mamba, N10_AnyPassesGiveTheOutputsOfTheWholeSequence) {
  for (const Split& split : {Split{"fp64", "cpu", "reference", 0},
                             {"fp32", "cpu", "reference", 0},
                             {"bf16", "cpu", "reference", 0},
                             {"fp64", "cpu", "auto", 1e-12},
                             {"fp32", "cpu", "auto", 2e-5},
                             {"fp64", "cuda_emulated", "auto", 1e-12},
                             {"fp32", "cuda_emulated", "auto", 2e-5}}) {
    for (const bool documents : {false, true}) {
      Bench bench(split.device, split.kernels, 1);
      const auto precision = bench.make_component<Precision>(split.policy, "");
      MambaCase c{.name = "", .batch = 1, .time = 13};
      if (documents) c.lengths = {5, 1, 7};
      const auto make = [&](const MambaCase& size, std::int64_t positions) {
        return std::make_unique<LayerHarness>(HarnessSpec{.layers = &*bench.layers,
                                                          .device = &*bench.device,
                                                          .host = &bench.host,
                                                          .precision = &*precision,
                                                          .training = false,
                                                          .positions = positions},
                                              size.nodes(), std::vector<std::string>{}, size.fields());
      };
      MambaCase pass = c;
      pass.batch = 2, pass.time = 4;
      if (documents) pass.lengths = {4};
      const auto whole = make(c, 0), steps = make(pass, c.time);
      spread_parameters(*whole), spread_parameters(*steps);
      const std::vector<double> x = whole->field("x");
      const std::vector<double> numbers = documents ? whole->field("documents") : std::vector<double>(13, 0);
      whole->executor().forward(whole->weights(), {.training = false});
      const std::vector<double> expected = whole->value("n");
      // Sequence 2 of 3; the other row begins a sequence of garbage in every pass, or does not count.
      const auto kept = steps->executor().make_sequences(3);
      std::int64_t at = 0;
      for (const std::int64_t count : {4, 1, 3, 1, 1, 3}) {
        std::vector<double> given(2 * 4 * c.width, 7.0), given_numbers(8, 9.0);
        std::copy_n(x.begin() + at * c.width, count * c.width, given.begin() + 4 * c.width);
        std::copy_n(numbers.begin() + at, count, given_numbers.begin() + 4);
        steps->set_field("x", given);
        if (documents) steps->set_field("documents", given_numbers);
        const std::vector<std::int64_t> first = {0, at}, counts = {count % 2 * 2, count},
                                        rows = {count % 2 * 0, 2};
        steps->executor().step(steps->weights(), *kept, {.first = first, .count = counts, .kept = rows});
        const std::vector<double> found = steps->value("n");
        for (std::int64_t t = 0; t < count; ++t) {
          const auto own = row(found, pass, 1, t), wanted = row(expected, c, 0, at + t);
          EXPECT_LE(relative_error(own, wanted), split.bound)
              << split.policy << " " << split.device << " " << split.kernels
              << (documents ? " documents" : "") << " " << at + t;
        }
        at += count;
      }
    }
  }
}

// f32 in every policy but fp64, in which all are f64: a decay of 8 bits would round the state away.
TEST_F(Mamba, N15_DecayLeavesHeadsNormsAndBiasesAlone) {
  for (const auto& [policy, exact] :
       {std::pair{"fp64", DType::kF64}, {"fp32", DType::kF32}, {"bf16", DType::kF32}}) {
    const auto precision = bench_.make_component<Precision>(policy, "");
    const MambaCase c{.name = ""};
    LayerHarness harness(spec(*precision), c.nodes(), {"n"}, c.fields());
    std::map<std::string, bool> decays;
    for (const ParameterInfo& info : harness.executor().parameters()) {
      decays[info.spec.name] = info.spec.decay;
      if (info.spec.shape == Shape{c.heads}) {
        EXPECT_EQ(info.spec.dtype, exact) << info.spec.name << " " << policy;
      }
    }
    const std::map<std::string, bool> expected = {{"n.in_proj.weight", true}, {"n.conv1d.weight", true},
                                                  {"n.conv1d.bias", false},   {"n.dt_bias", false},
                                                  {"n.A_log", false},         {"n.D", false},
                                                  {"n.norm.weight", false},   {"n.out_proj.weight", true}};
    EXPECT_EQ(decays, expected);
  }
}

TEST_F(Mamba, InitialValuesAreThePublishedOnes) {
  const MambaCase c{
      .name = "", .heads = 4000, .groups = 1, .head_width = 1, .batch = 1, .time = 4, .width = 8};
  const auto values = [&](std::vector<NamedOption> options, const char* name) {
    std::vector<NodeSpec> nodes = c.nodes();
    nodes[0].options = {{"heads", c.heads}, {"head_width", c.head_width}, {"state", c.state}};
    for (NamedOption& option : options) nodes[0].options.push_back(std::move(option));
    LayerHarness harness(spec(*exact_), nodes, {"n"}, c.fields());
    return harness.parameter(name);
  };
  const auto range = [](const std::vector<double>& v) {
    return std::pair(*std::min_element(v.begin(), v.end()), *std::max_element(v.begin(), v.end()));
  };
  const auto mean = [](const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  };
  const auto deviation = [](const std::vector<double>& v) {
    double squares = 0;
    for (const double value : v) squares += value * value;
    return std::sqrt(squares / static_cast<double>(v.size()));
  };
  const auto steps_of = [](std::vector<double> v) {
    for (double& value : v) value = std::log1p(std::exp(value));
    return v;
  };
  std::vector<double> rates = values({}, "n.A_log");
  for (double& rate : rates) rate = std::exp(rate);
  EXPECT_GE(range(rates).first, 1);
  EXPECT_LE(range(rates).second, 16);
  EXPECT_NEAR(mean(rates), 8.5, 0.3) << "uniform in 1 ... 16; 4000 draws are off by 0.07";
  std::vector<double> steps = steps_of(values({}, "n.dt_bias"));
  EXPECT_GE(range(steps).first, 1e-3 * (1 - 1e-9));
  EXPECT_LE(range(steps).second, 0.1 * (1 + 1e-9));
  for (double& step : steps) step = std::log(step);
  EXPECT_NEAR(mean(steps), (std::log(1e-3) + std::log(0.1)) / 2, 0.1) << "uniform in its logarithm";
  steps = steps_of(values({{"dt_floor", 0.01}}, "n.dt_bias"));
  EXPECT_GE(range(steps).first, 0.01 * (1 - 1e-9));
  EXPECT_THAT(values({}, "n.D"), ::testing::Each(1.0));
  EXPECT_THAT(values({}, "n.norm.weight"), ::testing::Each(1.0));
  EXPECT_THAT(values({}, "n.conv1d.bias"), ::testing::Each(0.0));
  EXPECT_LE(range(values({}, "n.conv1d.weight")).second, 0.5);
  EXPECT_NEAR(deviation(values({}, "n.conv1d.weight")), 0.5 / std::sqrt(3.0), 0.01);
  EXPECT_NEAR(deviation(values({}, "n.in_proj.weight")), 0.02, 4e-4);
  EXPECT_NEAR(deviation(values({{"init_scale", 0.3}}, "n.out_proj.weight")), 0.3, 6e-3);
  EXPECT_NEAR(deviation(values({{"init_scale", 0.3}, {"out_init_scale", 0.1}}, "n.out_proj.weight")), 0.1,
              2e-3);
}

/// x, the layer, and a squared error, with some parameters frozen.
class Frozen {
 public:
  Frozen(Bench& bench, Precision& precision, std::vector<std::string> frozen) : device_(*bench.device) {
    ExecutorSpec spec;
    spec.layers = bench.layers.get(), spec.device = &device_, spec.host = &bench.host;
    spec.precision = &precision;
    spec.batch = 2, spec.training = true, spec.frozen = std::move(frozen);
    const MambaCase c{.name = ""};
    NodeSpec node = c.nodes()[0];
    DataInfo data;
    data.fields = {{"x", DType::kF32, {c.time, c.width}}, {"target", DType::kF32, {c.time, c.width}}};
    executor_ =
        std::make_unique<Executor>(spec, GraphSpec{{node, {"loss", "mse", {"n", "target"}, {}}}}, data);
    weights_ = make_parameter_set("live", executor_->parameters(), device_, SetContents::kEverything);
    gradients_ = make_parameter_set("gradients", executor_->parameters(), device_, SetContents::kGradients);
    initialise(*weights_, 1, device_);
    const std::int64_t size = 2 * c.time * c.width;
    write(device_, executor_->inputs()[0], normals(size, "x"));
    write(device_, executor_->inputs()[1], normals(size, "target"));
    for (const bool first : {true, false}) {
      executor_->forward(*weights_, {});
      executor_->backward(*weights_, *gradients_, 1.0, first, {});
    }
  }
  std::map<std::string, std::vector<double>> gradients() {
    std::map<std::string, std::vector<double>> all;
    for (const ParameterInfo& info : executor_->parameters()) {
      const TensorView view = gradients_->tensor(info.index);
      if (!view.empty()) all[info.spec.name] = read(device_, view);
    }
    return all;
  }

 private:
  Device& device_;
  std::unique_ptr<Executor> executor_;
  std::unique_ptr<ParameterSet> weights_, gradients_;
};

TEST_F(Mamba, FrozenParametersLeaveTheOtherGradientsAlone) {
  const auto all = Frozen(bench_, *exact_, {}).gradients();
  ASSERT_EQ(all.size(), 8U);
  for (const std::vector<std::string>& frozen : {std::vector<std::string>{"n.conv1d.weight"},
                                                 {"n.conv1d.bias", "n.norm.weight"},
                                                 {"n.A_log"},
                                                 {"n.dt_bias", "n.D"},
                                                 {"n.in_proj.weight"},
                                                 {"n.out_proj.weight"}}) {
    auto expected = all;
    for (const std::string& name : frozen) expected.erase(name);
    EXPECT_EQ(Frozen(bench_, *exact_, frozen).gradients(), expected) << frozen[0];
  }
}

// A position more costs its rows and its share of a state per chunk, whatever a device needs in between.
TEST_F(Mamba, StatesAreKeptAtBordersOfChunksAlone) {
  const auto planned = [&](std::int64_t time) {
    MambaCase c{.name = "", .heads = 2, .groups = 1, .head_width = 32, .state = 128, .chunk = 64, .batch = 1};
    c.time = time;
    HarnessSpec harness = spec(*exact_);
    harness.keep_values = false;
    LayerHarness made(harness, c.nodes(), {"n"}, c.fields());
    return static_cast<std::int64_t>(made.executor().activation_bytes());
  };
  const std::int64_t state = 2 * 32 * 128 * 8;
  EXPECT_LT(planned(2048) - planned(1024), 1024 * state / 2)
      << "a state per position has " << state << " bytes";
}

TEST_F(Mamba, RefusesWhatCannotWork) {
  using Integer = std::int64_t;
  const MambaCase c{.name = ""};
  EXPECT_EQ(
      refusal(c, {{"heads", Integer{5}}}),
      "layer 'n': option 'heads' is 5; expected a multiple of the 2 groups (option 'groups'), since all "
      "groups have as many heads");
  EXPECT_THAT(refusal(c, {{"state", Integer{0}}}), ::testing::HasSubstr("state"));
  EXPECT_THAT(refusal(c, {{"chunk", Integer{0}}}), ::testing::HasSubstr("chunk"));
  EXPECT_EQ(
      refusal(c, {{"dt_min", 0.2}}),
      "layer 'n': initial steps would lie between 0.2 (the greater of options 'dt_min' and 'dt_floor') and "
      "0.1 (option 'dt_max'); expected 0 < least <= greatest");
  EXPECT_EQ(refusal(c, {{"dt_limits", std::vector<double>{0.2, 0.1}}}),
            "layer 'n': option 'dt_limits' is [0.2, 0.1]; expected the lower bound first, or 0 for none");
  EXPECT_EQ(refusal(c, {{"dt_limits", std::vector<double>{0.2, 0}}}), "") << "no upper bound";
  const MambaCase shorter{.name = "", .time = 3};
  EXPECT_EQ(refusal(shorter), "") << "shapes are asked for with any number of positions";
  EXPECT_THAT(
      refusal(shorter, {}, true),
      ::testing::EndsWith(
          "layer 'n': expected at least as many positions as the convolution reads, 4 (option 'conv'), "
          "found x of "
          "[2, 3, 6]; train on a longer context, or lower the option"));
}

TEST_F(Mamba, DocumentsThatGoBackwardsAreRefusedByPlace) {
  const MambaCase c{.name = "", .lengths = {3, 5}};
  LayerHarness harness(spec(*exact_), c.nodes(), {"n"}, c.fields());
  std::vector<double> numbers = harness.field("documents");
  numbers[c.time + 6] = 0;
  harness.set_field("documents", numbers);
  try {
    harness.forward();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(
        error.what(),
        ::testing::EndsWith(
            "layer 'n': the documents of sample 1 go backwards at position 6: 0 follows 2; number the "
            "documents of "
            "a row in ascending order"));
  }
}

}  // namespace
}  // namespace tenon::testing::ssm_properties_test
