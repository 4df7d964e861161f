// embedding_bag against plain loops and finite differences: sums, means, empty bags, repeated ids; its
// refusals, word by word; and placements.
#include "lookups.hpp"
#include "testing_tables.hpp"

#include <tenon/testing/components.hpp>
#include <tenon/testing/layer_harness.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>

namespace tenon::recsys {
namespace {

using ::testing::ElementsAre;

/// Two tables of 4 and 3 rows, bags of up to three ids: an empty one, one with a repeated id, one with a gap.
const std::vector<double> kIds = {0, 2,  -1, /**/ -1, -1, -1,  //
                                  3, 3,  1,  /**/ 2,  -1, 0,   //
                                  2, -1, -1, /**/ 1,  1,  1};
constexpr std::int64_t kBatch = 3, kLength = 3, kWidth = 2;

class EmbeddingBagTest : public ::testing::Test {
 protected:
  testing::HarnessSpec spec() {
    return {.layers = bench_.layers.get(),
            .device = bench_.device.component.get(),
            .host = &bench_.host,
            .precision = precision_.component.get()};
  }
  std::unique_ptr<testing::LayerHarness> harness(std::vector<NamedOption> options, std::vector<double> ids,
                                                 Shape shape) {
    NodeSpec node{"emb", "embedding_bag", {"ids"}, std::move(options)};
    return std::make_unique<testing::LayerHarness>(
        spec(), std::vector<NodeSpec>{node}, std::vector<std::string>{"emb"},
        std::vector<testing::TestField>{{"ids", shape, DType::kI32, std::move(ids)}});
  }
  std::unique_ptr<testing::LayerHarness> bags(const std::string& mode) {
    return harness({{"rows", std::vector<std::int64_t>{4, 3}}, {"width", kWidth}, {"mode", mode}}, kIds,
                   {kBatch, 2, kLength});
  }
  std::string refusal(std::vector<NamedOption> options, std::vector<double> ids, Shape shape) {
    try {
      harness(std::move(options), std::move(ids), shape)->forward();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  testing::Bench bench_{"cpu", "auto", 2};
  testing::Made<Precision> precision_ = bench_.make_component<Precision>("fp64", "");
};

std::vector<double> pooled(const std::vector<std::vector<double>>& tables, bool mean) {
  std::vector<double> out;
  for (std::size_t bag = 0; bag < kIds.size() / kLength; ++bag) {
    double sums[kWidth] = {}, count = 0;
    for (std::size_t l = 0; l < kLength; ++l) {
      const double id = kIds[bag * kLength + l];
      if (id < 0) continue;
      ++count;
      for (std::size_t j = 0; j < kWidth; ++j)
        sums[j] += tables[bag % 2][static_cast<std::size_t>(id) * kWidth + j];
    }
    for (const double sum : sums) out.push_back(mean && count > 0 ? sum / count : sum);
  }
  return out;
}

TEST_F(EmbeddingBagTest, SumsAndAveragesBags) {
  for (const bool mean : {false, true}) {
    auto graph = bags(mean ? "mean" : "sum");
    graph->forward();
    const auto expected = pooled({graph->parameter("emb.0.weight"), graph->parameter("emb.1.weight")}, mean);
    const auto found = graph->value("emb");
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_DOUBLE_EQ(found[i], expected[i]) << i;
  }
}

TEST_F(EmbeddingBagTest, GradientsAgreeWithFiniteDifferences) {
  for (const char* mode : {"sum", "mean"}) {
    auto graph = bags(mode);
    std::string where;
    EXPECT_LT(graph->finite_difference_error(where), 1e-9) << mode << ", " << where;
  }
}

TEST_F(EmbeddingBagTest, CountsAccessesAndLeavesOtherRowsAlone) {
  auto graph = bags("sum");
  graph->forward();
  graph->backward(1.0, true);
  const auto rows = graph->executor().row_gradients();
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[0].ids, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(rows[0].counts, ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(rows[1].ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(rows[1].counts, ElementsAre(1, 3, 1));
}

TEST_F(EmbeddingBagTest, T5_TellsWhichRowsABatchReads) {
  auto graph = bags("sum");
  ASSERT_EQ(graph->executor().foreseen_tables().size(), 2U);
  // Another batch than that of the graph's inputs.
  std::vector<std::int32_t> coming(kIds.size(), -1);
  coming[0] = coming[7] = 3;
  coming[10] = 2;
  coming[12] = 1;
  const TensorView ids{coming.data(), {kBatch, 2, kLength}, DType::kI32, MemorySpace::kHost};
  std::map<std::string, std::vector<std::int64_t>> told;
  graph->executor().row_lookups({&ids, 1}, [&](int parameter, std::span<const std::int64_t> rows) {
    const std::string& name = graph->executor().parameters()[static_cast<std::size_t>(parameter)].spec.name;
    told[name].assign(rows.begin(), rows.end());
  });
  EXPECT_THAT(told["emb.0.weight"], ElementsAre(3, 3, 1));
  EXPECT_THAT(told["emb.1.weight"], ElementsAre(2));
}

TEST_F(EmbeddingBagTest, ManyBagsGiveTheSameAsOneByOne) {
  // More bags than a thread's block, and a last block that is not full.
  constexpr std::int64_t kMany = 301;
  std::vector<double> ids;
  for (std::int64_t i = 0; i < kMany * 2; ++i)
    ids.push_back(static_cast<double>(i * 7 % (i % 2 == 0 ? 50 : 9)));
  auto graph =
      harness({{"rows", std::vector<std::int64_t>{50, 9}}, {"width", std::int64_t{3}}}, ids, {kMany, 2});
  graph->forward();
  const std::vector<std::vector<double>> tables = {graph->parameter("emb.0.weight"),
                                                   graph->parameter("emb.1.weight")};
  const auto found = graph->value("emb");
  for (std::size_t bag = 0; bag < ids.size(); ++bag) {
    for (std::size_t j = 0; j < 3; ++j)
      ASSERT_EQ(found[bag * 3 + j], tables[bag % 2][static_cast<std::size_t>(ids[bag]) * 3 + j]) << bag;
  }
}

TEST_F(EmbeddingBagTest, ABoundGraphReadsTheTablesOfItsNames) {
  const auto bag = [](const char* name) {
    return NodeSpec{
        name, "embedding_bag", {"ids"}, {{"rows", std::vector<std::int64_t>{4, 3}}, {"width", kWidth}}};
  };
  const testing::TestField ids{"ids", {kBatch, 2, kLength}, DType::kI32, kIds};
  testing::HarnessSpec outside = spec();
  outside.training = false;
  testing::LayerHarness trained(spec(), std::vector<NodeSpec>{bag("first"), bag("second")},
                                {"first", "second"}, {ids}),
      other(outside, std::vector<NodeSpec>{bag("second")}, {}, {ids});
  trained.forward();
  other.executor().bind(trained.weights());
  other.executor().forward(trained.weights(), {.training = false});
  EXPECT_EQ(other.value("second"), trained.value("second"));
  EXPECT_NE(other.value("second"), trained.value("first"));
}

// 11 ids are not -1. An evaluation must not replace what training keeps in the caches of tables.
TEST_F(EmbeddingBagTest, T2_AnEvaluationLeavesCachesOfTablesAlone) {
  auto graph = bags("sum");
  CountedWeights weights(graph->weights());
  graph->executor().forward(weights, {.training = true});
  const std::vector<double> trained = graph->value("emb");
  EXPECT_EQ(weights.read_rows(), 11U);
  EXPECT_EQ(weights.scanned_rows(), 0U);
  graph->executor().forward(weights, {.training = false});
  EXPECT_EQ(graph->value("emb"), trained);
  EXPECT_EQ(weights.read_rows(), 11U) << "the evaluation read rows as training does";
  EXPECT_EQ(weights.scanned_rows(), 11U);
}

TEST_F(EmbeddingBagTest, RefusesWhatItCannotRead) {
  const std::vector<NamedOption> options = {{"rows", std::vector<std::int64_t>{4, 3}}, {"width", kWidth}};
  EXPECT_EQ(refusal(options, {0, 0, 0}, {1, 3}),
            "layer 'emb': expected i32 ids [batch, 2] or [batch, 2, length] for 2 tables, found i32 [1, 3]");
  EXPECT_THAT(
      refusal(options, {0, 1, 0, 3}, {2, 2}),
      ::testing::EndsWith("layer 'emb': sample 1 of the batch reads row 3 of table 1, which has 3 rows (-1 = "
                          "no row); check that the data and the model agree on the rows of the tables"));
  EXPECT_THAT(refusal(options, {0, -2}, {1, 2}), ::testing::HasSubstr("reads row -2 of table 1"));
  EXPECT_EQ(
      refusal({{"rows", std::vector<std::int64_t>{std::int64_t{1} << 31}}, {"width", kWidth}}, {0}, {1, 1}),
      "option 'rows[0]' of layer.embedding_bag is 2147483648; expected a whole number from 1 to 2147483647");
}

TEST(Placement, EvenPartsCoverTheTableAlsoWithMorePartsThanRows) {
  EXPECT_THAT(even_offsets(10, 3), ElementsAre(0, 3, 6, 10));
  EXPECT_THAT(even_offsets(2, 4), ElementsAre(0, 0, 1, 1, 2));
  EXPECT_THAT(whole_offsets(7, 1, 3), ElementsAre(0, 0, 7, 7));
}

TEST(Placement, BalancesTheKaggleTables) {
  const std::vector<std::int64_t> rows = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                          93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                          2173,  4,    7046547,  18,      15,  286181, 105,     142572};
  for (const int replicas : {2, 3, 4, 8}) {
    const std::vector<int> owners = balance(rows, replicas);
    std::vector<double> load(replicas, 0);
    const double all = static_cast<double>(std::accumulate(rows.begin(), rows.end(), std::int64_t{0}));
    for (std::size_t t = 0; t < rows.size(); ++t)
      load[owners[t]] += static_cast<double>(rows[t]) / all + 1.0 / 26;
    // The largest table alone is 0.30 + 0.04 of a total of 2; no placement can be below that.
    const double ideal = std::max(2.0 / replicas, static_cast<double>(rows[2]) / all + 1.0 / 26);
    EXPECT_LE(*std::max_element(load.begin(), load.end()), 4.0 / 3 * ideal) << replicas;
    EXPECT_GT(*std::min_element(load.begin(), load.end()), 0) << replicas;
  }
}

}  // namespace
}  // namespace tenon::recsys
