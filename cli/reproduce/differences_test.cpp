// Differences and requirements on results made by hand, and their tables of a study file.
#include "reproduce/differences.hpp"

#include "ab/testing/synthetic_runs.hpp"
#include "base/json_writer.hpp"
#include "reproduce/results.hpp"
#include "reproduce/study_file.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>

namespace tenon::reproduce {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

/// Values of one arm by seed, with those of its stages: name, before, after.
struct Made {
  std::string name;
  std::vector<double> values;
  std::vector<std::vector<StageResult>> stages = {};
  std::string parameters = "100";
};

StageResult stage(const std::string& name, std::optional<double> begin, std::optional<double> end,
                  std::int64_t parameters = 0) {
  StageResult out;
  out.name = name;
  out.shared = name;
  out.begin = begin;
  out.end = end;
  out.parameters = parameters;
  return out;
}

StudyResult made(const std::vector<Made>& arms, std::vector<Difference> differences) {
  StudyResult out;
  out.study.metric = "val/loss";
  out.study.differences = std::move(differences);
  for (std::size_t s = 0; s < arms.front().values.size(); ++s)
    out.size.seeds.push_back(static_cast<std::int64_t>(s) + 1);
  for (const Made& arm : arms) {
    StudyArm what;
    what.arm.name = arm.name;
    out.study.arms.push_back(what);
    ArmResult result;
    result.parameters = arm.parameters;
    for (std::size_t s = 0; s < arm.values.size(); ++s) {
      RunResult run;
      run.value = arm.values[s];
      if (!arm.stages.empty()) run.stages = arm.stages[s];
      result.runs.push_back(std::move(run));
    }
    out.arms.push_back(std::move(result));
  }
  compute_differences(out);
  return out;
}

Difference difference(const char* arm, const char* minus) {
  Difference out;
  out.title = "t";
  out.arm = value_name(arm);
  out.minus = value_name(minus);
  return out;
}

TEST(Differences, NamesOfValuesAreReadAndWritten) {
  for (const char* text : {"kd", "kd:begin", "kd:teacher", "kd:teacher:begin"})
    EXPECT_EQ(value_name(text).text(), text);
  EXPECT_EQ(value_name("kd:teacher:begin").arm, "kd");
  EXPECT_EQ(value_name("kd:teacher:begin").stage, "teacher");
  EXPECT_TRUE(value_name("kd:begin").begin);
  EXPECT_EQ(value_name("kd:begin").stage, "");
}

TEST(Differences, ArePerSeedAndJudgedByTheMeanOrByEverySeed) {
  Difference by_mean = difference("kd", "lm");
  by_mean.at_most = -0.25;
  Difference by_seed = by_mean;
  by_seed.every_seed = true;
  Difference shown = difference("lm", "kd");
  const StudyResult r = made({{"kd", {1.9, 2.0, 1.7}}, {"lm", {2.3, 2.2, 2.1}}}, {by_mean, by_seed, shown});
  EXPECT_THAT(r.differences[0].values, ElementsAre(::testing::Optional(DoubleNear(-0.4, 1e-12)),
                                                   ::testing::Optional(DoubleNear(-0.2, 1e-12)),
                                                   ::testing::Optional(DoubleNear(-0.4, 1e-12))));
  EXPECT_NEAR(r.differences[0].mean->mean, -1.0 / 3, 1e-12);
  EXPECT_EQ(r.differences[0].met, true);
  EXPECT_EQ(r.differences[1].met, false) << "seed 2 is only 0.2 below";
  EXPECT_EQ(r.differences[2].met, std::nullopt) << "nothing is required";
  const std::string text = differences_markdown(r);
  EXPECT_THAT(
      text,
      HasSubstr(
          "| t | −0.4000 | −0.2000 | −0.4000 | −0.3333 (−0.6202 to −0.0465) | at most −0.25, mean | yes |"));
  EXPECT_THAT(text, HasSubstr("at most −0.25, every seed | **no** |"));
  EXPECT_THAT(differences_text(r), HasSubstr("required at most −0.25, every seed: NOT MET\n"));
}

// The share that training wins back of the drop from the teacher to the pruned model.
TEST(Differences, AShareIsOfTheWayFromTheFirstValueToTheThird) {
  Difference regained = difference("kd:begin", "kd");
  regained.over = value_name("kd:teacher");
  regained.at_least = 0.8;
  regained.every_seed = true;
  const std::vector<StageResult> stages{stage("teacher", {}, 1.86), stage("prune", {}, 2.60),
                                        stage("student", 2.60, 1.91)};
  const StudyResult r = made({{"kd", {1.91}, {stages}}}, {regained});
  ASSERT_TRUE(r.differences[0].mean);
  EXPECT_NEAR(r.differences[0].mean->mean, 0.69 / 0.74, 1e-12);
  EXPECT_EQ(r.differences[0].met, true);

  const std::vector<StageResult> little{stage("teacher", {}, 1.86), stage("prune", {}, 2.60),
                                        stage("student", 2.60, 2.10)};
  EXPECT_EQ(made({{"kd", {2.10}, {little}}}, {regained}).differences[0].met, false) << "0.68 of the drop";
}

TEST(Differences, OfParametersAreRelative) {
  Difference size = difference("hybrid", "attention");
  size.of = Quantity::kParameters;
  size.at_most = 0.02;
  size.at_least = -0.02;
  const auto judged = [&](const char* parameters) {
    return made({{"hybrid", {2}, {}, parameters}, {"attention", {2}, {}, "1000"}}, {size}).differences[0];
  };
  EXPECT_NEAR(judged("1015").mean->mean, 0.015, 1e-12);
  EXPECT_EQ(judged("1015").met, true);
  EXPECT_EQ(judged("1025").met, false);
  EXPECT_EQ(judged("975").met, false);
  EXPECT_EQ(judged("").met, std::nullopt);
}

TEST(Differences, AMissingValueIsNotJudged) {
  Difference d = difference("kd", "kd:nowhere");
  d.at_most = 0;
  const StudyResult r = made({{"kd", {1.9}, {{stage("student", 2.0, 1.9)}}}}, {d});
  EXPECT_EQ(r.differences[0].values[0], std::nullopt);
  EXPECT_EQ(r.differences[0].met, std::nullopt);
  EXPECT_THAT(differences_markdown(r), HasSubstr("| t | – | – | at most 0, mean | not measured |"));
  JsonWriter json;
  json.begin_object();
  differences_json(json, r);
  json.end_object();
  const auto parsed = nlohmann::json::parse(json.take());
  EXPECT_FALSE(parsed["differences"][0]["met"].get<bool>());
  EXPECT_FALSE(parsed["differences"][0]["measured"].get<bool>());
  EXPECT_TRUE(parsed["differences"][0]["required"].get<bool>());
}

TEST(Differences, MistakesOfAFileAreNamedWithTheirPlace) {
  const std::string folder = ab::testing::fresh_folder("differences");
  ab::testing::write_text(folder + "/base.toml", "[run]\nname = \"x\"\n");
  ab::testing::write_text(
      folder + "/s.toml",
      "title = \"t\"\npaper = \"p\"\nquestion = \"q\"\nbase = \"base.toml\"\nbaseline = \"a\"\n"
      "[size.quick]\nsteps = 1\nseeds = [1]\n[size.default]\nsteps = 1\nseeds = [1]\n"
      "[[arm]]\nname = \"a\"\n[[arm]]\nname = \"b\"\n"
      "[[compare]]\narm = \"a\"\nminus = \"a\"\n"
      "[[compare]]\narm = \"c:begin\"\nminus = \"b\"\nover = \"a\"\nof = \"parameters\"\n");
  try {
    read_study(folder + "/s.toml");
    FAIL() << "nothing was refused";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_THAT(text, HasSubstr("s.toml:18:9: compare[0].minus: a value minus itself is 0; name another"));
    EXPECT_THAT(text, HasSubstr("compare[1].arm: no arm is called 'c'"));
    EXPECT_THAT(text, HasSubstr("compare[1].over: a share is one of the metric"));
  }
}

TEST(StageResults, WeightsAreCountedInTheHeaderOfSafetensors) {
  const std::string folder = ab::testing::fresh_folder("stage_weights");
  const std::string header =
      R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"y":{"dtype":"BF16","shape":[5],"data_offsets":[24,34]}})";
  const auto write = [&](const std::string& text, std::uint64_t length) {
    std::ofstream out(folder + "/model.safetensors", std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << text;
  };
  write(header, header.size());
  EXPECT_EQ(weights_in(folder).parameters, 11);
  EXPECT_EQ(weights_in(folder).bytes, 34);
  for (const auto& [text, length] : {std::pair<std::string, std::uint64_t>{header, 3},
                                     {header, header.size() + 1},
                                     {"{}", std::uint64_t{1} << 40},
                                     {R"({"x":{"dtype":"F32"}})", 21}}) {
    write(text, length);
    EXPECT_THROW(weights_in(folder), Error) << text << " " << length;
  }
}

}  // namespace
}  // namespace tenon::reproduce
