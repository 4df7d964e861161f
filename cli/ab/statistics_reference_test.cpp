// Statistics and survival against tests/reference/ab_statistics.json, which SciPy and plain enumeration made.
#include "ab/statistics.hpp"
#include "ab/survival.hpp"
#include "test_paths.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace tenon::ab {
namespace {

using nlohmann::json;

json reference() {
  std::ifstream in(TENON_SOURCE_DIR "/tests/reference/ab_statistics.json");
  return json::parse(in);
}

// SciPy and Boost compute the same functions in double; the bound is a few hundred roundings of the value's
// size.
void expect_close(double got, double want, const std::string& what) {
  EXPECT_NEAR(got, want, 1e-9 * std::max(1.0, std::abs(want))) << what;
}

std::vector<Observation> observations(const json& runs) {
  std::vector<Observation> out;
  for (const json& r : runs) out.push_back({r[0].get<double>(), r[1].get<bool>()});
  return out;
}

TEST(StatisticsReference, PairedDifferences) {
  const json record = reference();
  ASSERT_GE(record["paired"].size(), 7u);
  for (const json& c : record["paired"]) {
    const std::string name = c["name"];
    const auto d = c["differences"].get<std::vector<double>>();
    const MeanEstimate m = mean_with_interval(d, 0.05);
    expect_close(m.mean, c["mean"], name + " mean");
    expect_close(m.sd, c["sd"], name + " sd");
    expect_close(m.interval.low, c["low"], name + " low");
    expect_close(m.interval.high, c["high"], name + " high");
    expect_close(paired_t_test(d).p, c["p_t"], name + " p");
    EXPECT_NEAR(paired_t_test(d).t / c["t"].get<double>(), 1, 1e-9) << name;
    expect_close(hodges_lehmann(d), c["hodges_lehmann"], name + " shift");
    expect_close(sign_flip_test(d).p, c["p_sign_flip"], name + " sign flip");
    EXPECT_TRUE(sign_flip_test(d).exact);
    const EquivalenceTest e = equivalence_test(d, c["margin"], 0.05);
    expect_close(e.p_above_low, c["p_above_low"], name + " above");
    expect_close(e.p_below_high, c["p_below_high"], name + " below");
    expect_close(e.interval.low, c["tost_low"], name + " tost low");
    expect_close(e.interval.high, c["tost_high"], name + " tost high");
  }
}

TEST(StatisticsReference, PowerAndDetectableEffect) {
  const json record = reference();
  for (const json& c : record["power"]) {
    EXPECT_NEAR(t_test_power(c["n"], c["effect"], 0.05), c["power"].get<double>(), 1e-8) << c;
  }
  for (const json& c : record["minimum_detectable_effect"]) {
    EXPECT_NEAR(minimum_detectable_effect(c["n"], 0.8, 0.05), c["effect"].get<double>(), 1e-7) << c;
  }
}

TEST(StatisticsReference, Holm) {
  const json record = reference();
  for (const json& c : record["holm"]) {
    const auto got = holm_adjust(c["p"].get<std::vector<double>>());
    const auto want = c["adjusted"].get<std::vector<double>>();
    ASSERT_EQ(got.size(), want.size());
    for (std::size_t i = 0; i < got.size(); ++i) expect_close(got[i], want[i], c.dump());
  }
}

void expect_estimate(const SurvivalEstimate& got, const json& want, const std::string& name) {
  ASSERT_EQ(got.steps.size(), want["times"].size()) << name;
  for (std::size_t i = 0; i < got.steps.size(); ++i) {
    expect_close(got.steps[i].time, want["times"][i], name + " time");
    expect_close(got.steps[i].survival, want["survival"][i], name + " survival");
  }
  const auto same = [&](const std::optional<double>& value, const json& expected, const char* what) {
    ASSERT_EQ(value.has_value(), !expected.is_null()) << name << " " << what;
    if (value) expect_close(*value, expected, name + " " + what);
  };
  same(got.median, want["median"], "median");
  same(got.median_low, want["median_low"], "median low");
  same(got.median_high, want["median_high"], "median high");
  expect_close(got.restricted_mean, want["restricted_mean"], name + " restricted mean");
  expect_close(got.restricted_mean_se, want["restricted_mean_se"], name + " its error");
}

TEST(StatisticsReference, Survival) {
  const json record = reference();
  ASSERT_GE(record["survival"].size(), 4u);
  for (const json& c : record["survival"]) {
    const auto a = observations(c["a"]);
    const auto b = observations(c["b"]);
    expect_estimate(kaplan_meier(a, c["horizon"], 0.05), c["estimate_a"], c["name"]);
    expect_estimate(kaplan_meier(b, c["horizon"], 0.05), c["estimate_b"], c["name"]);
    expect_close(log_rank_test(a, b).chi_square, c["chi_square"], c["name"]);
    expect_close(log_rank_test(a, b).p, c["p"], c["name"]);
  }
}

}  // namespace
}  // namespace tenon::ab
