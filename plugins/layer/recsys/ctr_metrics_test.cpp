// Click-through metrics: values from their definitions (tests/reference/recsys.safetensors), independence of
// order and batches, collection over several replicas, and undefined values.
#include "reference/recorded.hpp"
#include "testing.hpp"

#include <tenon/clock.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <thread>

namespace tenon::testing {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Values = std::map<std::string, double>;
using Reasons = std::map<std::string, std::string>;

struct Report final : MetricReport {
  void value(std::string_view metric, double value) override { values[std::string(metric)] = value; }
  void undefined(std::string_view metric, std::string_view reason) override {
    reasons[std::string(metric)] = reason;
  }
  Values values;
  Reasons reasons;
};

struct Samples {
  std::vector<double> scores, labels;
};

std::unique_ptr<LayerHarness> collector(Graphs& graphs, std::int64_t batch, const std::string& prefix) {
  const std::vector<double> none(batch, -1.0);
  return graphs.make({{"loss", "bce_with_logits", {"x", "labels"}, {}},
                      {"n", "ctr_metrics", {"x", "labels"}, {{"prefix", prefix}}}},
                     {}, {{"x", {batch}, DType::kF64, none}, {"labels", {batch}, DType::kI32, none}});
}

/// Forwards over the samples in batches; the last is filled up with samples that do not count.
void forward_all(LayerHarness& harness, const Samples& samples, std::size_t batch, bool training = false) {
  for (std::size_t first = 0; first < samples.scores.size(); first += batch) {
    std::vector<double> scores(batch, kNan), labels(batch, -1.0);
    for (std::size_t i = 0; i < batch && first + i < samples.scores.size(); ++i)
      scores[i] = samples.scores[first + i], labels[i] = samples.labels[first + i];
    harness.set_field("x", scores);
    harness.set_field("labels", labels);
    harness.forward({.training = training});
  }
}

Report evaluate(const Samples& samples, std::int64_t batch = 8, const char* precision = "fp64",
                const std::string& prefix = "") {
  Graphs graphs({precision, "auto"});
  auto harness = collector(graphs, batch, prefix);
  harness->executor().begin_metrics();
  forward_all(*harness, samples, static_cast<std::size_t>(batch));
  Report report;
  harness->executor().finish_metrics(nullptr, report);
  return report;
}

/// The same evaluation with the samples dealt to `replicas` threads; returns the report of the first.
Report evaluate_over(int replicas, const Samples& samples) {
  Bench bench("cpu", "auto", 1);
  const auto clock = make_wall_clock();
  const auto transport = bench.make_component<Transport>("thread", "");
  transport->connect({.ranks = replicas, .deadline_s = 20, .link = {}, .seed = 1, .clock = clock.get()});
  std::vector<int> members(replicas);
  std::iota(members.begin(), members.end(), 0);
  std::vector<Report> reports(members.size());
  std::vector<std::thread> threads;
  for (const int replica : members) {
    threads.emplace_back([&, replica] {
      const std::size_t r = replica;
      const auto communicator = transport->open(
          replica, {.ranks = members, .name = "replicas", .purpose = Purpose::kStatistics, .epoch = 0});
      Samples own;
      for (std::size_t i = r; i < samples.scores.size(); i += members.size())
        own.scores.push_back(samples.scores[i]), own.labels.push_back(samples.labels[i]);
      Graphs graphs({"fp64", "auto"});
      auto harness = collector(graphs, 4, "");
      harness->executor().begin_metrics();
      forward_all(*harness, own, 4);
      harness->executor().finish_metrics(communicator.get(), reports[r]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Report& report : reports) {
    EXPECT_EQ(report.values, reports[0].values) << "every replica reports the same";
    EXPECT_EQ(report.reasons, reports[0].reasons);
  }
  return reports[0];
}

Samples recorded_samples(const std::string& name) {
  const Recorded recorded("recsys");
  return {recorded.values("metrics_" + name + ".scores"), recorded.values("metrics_" + name + ".labels")};
}

Samples reordered(const Samples& samples) {
  Samples other;
  for (std::size_t i = 0; i < samples.scores.size(); ++i) {
    const std::size_t at = (i * 37 + 11) % samples.scores.size();
    other.scores.push_back(samples.scores[at]);
    other.labels.push_back(samples.labels[at]);
  }
  return other;
}

TEST(CtrMetrics, GiveTheRecordedValues) {
  const Recorded recorded("recsys");
  for (const std::string name : {"distinct", "ties", "equal", "separated", "reversed", "rare"}) {
    const auto expected = recorded.values("metrics_" + name + ".expected");
    for (const char* precision : {"fp64", "fp32"}) {  // recorded scores are float32 numbers
      const Report report = evaluate(recorded_samples(name), 8, precision);
      EXPECT_TRUE(report.reasons.empty()) << name;
      EXPECT_EQ(report.values.at("auc"), expected[0]) << name << ": a quotient of integers";
      // A sum of 500 terms in another order.
      EXPECT_NEAR(report.values.at("normalised_entropy"), expected[1], 1e-13 * expected[1]) << name;
      EXPECT_NEAR(report.values.at("calibration"), expected[2], 1e-13 * expected[2]) << name;
    }
  }
}

TEST(CtrMetrics, AverageTies) {
  EXPECT_EQ(evaluate({{1, 1, 1, 1}, {0, 1, 0, 1}}).values.at("auc"), 0.5);
  // Pairs: (2 against 1) won, (1 against 1) tied, over the negatives 1 and 0: 1 + 1 + 0.5 + 1 of 4.
  EXPECT_EQ(evaluate({{2, 1, 1, 0}, {1, 1, 0, 0}}).values.at("auc"), 3.5 / 4);
  EXPECT_EQ(evaluate({{0.0, -0.0}, {0, 1}}).values.at("auc"), 0.5) << "zeros are equal";
}

TEST(CtrMetrics, KeepTheirBitsUnderOrderBatchesAndReplicas) {
  for (const std::string name : {"distinct", "ties"}) {
    const Samples samples = recorded_samples(name);
    const Values expected = evaluate(samples).values;
    ASSERT_EQ(expected.size(), 3u);
    EXPECT_EQ(evaluate(reordered(samples)).values, expected) << name << ": order";
    for (const std::int64_t batch : {1, 7, 200, 256})
      EXPECT_EQ(evaluate(samples, batch).values, expected) << batch;
    for (const int replicas : {1, 2, 3})
      EXPECT_EQ(evaluate_over(replicas, samples).values, expected) << replicas;
  }
  EXPECT_EQ(evaluate_over(3, {{1, 2}, {0, 1}}).values.at("auc"), 1) << "the third replica saw nothing";
}

TEST(CtrMetrics, AucSeesTheOrderOfTheScoresAlone) {
  const Samples samples = recorded_samples("ties");
  const double auc = evaluate(samples).values.at("auc");
  Samples moved = samples, turned = samples;
  for (double& score : moved.scores) score = std::exp(3 * score) - 5;
  for (double& score : turned.scores) score = -score;
  EXPECT_EQ(evaluate(moved).values.at("auc"), auc);
  EXPECT_NEAR(evaluate(turned).values.at("auc"), 1 - auc, 1e-15);
  EXPECT_NE(evaluate(moved).values.at("normalised_entropy"),
            evaluate(samples).values.at("normalised_entropy"));
}

TEST(CtrMetrics, OfTheBaseRateAreOne) {
  // 1 of 4 positive, each predicted as log(1 / 3): the entropy of the base rate itself.
  const Report report = evaluate({std::vector<double>(8, -std::log(3.0)), {1, 0, 0, 0, 0, 0, 1, 0}});
  EXPECT_NEAR(report.values.at("normalised_entropy"), 1, 1e-15);
  EXPECT_NEAR(report.values.at("calibration"), 1, 1e-15);
}

TEST(CtrMetrics, AreUndefinedWithAReasonAndNeverAHalf) {
  const std::string all[] = {"auc", "normalised_entropy", "calibration"};
  Report report = evaluate({{1, 2, 3}, {0, 0, 0}});
  EXPECT_EQ(report.values, Values{});
  for (const std::string& name : all) EXPECT_EQ(report.reasons.at(name), "all 3 labels are 0");
  report = evaluate({{0, 0}, {1, 1}});
  EXPECT_EQ(report.values, (Values{{"calibration", 0.5}})) << "two positives, each predicted as one half";
  EXPECT_EQ(report.reasons,
            (Reasons{{"auc", "all 2 labels are 1"}, {"normalised_entropy", "all 2 labels are 1"}}));
  report = evaluate({{1, 2}, {-1, -1}});
  EXPECT_EQ(report.values, Values{});
  for (const std::string& name : all)
    EXPECT_EQ(report.reasons.at(name), "no sample with a label was evaluated");
  for (const double bad : {kNan, std::numeric_limits<double>::infinity()}) {
    report = evaluate({{bad, 2, 3}, {0, 1, 0}});
    EXPECT_EQ(report.values, Values{});
    for (const std::string& name : all) EXPECT_EQ(report.reasons.at(name), "1 of 3 scores are not finite");
  }
  report = evaluate_over(2, {{kNan, 2, 3}, {0, 1, 0}});
  EXPECT_EQ(report.reasons.at("auc"), "1 of 3 scores are not finite")
      << "on the replica that saw none as well";
  report = evaluate_over(2, {});
  EXPECT_EQ(report.reasons.at("auc"), "no sample with a label was evaluated");
}

TEST(CtrMetrics, BeginAgainAndLeaveTrainingOut) {
  Graphs graphs({"fp64", "auto"});
  auto harness = collector(graphs, 4, "");
  const Samples good{{1, 2, 3, 4}, {0, 0, 1, 1}}, bad{{4, 3, 2, 1}, {0, 0, 1, 1}};
  const auto finished = [&] {
    Report report;
    harness->executor().finish_metrics(nullptr, report);
    return report;
  };
  forward_all(*harness, bad, 4);  // before an evaluation begins
  harness->executor().begin_metrics();
  forward_all(*harness, good, 4);
  forward_all(*harness, bad, 4, true);
  EXPECT_EQ(finished().values.at("auc"), 1);
  forward_all(*harness, bad, 4);
  harness->executor().begin_metrics();
  forward_all(*harness, bad, 4);
  EXPECT_EQ(finished().values.at("auc"), 0);
}

TEST(CtrMetrics, CarryAPrefix) {
  const Values values = evaluate({{1, 2}, {0, 1}}, 2, "fp64", "planted").values;
  EXPECT_EQ(values.size(), 3u);
  for (const char* name : {"planted_auc", "planted_normalised_entropy", "planted_calibration"})
    EXPECT_TRUE(values.contains(name)) << name;
}

}  // namespace
}  // namespace tenon::testing
