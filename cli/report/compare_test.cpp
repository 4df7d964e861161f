// Runs side by side: the order of inputs, metrics at common steps, tensors whose differences are known.
#include "report/compare.hpp"
#include "report/testing_runs.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Compare : public RunFolders {};

TEST_F(Compare, EqualRunsHaveNoDifferingInput) {
  const auto a = load_run(run("a")), b = load_run(run("b"));
  const Comparison comparison = compare_runs(a, b);
  EXPECT_THAT(comparison.inputs, IsEmpty())
      << comparison.inputs.front().key << ": names and paths are no inputs";
  for (const MetricComparison& metric : comparison.metrics) EXPECT_EQ(metric.first_difference, -1);
  EXPECT_TRUE(comparison.same_weights);
  EXPECT_THAT(
      comparison_text(a, b, comparison, nullptr),
      AllOf(HasSubstr("inputs: equal in configuration, data, plugins"), HasSubstr("weights: equal bits")));
}

TEST_F(Compare, TheFirstDifferingInputIsTheConfigurationThenTheData) {
  const auto a = load_run(run("a")), b = load_run(run("b", 2.5, "0.1", "bb")),
             c = load_run(run("c", 3.0, "0.01", "cc"));
  const Comparison ab = compare_runs(a, b);
  ASSERT_THAT(ab.inputs, SizeIs(2));
  EXPECT_EQ(ab.inputs[0].key, "optimizer.lr");
  EXPECT_EQ(ab.inputs[0].origin_b, "r.toml:9:6");
  EXPECT_EQ(ab.inputs[1].area, "data");
  EXPECT_THAT(
      comparison_text(a, b, ab, nullptr),
      HasSubstr("first differing input:\n  config   optimizer.lr\n             A: 0.01  (r.toml:9:6)\n"
                "             B: 0.1  (r.toml:9:6)\nfurther differing inputs:\n  data     data[0].sha256\n"));
  EXPECT_EQ(compare_runs(a, c).inputs.at(0).a, "aa");
}

TEST_F(Compare, MetricsDifferFromTheFirstCommonStepOn) {
  auto a = load_run(run("a")), b = load_run(run("b"));
  b.record.series["train/loss"][2].value = 9;
  b.record.series["train/loss"].erase(b.record.series["train/loss"].begin());
  b.record.series["val/extra"] = {{1, 1, 0, 0, 0, 0}};
  const Comparison comparison = compare_runs(a, b);
  ASSERT_THAT(comparison.metrics, SizeIs(3));
  EXPECT_EQ(comparison.metrics[0].name, "train/loss");
  EXPECT_EQ(comparison.metrics[0].common_steps, 4);
  EXPECT_EQ(comparison.metrics[0].first_difference, 3);
  EXPECT_EQ(comparison.metrics[1].name, "val/extra");
  EXPECT_EQ(comparison.metrics[1].a.lines, 0);
  const auto json = nlohmann::json::parse(comparison_json(a, b, comparison, nullptr));
  EXPECT_EQ(json["metrics"][0]["first_difference"], 3);
  EXPECT_FALSE(json.contains("numerics"));
}

TEST(CompareTensors, DifferencesAreThoseOfTheValues) {
  const float inf = std::numeric_limits<float>::infinity();
  float a[5] = {1, 2, inf, 0.0F, 4}, b[5] = {1, 2.5F, 7, -0.0F, 3};
  const TensorComparison t = compare_tensors("w", {a, Shape{5}}, {b, Shape{5}});
  EXPECT_FALSE(t.equal_bits);
  EXPECT_EQ(t.differing, 3) << "0 and -0 are equal numbers";
  EXPECT_EQ(t.largest_difference, 1);
  EXPECT_EQ(t.largest_relative, 0.25);
  EXPECT_TRUE(compare_tensors("w", {a, Shape{5}}, {a, Shape{5}}).equal_bits);
  std::int64_t x[1] = {1}, y[1] = {2};
  TensorView ints{x, Shape{1}, DType::kI64}, others{y, Shape{1}, DType::kI64};
  EXPECT_FALSE(compare_tensors("n", ints, others).equal_bits);
}

TEST_F(Compare, ARunWithoutCheckpointIsNamed) {
  const std::string a = run("a");
  try {
    compare_checkpoints(a, a);
    ADD_FAILURE();
  } catch (const std::exception& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("a/1/checkpoints: no checkpoint to compare; choose a [recovery] that saves"));
  }
}

}  // namespace
}  // namespace tenon::report
