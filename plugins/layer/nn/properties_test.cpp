// Properties of layers beyond gradients: windows, masks, ties, chunks, ignored targets, and refusals that
// state the reason.
#include "cases.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tenon/tensor_values.hpp>

#include <bit>
#include <numeric>

namespace tenon::testing {
namespace {

using Integer = std::int64_t;
using Pair = std::vector<Integer>;

class Layers : public ::testing::Test {
 protected:
  LayerHarness harness(const LayerCase& c) { return harness_of(bench_, *precision_, c); }
  Bench bench_{"cpu", "auto", 1};
  Made<Precision> precision_ = bench_.make_component<Precision>("fp32", "");
};

TEST_F(Layers, AttentionWindowAsLongAsTimeIsGlobal) {
  LayerHarness global = harness(attention_case("global", 6, 2, 8, 0, false));
  global.forward();
  global.backward(1.0, true);
  for (const Integer window : {Integer{6}, Integer{7}, Integer{1000}}) {
    LayerHarness wide = harness(attention_case("wide", 6, 2, 8, window, false));
    wide.forward();
    wide.backward(1.0, true);
    EXPECT_EQ(wide.value("n"), global.value("n")) << window;
    EXPECT_EQ(wide.all_gradients(), global.all_gradients()) << window;
  }
  LayerHarness narrow = harness(attention_case("narrow", 6, 2, 8, 5, false));
  narrow.forward();
  EXPECT_NE(narrow.value("n"), global.value("n"));
}

TEST_F(Layers, AttentionSeesExactlyItsWindow) {
  constexpr Integer kTime = 9, kWidth = 4;
  for (const Integer window : {Integer{0}, Integer{1}, Integer{3}, Integer{8}}) {
    LayerHarness attention = harness(attention_case("window", kTime, 2, kWidth, window, true));
    attention.forward();
    const auto before = attention.value("n");
    for (Integer moved = 0; moved < kTime; ++moved) {
      for (const char* name : {"k", "v"}) {  // of sample 0
        const auto start = attention.field(name);
        auto values = start;
        for (Integer j = 0; j < kWidth; ++j) values[moved * kWidth + j] += 1.0;
        attention.set_field(name, values);
        attention.forward();
        attention.set_field(name, start);
        const auto after = attention.value("n");
        for (Integer t = 0; t < 2 * kTime; ++t) {
          const auto row = [&](const std::vector<double>& y) {
            return std::vector<double>(y.begin() + t * kWidth, y.begin() + (t + 1) * kWidth);
          };
          const bool sees = t < kTime && moved <= t && (window == 0 || moved > t - window);
          // With one visible key the softmax is 1 whatever k is.
          const bool alone = std::string(name) == "k" && (t == 0 || window == 1);
          EXPECT_EQ(row(before) != row(after), sees && !alone)
              << name << " at " << moved << " seen from " << t << " with window " << window;
        }
      }
    }
  }
}

/// Projections, attention and logits around it, of samples [1, time, 8].
LayerCase packed_case(Integer time, Integer window, std::vector<Integer> lengths) {
  LayerCase c{"packed",
              {{"q", "linear", {"x"}, {{"features", Integer{8}}}},
               {"k", "linear", {"x"}, {{"features", Integer{4}}}},
               {"v", "linear", {"x"}, {{"features", Integer{4}}}},
               {"a",
                "attention",
                {"q", "k", "v"},
                {{"heads", Integer{4}}, {"kv_heads", Integer{2}}, {"window", window}}},
               {"n", "linear", {"a"}, {{"features", Integer{7}}}}},
              {"n"},
              {real_field("x", {1, time, 8})}};
  if (!lengths.empty()) {
    c.nodes[3].inputs.push_back("documents");
    c.fields.push_back(document_field(1, lengths));
  }
  return c;
}

TEST_F(Layers, LogitsOfPackedDocumentsAreThoseOfEachAlone) {
  Bench reference("cpu", "reference", 1);
  for (const char* arithmetic : {"fp64", "fp32", "bf16"})
    for (const Integer window : {Integer{0}, Integer{1}, Integer{3}}) {
      const auto precision = reference.make_component<Precision>(arithmetic, "");
      const std::vector<Integer> lengths = {4, 1, 70, 2, 1, 9};
      const Integer time = std::accumulate(lengths.begin(), lengths.end(), Integer{0});
      LayerHarness packed = harness_of(reference, *precision, packed_case(time, window, lengths));
      packed.forward();
      packed.backward(1.0, true);
      const auto logits = packed.value("n"), dx = packed.input_gradient("x"), x = packed.field("x"),
                 dy = packed.field("d_n");
      Integer begin = 0;
      for (const Integer length : lengths) {
        const auto part = [&](const std::vector<double>& all, Integer columns) {
          return std::vector<double>(all.begin() + begin * columns, all.begin() + (begin + length) * columns);
        };
        LayerHarness alone = harness_of(reference, *precision, packed_case(length, window, {}));
        alone.set_field("x", part(x, 8));
        alone.set_field("d_n", part(dy, 7));
        alone.forward();
        alone.backward(1.0, true);
        EXPECT_EQ(alone.value("n"), part(logits, 7)) << arithmetic << window << " at " << begin;
        EXPECT_EQ(alone.input_gradient("x"), part(dx, 8)) << arithmetic << window << " at " << begin;
        begin += length;
      }
      LayerHarness joined = harness_of(reference, *precision, packed_case(time, window, {time}));
      joined.forward();
      EXPECT_EQ(joined.value("n") != logits, window != 1) << "one document sees all of its tokens";
    }
}

// The first document of a packed row does not know what follows: padding may be a document of its own.
TEST_F(Layers, PaddingInADocumentOfItsOwnChangesNothing) {
  LayerHarness packed = harness(packed_case(70, 0, {66, 4}));
  packed.forward();
  const auto before = packed.value("n");
  auto x = packed.field("x");
  for (std::size_t i = 66 * 8; i < x.size(); ++i) x[i] = -3;
  packed.set_field("x", x);
  packed.forward();
  const auto after = packed.value("n");
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + 66 * 7, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + 66 * 7, before.end(), after.begin() + 66 * 7));
}

TEST_F(Layers, DocumentsThatGoBackwardsAreRefusedByPlace) {
  LayerHarness packed = harness(grouped_attention_case("documents", 5, 2, 2, 3, 0, {2, 3}));
  packed.set_field("documents", {0, 0, 1, 1, 2, -4, -4, 7, 3, 9});
  try {
    packed.forward();
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kRun) << error.what();
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("layer 'n': the documents of sample 1 go backwards at position 3: 3 "
                                     "follows 7; number the documents of a row in ascending order"));
  }
  packed.set_field("documents", {0, 0, 1, 1, 2, -4, -4, 3, 7, 9});
  packed.forward();
}

LayerCase rotary_case(Integer heads, std::vector<TestField> fields) {
  return single("rotary", "rotary", {{"heads", heads}}, std::move(fields));
}

// Logits of attention depend on the distance of two positions alone.
TEST_F(Layers, RotationsLeaveProductsThatDependOnTheDistance) {
  constexpr Integer kTime = 9, kWidth = 8;
  const auto row = normals(kWidth, "row"), other = normals(kWidth, "other");
  TestField x{"x", {2, kTime, kWidth}, DType::kF64, {}};
  for (const auto& values : {row, other})
    for (Integer t = 0; t < kTime; ++t) x.values.insert(x.values.end(), values.begin(), values.end());
  const auto precision = bench_.make_component<Precision>("fp64", "");
  LayerHarness rotary = harness_of(bench_, *precision, rotary_case(2, {x}));
  rotary.forward();
  const auto y = rotary.value("n");
  const auto product = [&](Integer query, Integer key, Integer head) {
    double sum = 0;
    for (Integer j = 4 * head; j < 4 * head + 4; ++j)
      sum += y[query * kWidth + j] * y[(kTime + key) * kWidth + j];
    return sum;
  };
  for (const Integer head : {0, 1})
    for (Integer t = 1; t < kTime; ++t) {
      EXPECT_NEAR(product(t, t - 1, head), product(1, 0, head), 1e-14);
      EXPECT_NE(product(t, 0, head), product(0, 0, head));
    }
  EXPECT_TRUE(std::equal(row.begin(), row.end(), y.begin())) << "position 0 is not turned";
}

TEST_F(Layers, PositionsThatAreGivenReplaceTheUsualOnes) {
  const TestField x = real_field("x", {2, 5, 12});
  LayerHarness usual = harness(rotary_case(2, {x}));
  usual.forward();
  TestField positions{"positions", {2, 5}, DType::kI32, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4}};
  LayerHarness given = harness(rotary_case(2, {x, positions}));
  given.forward();
  EXPECT_EQ(given.value("n"), usual.value("n"));
  given.set_field("positions", {0, 1, 2, 0, 1, 0, 1, 2, 3, 900});  // beyond the time: the table grows
  given.forward();
  const auto moved = given.value("n"), before = usual.value("n");
  EXPECT_TRUE(std::equal(moved.begin() + 5 * 12, moved.end() - 12, before.begin() + 5 * 12));
  EXPECT_FALSE(std::equal(moved.end() - 12, moved.end(), before.end() - 12));
  given.set_field("positions", positions.values);
  given.forward();
  EXPECT_EQ(given.value("n"), usual.value("n")) << "a longer table has the same lines";
  for (const auto& [bad, says] :
       {std::pair{-1.0, "must lie in 0 ... 16777215, found -1"}, {16777216.0, "found 16777216"}}) {
    given.set_field("positions", {0, 1, 2, 3, 4, 0, 1, 2, 3, bad});
    try {
      given.forward();
      ADD_FAILURE() << "accepted position " << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
    }
  }
}

TEST_F(Layers, LearnedRowsAreThoseOfTheGivenPositions) {
  const TestField x = real_field("x", {2, 5, 3});
  const std::vector<NamedOption> options{{"context", Integer{6}}, {"init_scale", 0.7}};
  LayerHarness usual = harness(single("usual", "positions", options, {x}));
  usual.forward();
  TestField positions{"positions", {2, 5}, DType::kI32, {0, 1, 2, 3, 4, 0, 1, 2, 3, 4}};
  LayerHarness given = harness(single("given", "positions", options, {x, positions}));
  given.forward();
  EXPECT_EQ(given.value("n"), usual.value("n")) << "the usual positions give the same bits";
  given.set_field("positions", {0, 1, 2, 0, 1, 5, 4, 3, 3, 3});
  given.forward();
  const auto y = given.value("n"), table = given.parameter("n.weight");
  const std::vector<int> at{0, 1, 2, 0, 1, 5, 4, 3, 3, 3};
  for (std::size_t i = 0; i < at.size(); ++i)
    for (std::size_t j = 0; j < 3; ++j)
      EXPECT_NEAR(y[3 * i + j], x.values[3 * i + j] + table[3 * static_cast<std::size_t>(at[i]) + j], 1e-6);
  for (const auto& [bad, says] :
       {std::pair{-1.0,
                  "layer 'n': position -1 of sample 1 at place 4 has no row: the table has 6 (option "
                  "'context'); expected 0 to 5"},
        {6.0, "position 6 of sample 1 at place 4"}}) {
    given.set_field("positions", {0, 1, 2, 3, 4, 0, 1, 2, 3, bad});
    try {
      given.forward();
      ADD_FAILURE() << "accepted position " << bad;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
    }
  }
}

TEST_F(Layers, LogProbabilitiesAreThoseOfTheSoftmaxForAnyChunk) {
  const auto exact = bench_.make_component<Precision>("fp64", "");
  const TestField ids = masked_targets({3, 7}, 11);
  for (const Integer rows : {Integer{0}, Integer{1}, Integer{4}, Integer{20}, Integer{21}}) {
    LayerHarness head = harness_of(bench_, *exact, log_probs_case("log_probs", {3, 7, 5}, rows, ids));
    const auto x = head.field("x"), w = head.parameter("n.weight");
    head.forward();
    const auto y = head.value("n");
    for (std::size_t row = 0; row < y.size(); ++row) {
      std::vector<double> logits(11, 0.0);
      double total = 0;
      for (std::size_t c = 0; c < 11; ++c) {
        for (std::size_t k = 0; k < 5; ++k) logits[c] += x[row * 5 + k] * w[c * 5 + k];
        total += std::exp(logits[c]);
      }
      const double id = ids.values[row];
      const double expected = id < 0 ? 0 : logits[static_cast<std::size_t>(id)] - std::log(total);
      EXPECT_NEAR(y[row], expected, 1e-12) << "row " << row << " in chunks of " << rows;
      EXPECT_FALSE(id < 0 && std::signbit(y[row])) << "0, not -0";
    }
  }
}

TEST_F(Layers, MinusTheSumOfLogProbabilitiesIsTheCrossEntropy) {
  const TestField targets = masked_targets({4, 16}, 11);
  for (const char* type : {"fp64", "fp32", "bf16"}) {
    const auto precision = bench_.make_component<Precision>(type, "");
    const bool exact = precision->activations() == DType::kF64;
    // A factor per row is rounded to float32, and with bfloat16 activations so is its product with the
    // gradient.
    const double bound = exact ? 1e-15 : precision->activations() == DType::kF32 ? 2e-6 : 0.02;
    for (const Integer rows : {Integer{0}, Integer{7}, Integer{63}}) {
      LayerHarness head = harness_of(bench_, *precision, head_case("head", {4, 16, 8}, rows, targets)),
                   sum =
                       harness_of(bench_, *precision, log_probs_loss_case("sum", {4, 16, 8}, rows, targets));
      const double loss = head.forward();
      EXPECT_NEAR(sum.forward(), loss, 2 * 0x1p-52 * loss) << type << " " << rows;
      EXPECT_EQ(sum.executor().losses()[0].count, head.executor().losses()[0].count);
      head.backward(0.37, true);
      sum.backward(0.37, true);
      for (const auto& [name, gradient] : head.all_gradients())
        EXPECT_LT(relative_error(sum.all_gradients().at(name), gradient), bound) << type << " " << name;
    }
  }
}

// Ratios 1/2, 1, 3/2, 2 with clip 1/4 bound what is beyond in the direction of the advantage.
TEST_F(Layers, PolicyLossBoundsRatiosInTheDirectionOfTheAdvantage) {
  const double half = std::log(0.5), more = std::log(1.5), twice = std::log(2), nan = std::nan("");
  LayerHarness loss =
      harness({"loss",
               {{"n", "policy_loss", {"log_probs", "drawn", "advantages", "targets"}, {{"clip", 0.25}}}},
               {},
               {{"log_probs", {9}, DType::kF64, {half, half, 0, 0, more, more, twice, twice, nan}},
                {"drawn", {9}, DType::kF64, std::vector<double>(9, 0)},
                {"advantages", {9}, DType::kF64, {1, -1, 1, -1, 1, -1, 2, -2, 1}},
                {"targets", {9}, DType::kI32, {0, 0, 0, 0, 0, 0, 0, 0, -1}}}});
  // Terms: 0.5, -0.75, 1, -1, 1.25, -1.5, 2.5, -4; what is not counted may be no number.
  EXPECT_NEAR(loss.forward(), 2, 1e-6);
  EXPECT_EQ(loss.executor().losses()[0].count, 8);
  loss.backward(1, true);
  const std::vector<double> expected{-0.5, 0, -1, 1, 0, 1.5, 0, 4, 0};
  EXPECT_LT(relative_error(loss.input_gradient("log_probs"), expected), 1e-6);
}

// What was drawn keeps its digits as bits of f64, so that equal weights give a ratio of exactly 1 in bf16,
// too.
TEST_F(Layers, PolicyLossReadsTheBitsOfDrawnLogProbabilities) {
  for (const char* type : {"fp64", "fp32", "bf16"}) {
    const auto precision = bench_.make_component<Precision>(type, "");
    DataInfo data;
    data.fields = {{"x", DType::kF32, Shape{3, 6}},
                   {"targets", DType::kI32, Shape{3}},
                   {"drawn", DType::kI64, Shape{3}},
                   {"advantages", DType::kI64, Shape{3}}};
    ExecutorSpec spec{
        .layers = &*bench_.layers, .device = &*bench_.device, .host = &bench_.host, .precision = &*precision};
    spec.batch = 2;
    spec.keep = {"lp"};
    Executor executor(spec,
                      {{{"lp", "head_log_probs", {"x", "targets"}, {{"vocabulary", std::int64_t{9}}}},
                        {"n", "policy_loss", {"lp", "drawn", "advantages", "targets"}, {{"clip", 0.0}}}}},
                      data);
    const auto weights =
        make_parameter_set("live", executor.parameters(), *bench_.device, SetContents::kEverything);
    initialise(*weights, 3, *bench_.device);
    const auto inputs = executor.inputs();
    write(*bench_.device, inputs[0], normals(36, "x"));
    const std::int32_t ids[] = {1, 8, -1, 0, 3, 5};
    std::copy_n(ids, 6, inputs[1].as<std::int32_t>());
    const double advantages[] = {1, 2, 3, -4, 0.5, 7};
    std::fill_n(inputs[2].as<std::int64_t>(), 6, std::bit_cast<std::int64_t>(-3.0));
    for (int i = 0; i < 6; ++i) inputs[3].as<std::int64_t>()[i] = std::bit_cast<std::int64_t>(advantages[i]);
    executor.forward(*weights, {});
    EXPECT_NE(executor.losses()[0].sum, -6.5) << type;
    int next = 0;
    for_each_real(executor.value("lp"), [&](double log_prob) {
      inputs[2].as<std::int64_t>()[next++] = std::bit_cast<std::int64_t>(log_prob);
    });
    EXPECT_EQ(next, 6);
    executor.forward(*weights, {});
    EXPECT_EQ(executor.losses()[0].sum, -(1 + 2 - 4 + 0.5 + 7)) << type;
    EXPECT_EQ(executor.losses()[0].count, 5);
  }
}

TEST_F(Layers, WeightedSumsCountWhatTheMaskCounts) {
  const double nan = std::nan("");
  const TestField values{"values", {2, 3}, DType::kF64, {1, 2, nan, 4, 5, 6}},
      weights{"weights", {2, 3}, DType::kF64, {3, -1, 1, nan, 0.5, 2}},
      mask{"mask", {2, 3}, DType::kI32, {0, 7, -1, -5, 2, 0}};
  for (const bool mask_first : {false, true}) {
    LayerHarness sum =
        harness({"sum",
                 {{"n",
                   "weighted_sum",
                   {"values", mask_first ? "mask" : "weights", mask_first ? "weights" : "mask"},
                   {{"scale", -2.0}}}},
                 {},
                 {values, weights, mask}});
    EXPECT_EQ(sum.forward(), -2 * (3 - 2 + 2.5 + 12));
    EXPECT_EQ(sum.executor().losses()[0].count, 4);
    sum.backward(0.5, true);
    EXPECT_EQ(sum.input_gradient("values"), (std::vector<double>{-3, 1, 0, 0, -0.5, -2}));
    EXPECT_EQ(sum.input_gradient("weights"), (std::vector<double>{-1, -2, 0, 0, -5, -6}));
  }
  LayerHarness plain = harness({"plain", {{"n", "weighted_sum", {"weights"}, {}}}, {}, {weights}});
  plain.set_field("weights", {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(plain.forward(), 21);
  EXPECT_EQ(plain.executor().losses()[0].count, 6);
}

/// The gradient of the mean of a part of two_losses_case() alone with respect to x.
std::vector<double> gradient_of_part(Bench& bench, Precision& precision, std::size_t part) {
  LayerCase c = two_losses_case("part", {});
  c.nodes = {c.nodes[part]};
  c.nodes[0].options.clear();
  LayerHarness alone = harness_of(bench, precision, c);
  alone.forward();
  alone.backward(1 / alone.executor().losses()[0].count, true);
  return alone.input_gradient("x");
}

TEST_F(Layers, AddedLossesHaveTheSumOfTheirGradients) {
  using Reals = std::vector<double>;
  const auto exact = bench_.make_component<Precision>("fp64", "");
  const Reals ce = gradient_of_part(bench_, *exact, 0), error = gradient_of_part(bench_, *exact, 1);
  for (const bool balanced : {false, true})
    for (const Reals& weights : {Reals{}, Reals{0.25, 3}, Reals{0, 1}, Reals{-1, 0}}) {
      std::vector<NamedOption> options{{"balance", std::string(balanced ? "equal" : "none")}};
      if (!weights.empty()) options.push_back({"weights", weights});
      LayerHarness both = harness_of(bench_, *exact, two_losses_case("both", options));
      const double sum = both.forward();
      const auto losses = both.executor().losses();
      ASSERT_EQ(losses.size(), 3u);
      EXPECT_EQ(losses[0].metric, "ce");
      EXPECT_EQ(losses[1].metric, "error");
      EXPECT_EQ(losses[0].count, 4) << "of 6 targets";
      EXPECT_EQ(losses[1].count, 42);
      EXPECT_EQ(losses[2].count, 4) << "that of the first";
      const double first = losses[0].sum / 4, second = losses[1].sum / 42;
      const double a = weights.empty() ? 1 : weights[0], b = weights.empty() ? 1 : weights[1];
      const double factor = balanced ? b * (first / second) : b;  // a constant
      EXPECT_NEAR(sum / 4, a * first + factor * second,
                  1e-14 * (std::abs(a * first) + std::abs(factor * second)));
      both.backward(1.0 / 4, true);
      Reals expected = ce;
      for (std::size_t i = 0; i < ce.size(); ++i) expected[i] = a * ce[i] + factor * error[i];
      EXPECT_LT(relative_error(both.input_gradient("x"), expected), 1e-14) << balanced;
    }
}

TEST_F(Layers, PartsWithoutATargetAddNothing) {
  for (const char* balance : {"none", "equal"}) {
    LayerHarness both = harness(two_losses_case("both", {{"balance", std::string(balance)}}));
    both.set_field("t", std::vector<double>(42, std::nan("")));
    both.forward();
    EXPECT_EQ(both.executor().losses()[2].sum, both.executor().losses()[0].sum) << balance;
    both.set_field("targets", std::vector<double>(6, -1));
    both.set_field("t", std::vector<double>(42, 0.5));
    EXPECT_EQ(both.forward(), 0) << balance;
    EXPECT_EQ(both.executor().losses()[2].count, 0) << "a mean over the first's targets has none";
    both.backward(1.0, true);
    EXPECT_THAT(both.input_gradient("x"), ::testing::Each(0.0)) << balance;
  }
}

TEST_F(Layers, AMetricWithoutAGradientCanBeAdded) {
  LayerCase c = two_losses_case("both", {});
  c.nodes[1] = {"error", "accuracy", {"x", "targets"}, {}};
  LayerHarness both = harness(c);
  both.forward();
  both.backward(1.0 / both.executor().losses()[2].count, true);
  EXPECT_LT(relative_error(both.input_gradient("x"), gradient_of_part(bench_, *precision_, 0)), 1e-6);
}

// What computes on the host or asks a family of its own works where the host cannot read tensors, too.
TEST_F(Layers, OfDecodersGiveTheSameOnADeviceWithMemoryOfItsOwn) {
  Bench apart("cuda_emulated", "auto", 1);
  const auto exact = bench_.make_component<Precision>("fp64", ""),
             same = apart.make_component<Precision>("fp64", "");
  for (const LayerCase& c : layer_cases()) {
    const std::string_view type = c.nodes.back().type;
    if (type != "rotary" && type != "gate" && type != "head_log_probs" && type != "weighted_sum" &&
        type != "add_losses" && type != "policy_loss")
      continue;
    LayerHarness here = harness_of(bench_, *exact, c), there = harness_of(apart, *same, c);
    const double loss = here.forward();
    EXPECT_NEAR(there.forward(), loss, 1e-12 * (1 + std::abs(loss))) << c.name;
    here.backward(1.0, true);
    there.backward(1.0, true);
    const auto gradients = there.all_gradients();
    for (const auto& [name, gradient] : here.all_gradients())
      EXPECT_LT(relative_error(gradients.at(name), gradient), 1e-12) << c.name << " " << name;
  }
}

LayerCase dropout_case(Integer batch) {
  return single("dropout", "dropout", {{"p", 0.3}},
                {{"x", {batch, 50}, DType::kF64, std::vector<double>(50 * batch, 1.0)}});
}

TEST_F(Layers, DropoutMaskDoesNotDependOnTheCutOfTheBatch) {
  LayerHarness whole = harness(dropout_case(6));
  whole.forward({.slot = 4});
  const auto expected = whole.value("n");
  LayerHarness part = harness(dropout_case(2));
  std::vector<double> joined;
  for (int micro = 0; micro < 3; ++micro) {
    part.forward({.slot = 4, .micro = micro, .micros = 3, .first_sample = 2 * micro});
    const auto y = part.value("n");
    joined.insert(joined.end(), y.begin(), y.end());
  }
  EXPECT_EQ(joined, expected);
  whole.forward({.slot = 5});
  EXPECT_NE(whole.value("n"), expected) << "another slot draws another mask";
}

TEST_F(Layers, DropoutKeepsTheMeanAndIsOffInEvaluation) {
  LayerHarness dropout =
      harness(dropout_case(400));  // 20000 elements: the share of zeros has a deviation of 0.0033
  dropout.forward();
  const auto y = dropout.value("n");
  const double zeros =
      static_cast<double>(std::count(y.begin(), y.end(), 0.0)) / static_cast<double>(y.size());
  EXPECT_NEAR(zeros, 0.3, 5 * 0.0033);
  for (const double value : y) EXPECT_TRUE(value == 0 || std::abs(value - 1 / 0.7) < 1e-6) << value;
  dropout.forward({.training = false});
  EXPECT_THAT(dropout.value("n"), ::testing::Each(1.0));
}

TEST_F(Layers, TwoDropoutsDrawDifferentMasks) {
  LayerCase c = dropout_case(4);
  NodeSpec other = c.nodes[0];
  other.name = "other";
  c.nodes.push_back(other);
  c.pulled.push_back("other");
  LayerHarness both = harness(c);
  both.forward();
  EXPECT_NE(both.value("n"), both.value("other"));
}

TEST_F(Layers, ATiedWeightIsOneTensorWithTheSumOfBothGradients) {
  const auto nodes = [](std::string head_weight) {
    return std::vector<NodeSpec>{
        {"wte", "embedding", {"tokens"}, {{"rows", Integer{11}}, {"width", Integer{4}}, {"init_scale", 0.7}}},
        {"head",
         "head_cross_entropy",
         {"wte", "targets"},
         {{"vocabulary", Integer{11}}, {"weight", std::move(head_weight)}, {"init_scale", 0.7}}}};
  };
  const std::vector<TestField> fields = {id_field("tokens", {2, 5}, 11), masked_targets({2, 5}, 11)};
  LayerHarness tied = harness({"tied", nodes("wte.weight"), {}, fields});
  LayerHarness untied = harness({"untied", nodes("head.weight"), {}, fields});
  ASSERT_EQ(tied.executor().parameters().size(), 1u);
  EXPECT_EQ(tied.executor().parameters()[0].users, 2);
  ASSERT_EQ(untied.executor().parameters().size(), 2u);
  const auto weight = tied.parameter("wte.weight");
  untied.set_parameter("wte.weight", weight);
  untied.set_parameter("head.weight", weight);
  EXPECT_EQ(tied.forward(), untied.forward());
  tied.backward(1.0, true);
  untied.backward(1.0, true);
  auto sum = untied.gradient("wte.weight");
  const auto other = untied.gradient("head.weight");
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
  EXPECT_LT(relative_error(tied.gradient("wte.weight"), sum), 1e-6);
  EXPECT_GT(relative_error(tied.gradient("wte.weight"), other), 1e-3);
}

TEST_F(Layers, ChunksOfTheHeadChangeNothingButMemory) {
  const TestField targets = masked_targets({4, 16}, 11);
  LayerHarness whole = harness(head_case("whole", {4, 16, 8}, 0, targets));
  const double loss = whole.forward();
  whole.backward(1.0, true);
  const auto dx = whole.input_gradient("x"), dw = whole.gradient("n.weight");
  for (const Integer rows : {Integer{1}, Integer{7}, Integer{32}, Integer{63}}) {
    LayerHarness chunked = harness(head_case("chunked", {4, 16, 8}, rows, targets));
    EXPECT_NEAR(chunked.forward(), loss, 1e-6 * loss) << rows;
    chunked.backward(1.0, true);
    EXPECT_LT(relative_error(chunked.input_gradient("x"), dx), 2e-6) << rows;
    EXPECT_LT(relative_error(chunked.gradient("n.weight"), dw), 2e-6) << rows;
  }
  const Shape large{4, 512, 8};
  const auto memory = [&](Integer rows) {
    return harness(head_case("memory", large, rows, id_field("targets", {4, 512}, 11)))
        .executor()
        .activation_bytes();
  };
  EXPECT_LT(memory(64) + 1900 * 11 * 4, memory(2048)) << "logits of 64 rows instead of 2048";
}

TEST_F(Layers, LossesOfIgnoredTargetsAreNothing) {
  for (const char* type : {"head_cross_entropy", "softmax_cross_entropy"}) {
    const bool head = std::string(type) == "head_cross_entropy";
    TestField targets = id_field("targets", {3}, 5);
    targets.values = {-1, -1, -1};
    std::vector<NamedOption> options;
    if (head) options.push_back({"vocabulary", Integer{5}});
    LayerHarness none =
        harness({"none", {{"n", type, {"x", "targets"}, options}}, {}, {real_field("x", {3, 5}), targets}});
    EXPECT_EQ(none.forward(), 0.0);
    EXPECT_EQ(none.executor().losses()[0].count, 0.0);
    none.backward(1.0, true);
    EXPECT_THAT(none.input_gradient("x"), ::testing::Each(0.0));
    none.set_field("targets", {2, -1, 0});
    none.forward();
    EXPECT_EQ(none.executor().losses()[0].count, 2.0);
    none.backward(1.0, true);
    const auto dx = none.input_gradient("x");
    EXPECT_THAT(std::vector<double>(dx.begin() + 5, dx.begin() + 10), ::testing::Each(0.0))
        << "the ignored row";
    EXPECT_NE(dx[0], 0.0);
  }
}

TEST_F(Layers, AccuracyCountsTheFirstGreatestLogit) {
  const LayerCase c{
      "accuracy",
      {{"n", "accuracy", {"x", "targets"}, {}}, {"loss", "softmax_cross_entropy", {"x", "targets"}, {}}},
      {},
      {{"x", {4, 3}, DType::kF64, {0, 2, 1, 5, 5, 4, -1, -2, -3, 7, 8, 9}},
       {"targets", {4}, DType::kI32, {1, 1, -1, 2}}}};
  LayerHarness both = harness(c);
  both.forward();
  const LossValue accuracy = both.executor().losses()[0];
  EXPECT_EQ(accuracy.metric, "accuracy");
  EXPECT_EQ(accuracy.sum, 2) << "of rows 0, 1 (where the first 5 wins) and 3";
  EXPECT_EQ(accuracy.count, 3);
}

TEST_F(Layers, InitialWeightsFollowTheOptions) {
  const auto spread = [&](std::vector<NamedOption> options) {
    LayerHarness linear =
        harness(single("linear", "linear", std::move(options), {real_field("x", {2, 400})}));
    const auto w = linear.parameter("n.weight");
    double squares = 0, largest = 0;
    for (const double value : w) squares += value * value, largest = std::max(largest, std::abs(value));
    EXPECT_THAT(linear.parameter("n.bias"), ::testing::Each(0.0));
    return std::pair(std::sqrt(squares / static_cast<double>(w.size())), largest);
  };
  // 40000 draws: a sample deviation is off by 0.35 %.
  EXPECT_NEAR(spread({{"features", Integer{100}}, {"init_scale", 0.3}}).first, 0.3, 0.3 * 0.02);
  const auto [deviation, largest] = spread({{"features", Integer{100}}});
  EXPECT_NEAR(deviation, 0.05 / std::sqrt(3.0), 0.05 * 0.02) << "uniform within 1 / sqrt(400)";
  EXPECT_LE(largest, 0.05);
  LayerHarness biased =
      harness(single("linear", "linear", {{"features", Integer{20000}}, {"bias_init_scale", 0.1}},
                     {real_field("x", {2, 1})}));
  double squares = 0;
  for (const double value : biased.parameter("n.bias")) squares += value * value;
  EXPECT_NEAR(std::sqrt(squares / 20000), 0.1, 0.1 * 0.02) << "20000 draws";
}

TEST_F(Layers, DecayLeavesBiasesAndNormsAlone) {
  LayerHarness both =
      harness({"both",
               {{"a", "linear", {"x"}, {{"features", Integer{3}}}}, {"b", "layer_norm", {"a"}, {}}},
               {"b"},
               {real_field("x", {2, 5})}});
  std::map<std::string, bool> decays;
  for (const ParameterInfo& info : both.executor().parameters()) decays[info.spec.name] = info.spec.decay;
  const std::map<std::string, bool> expected = {
      {"a.weight", true}, {"a.bias", false}, {"b.weight", false}, {"b.bias", false}};
  EXPECT_EQ(decays, expected);
}

TEST_F(Layers, RefuseWhatCannotWork) {
  const TestField x = real_field("x", {2, 5, 6}), y = real_field("y", {2, 5, 4}),
                  ids = id_field("ids", {2, 5}, 3), image = real_field("x", {2, 4, 5, 6});
  const struct {
    LayerCase c;
    const char* says;
  } cases[] = {
      {single("", "linear", {}, {x}), "features"},
      {single("", "linear", {{"features", Integer{0}}}, {x}), "features"},
      {single("", "linear", {{"features", Integer{3}}}, {ids}),
       "layer 'n': expected input 'x' to be f32 [batch, ..., columns], found i32 [2, 5]"},
      {single("", "linear", {{"features", Integer{3}}}, {x, y}), "layer 'n': expected 1 input (x), found 2"},
      {single("", "embedding", {{"rows", Integer{3}}, {"width", Integer{2}}}, {x}),
       "layer 'n': expected input 'ids' to be i32 [...], found"},
      {single("", "positions", {{"context", Integer{4}}}, {x}), "time at most 4"},
      {single("", "positions", {{"context", Integer{9}}}, {x, id_field("positions", {2, 4}, 3)}),
       "layer 'n': expected one position per row of x, [2, 5], found positions [2, 4]"},
      {single("", "residual", {}, {x, y}), "equal shape, found [2, 5, 6] and [2, 5, 4]"},
      {single("", "attention", {{"heads", Integer{4}}}, {x, x, x}), "multiple of 4 heads, found [2, 5, 6]"},
      {single("", "attention", {{"heads", Integer{2}}}, {x, x, y}), "q, k, v of equal shape"},
      {single("", "attention", {{"heads", Integer{6}}, {"kv_heads", Integer{4}}}, {x, x, x}),
       "layer 'n': option 'kv_heads' is 4; expected a divisor of the 6 heads, or 0 for as many"},
      {single("", "attention", {{"heads", Integer{2}}, {"kv_heads", Integer{-1}}}, {x, x, x}), "kv_heads"},
      {single("", "attention", {{"heads", Integer{3}}, {"kv_heads", Integer{1}}}, {x, y, y}),
       "layer 'n': expected k of [2, 5, 2], which is 1 heads (option 'kv_heads') as wide as the 3 of q [2, "
       "5, "
       "6], found [2, 5, 4]"},
      {single("", "attention", {{"heads", Integer{3}}, {"kv_heads", Integer{1}}},
              {x, real_field("k", {2, 5, 2}), y}),
       "expected v of [2, 5, 2]"},
      {single("", "attention", {{"heads", Integer{2}}}, {x, x, x, id_field("ids", {2, 6}, 3)}),
       "layer 'n': expected documents of [2, 5], a number per position of q [2, 5, 6], found [2, 6]"},
      {single("", "attention", {{"heads", Integer{2}}}, {x, x, x, real_field("y", {2, 5})}),
       "layer 'n': expected input 'documents' to be i32 [batch, time], found"},
      {single("", "rms_norm", {{"columns", Integer{4}}}, {x}),
       "layer 'n': expected a width that is a multiple of option 'columns' 4, found [2, 5, 6]"},
      {single("", "dropout", {{"p", 1.5}}, {x}), "p"},
      {single("", "rotary", {{"heads", Integer{2}}}, {x}),
       "layer 'n': expected a width of 2 heads of an even width, found [2, 5, 6]: a rotation turns pairs of "
       "elements; choose another number of heads or another width"},
      {single("", "rotary", {{"heads", Integer{4}}}, {x}), "a width of 4 heads of an even width"},
      {single("", "rotary", {}, {x}), "heads"},
      {single("", "rotary", {{"heads", Integer{1}}, {"base", 0.5}}, {x}), "base"},
      {single("", "rotary", {{"heads", Integer{1}}}, {x, id_field("positions", {2, 4}, 3)}),
       "layer 'n': expected one position per row of x [2, 5, 6], found positions [2, 4]"},
      {single("", "gate", {}, {x, y}), "equal shape, found [2, 5, 6] and [2, 5, 4]"},
      {single("", "gate", {{"map", std::string("relu")}}, {x, x}), "map"},
      {single("", "gelu", {{"approximate", std::string("erf")}}, {x}), "approximate"},
      {single("", "conv2d", {{"features", Integer{3}}, {"kernel", Pair{3}}}, {x}),
       "layer 'n': expected input 'x' to be"},
      {single("", "conv2d", {{"features", Integer{3}}, {"kernel", Pair{4, 3}}, {"dilation", Pair{2}}},
              {image}),
       "layer 'n': a kernel of 4 with dilation 2 spans 7 elements, more than the 5 of x [2, 4, 5, 6] along "
       "height "
       "with padding 0 on both sides; make the kernel smaller or the padding larger"},
      {single("", "conv2d", {{"features", Integer{6}}, {"kernel", Pair{1}}, {"groups", Integer{3}}}, {image}),
       "groups = 3 must divide the 4 channels of x and the 6 features"},
      {single("", "conv2d", {{"features", Integer{3}}, {"kernel", Pair{1, 1, 1}}}, {image}),
       "option 'kernel' takes one number or [height, width], found 3 numbers"},
      {single("", "conv2d", {{"features", Integer{3}}, {"kernel", Pair{3}}, {"stride", Pair{0}}}, {image}),
       "stride"},
      {single("", "max_pool2d", {{"kernel", Pair{7}}}, {image}), "a kernel of 7"},
      {single("", "max_pool2d", {{"kernel", Pair{2}}, {"padding", Pair{2}}}, {image}),
       "padding 2 is more than half of the kernel 2"},
      {single("", "batch_norm", {}, {real_field("x", {1, 4})}), "more than one value per channel"},
      {single("", "mse", {}, {x, y}), "equal shape, found [2, 5, 6] and [2, 5, 4]"},
      {{"", {{"n", "softmax_cross_entropy", {"x", "ids"}, {{"label_smoothing", 1.5}}}}, {}, {x, ids}},
       "label_smoothing"},
      {{"", {{"n", "softmax_cross_entropy", {"x", "ids"}, {}}}, {}, {real_field("x", {2, 4, 6}), ids}},
       "one target per row"},
      {{"", {{"n", "head_cross_entropy", {"x", "ids"}, {}}}, {}, {x, ids}}, "vocabulary"},
      {{"", {{"n", "head_log_probs", {"x", "ids"}, {}}}, {}, {x, ids}}, "vocabulary"},
      {single("", "head_log_probs", {{"vocabulary", Integer{3}}}, {real_field("x", {2, 4, 6}), ids}),
       "one target per row of x [2, 4, 6], found targets [2, 5]"},
      {{"", {{"n", "weighted_sum", {"x", "ids"}, {}}}, {}, {x, ids}},
       "layer 'n': expected the mask like the values, one for each, found values [2, 5, 6] and [2, 5]"},
      {{"", {{"n", "weighted_sum", {"x", "y"}, {}}}, {}, {x, y}},
       "expected the weights like the values, one for each, found values [2, 5, 6] and [2, 5, 4]"},
      {{"", {{"n", "weighted_sum", {"ids", "ids"}, {}}}, {}, {ids}}, "expected input 'values' to be"},
      {{"", {{"n", "weighted_sum", {"x", "x", "x"}, {}}}, {}, {x}},
       "layer 'n': inputs 1 and 2 are both real; expected one mask (i32) and one tensor of weights (real) at "
       "most"},
      {{"", {{"n", "policy_loss", {"x", "x", "y", "ids"}, {}}}, {}, {x, y, ids}},
       "layer 'n': expected advantages like log_probs, one for each place, found [2, 5, 4] and [2, 5, 6]"},
      {{"", {{"n", "policy_loss", {"x", "x", "x", "x"}, {}}}, {}, {x}}, "expected input 'targets' to be i32"},
      {two_losses_case("", {{"weights", std::vector<double>{1}}}),
       "layer 'n': option 'weights' has 1 numbers for 2 losses; expected one for each"},
      {two_losses_case("", {{"balance", std::string("all")}}), "balance"},
      {{"", {{"n", "add_losses", {"x"}, {}}}, {}, {x}}, "layer 'n': expected input 'losses' to be f64 [2]"},
      {two_losses_case("", {{"metric", std::string("sum")}}), "the model has no loss"},
      {{"",
        {{"a", "mse", {"x", "x"}, {}}, {"b", "mse", {"x", "x"}, {}}, {"n", "add_losses", {"a", "b"}, {}}},
        {},
        {x}},
       "the model has two trained losses, 'a' and 'b'; add them by a node of type 'add_losses' and give each "
       "a "
       "metric name of its own, or give one of them another metric name to report it alone"},
  };
  for (const auto& [c, says] : cases) {
    try {
      harness(c);
      ADD_FAILURE() << "accepted; expected an error that says: " << says;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kConfig) << error.what();
      EXPECT_THAT(error.what(), ::testing::HasSubstr(says));
    }
  }
}

}  // namespace
}  // namespace tenon::testing
