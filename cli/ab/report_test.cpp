// The two reports: every number arrives in the JSON, the page is self-contained and well-formed, hostile
// names stay text.
#include "ab/ab.hpp"
#include "test_paths.hpp"

#include "ab/charts.hpp"
#include "ab/csv.hpp"
#include "ab/html.hpp"
#include "ab/testing/synthetic_runs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cmath>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <map>
#include <set>

namespace tenon::ab {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::SyntheticRun;

namespace fs = std::filesystem;

SyntheticRun sample_run(std::size_t arm, std::int64_t seed, double shift, bool same_config = false) {
  const auto s = static_cast<std::uint64_t>(seed);
  SyntheticRun run;
  run.seed = seed;
  run.final_loss =
      1.98 + 0.015 * testing::normal_deviate(s, 1) +
      (arm > 0 ? shift * static_cast<double>(arm) + 0.006 * testing::normal_deviate(s, 2 + arm) : 0);
  run.bytes_per_step = 3.2e6;
  run.step_seconds = arm == 0 ? 0.011 : 0.0135;
  static constexpr const char* kTypes[] = {"\"bf16\"", "\"nvfp4\"", "\"mxfp8\""};
  run.config = {{"precision.type", kTypes[same_config ? 0 : arm % 3]}};
  if (arm == 1 && !same_config) run.config.emplace_back("precision.keep_last", "1");
  return run;
}

StudyResult sample_study(Experiment e, const std::string& name, double shift, int jobs = 1,
                         bool self_check = false) {
  const std::string folder = testing::fresh_folder(name);
  testing::write_runs(e, folder,
                      [&](std::size_t a, std::int64_t s) { return sample_run(a, s, shift, self_check); });
  return analyse(load_study(e, folder, jobs, self_check));
}

// Every tag that opens closes, in order: browsers forgive, readers of the page should not need to.
std::string first_unbalanced_tag(const std::string& html) {
  static const std::vector<std::string> kVoid = {"meta", "input", "br", "!doctype"};
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find('>', at);
    if (end == std::string::npos) return "unterminated tag";
    const std::string inner = html.substr(at + 1, end - at - 1);
    const std::string name =
        inner.substr(inner[0] == '/', inner.find_first_of(" \n/", 1) - (inner[0] == '/'));
    if (inner[0] == '/') {
      if (open.empty() || open.back() != inner.substr(1)) return inner;
      open.pop_back();
    } else if (inner.back() != '/' && std::find(kVoid.begin(), kVoid.end(), name) == kVoid.end()) {
      open.push_back(inner.substr(0, inner.find_first_of(" \n")));
    }
    at = end;
  }
  return open.empty() ? "" : open.back();
}

TEST(ReportHtml, IsSelfContainedAndWellFormed) {
  Experiment e = testing::sample_experiment(6);
  e.margin = 0.03;
  e.target = 2.05;
  const std::string page = report_html(sample_study(e, "page", 0.02));
  EXPECT_EQ(first_unbalanced_tag(page), "");
  for (const char* loader : {"http://", "https://", "<script", "<link", "<img", "url(", "@import"}) {
    std::string rest = page;
    // The namespace name of SVG is an identifier; nothing is loaded from it.
    for (std::size_t at; (at = rest.find("http://www.w3.org/2000/svg")) != std::string::npos;)
      rest.erase(at, 26);
    EXPECT_THAT(rest, Not(HasSubstr(loader)));
  }
  for (const char* part : {"What differs between the arms", "precision.type", "Primary metric",
                           "Hodges-Lehmann", "Time to target", "Cost", "Secondary metrics", "val/accuracy",
                           "How to reproduce", "csv/final_values.csv", "against wall time",
                           "Smallest p the exact test can give", "Detectable with 80% power"}) {
    EXPECT_THAT(page, HasSubstr(part));
  }
  EXPECT_THAT(page, Not(HasSubstr("nan")));
}

TEST(ReportHtml, WallClockIsBlankWhenRunsShareTheMachine) {
  Experiment e = testing::sample_experiment(4);
  const StudyResult shared = sample_study(e, "shared", 0.02, 2);
  const std::string page = report_html(shared);
  EXPECT_THAT(page, Not(HasSubstr("against wall time")));
  EXPECT_THAT(page, HasSubstr("Times are blank because 2 runs shared the machine"));
  const json j = json::parse(report_json(shared));
  EXPECT_TRUE(j["arms"][0]["cost"]["samples_per_s"].is_null());
  EXPECT_TRUE(j["arms"][0]["runs"][0]["wall_s"].is_null());
  EXPECT_FALSE(j["arms"][0]["cost"]["bytes_sent"].is_null());
}

TEST(ReportHtml, HostileNamesStayText) {
  Experiment e = testing::sample_experiment(3);
  e.question = "<script>alert('x')</script> & \"co\"";
  const std::string folder = testing::fresh_folder("hostile");
  testing::write_runs(e, folder, [&](std::size_t a, std::int64_t s) {
    SyntheticRun run = sample_run(a, s, 0.02);
    run.config.emplace_back("model.note", a == 0 ? "\"</td><script>1</script>\"" : "\"<b>'\"");
    return run;
  });
  const std::string page = report_html(analyse(load_study(e, folder, 1, false)));
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;"));
  EXPECT_EQ(first_unbalanced_tag(page), "");
}

TEST(ReportJson, CarriesEveryNumber) {
  Experiment e = testing::sample_experiment(6);
  e.margin = 0.03;
  e.target = 2.05;
  const StudyResult result = sample_study(e, "json", 0.02);
  const json j = json::parse(report_json(result));
  ASSERT_EQ(result.comparisons.size(), 1u);
  const Comparison& c = result.comparisons[0];
  const json& out = j["comparisons"][0];
  EXPECT_EQ(out["primary"]["differences"].get<std::vector<double>>(), c.primary.differences);
  EXPECT_EQ(out["primary"]["p_t"], c.primary.t_test.p);
  EXPECT_EQ(out["primary"]["p_sign_flip"], c.primary.sign_flip.p);
  EXPECT_EQ(out["primary"]["hodges_lehmann"], c.primary.hodges_lehmann);
  EXPECT_EQ(out["primary"]["difference"]["interval"][0], c.primary.difference.interval.low);
  EXPECT_EQ(out["equivalence"]["p"], c.equivalence->p);
  EXPECT_EQ(out["minimum_detectable_effect"]["metric"], c.detectable_effect);
  EXPECT_EQ(out["smallest_sign_flip_p"], 0.03125);
  EXPECT_EQ(out["time_to_target"].size(), c.targets.size());
  EXPECT_EQ(out["secondary"].size(), c.secondary.size());
  EXPECT_EQ(out["difference_curve"].size(), 8u);
  EXPECT_EQ(j["verdict"]["outcome"], outcome_name(c.verdict.outcome));
  EXPECT_EQ(j["config_difference"]["precision.keep_last"]["nvfp4"], "1");
  EXPECT_TRUE(j["config_difference"]["precision.keep_last"]["bf16"].is_null());
  EXPECT_EQ(j["arms"][1]["runs"].size(), 6u);
}

TEST(ReportJson, StudyRecordSurvivesTheRoundTrip) {
  Experiment e = testing::sample_experiment(5);
  e.margin = 0.01;
  e.budget = {Axis::kTokens, 1.5e6};
  e.arms[1].set = {"precision.type=nvfp4"};
  e.decide_by = DecideBy::kFinalValue;
  const StudyRecord back = parse_study_record(study_record_json({e, 3, true}), "test");
  EXPECT_EQ(back.jobs, 3);
  EXPECT_TRUE(back.self_check);
  EXPECT_EQ(study_record_json(back), study_record_json({e, 3, true}));
  const std::string text = study_record_json({e, 3, true});
  for (std::size_t cut = 0; cut + 2 < text.size(); cut += 7) {
    EXPECT_THROW(parse_study_record(text.substr(0, cut), "cut"), std::exception) << cut;
  }
}

TEST(ReportHtml, CurvesOfOnePointAreStillSeen) {
  const Experiment e = testing::sample_experiment(3);
  const std::string folder = testing::fresh_folder("one_point");
  testing::write_runs(e, folder, [&](std::size_t a, std::int64_t s) {
    SyntheticRun run = sample_run(a, s, 0.02);
    run.eval_every = run.steps;
    return run;
  });
  const std::string page = report_html(analyse(load_study(e, folder, 1, false)));
  EXPECT_THAT(page, HasSubstr("class=\"faint arm1\""));
  testing::write_text(TENON_BINARY_DIR "/tests/ab_samples/one_point.html", page);
}

/// Names of the files that a page links.
std::set<std::string> linked(const std::string& page) {
  std::set<std::string> out;
  for (std::size_t at = 0; (at = page.find("href=\"csv/", at)) != std::string::npos;) {
    at += 10;
    out.insert(page.substr(at, page.find('"', at) - at));
  }
  return out;
}

TEST(ReportHtml, LinksTheFilesBesideItAndNoOthers) {
  Experiment e = testing::sample_experiment(4);
  e.arms.push_back({"mxfp8"});
  e.target = 2.05;
  const StudyResult result = sample_study(e, "csv", 0.02);
  std::map<std::string, std::string> files;
  for (const CsvFile& file : csv_files(result)) EXPECT_TRUE(files.emplace(file.name, file.text).second);
  std::set<std::string> names;
  for (const auto& [name, text] : files) names.insert(name);
  EXPECT_EQ(linked(report_html(result)), names);
  EXPECT_EQ(names, (std::set<std::string>{"final_values.csv", "curves-val_loss.csv", "curves-train_loss.csv",
                                          "difference-nvfp4.csv", "difference-mxfp8.csv",
                                          "time_to_target-nvfp4.csv", "time_to_target-mxfp8.csv"}));
  const std::string& curves = files.at("curves-val_loss.csv");
  EXPECT_EQ(std::count(curves.begin(), curves.end(), '\n'), 1 + 3 * 4 * 8);
  EXPECT_TRUE(curves.starts_with("arm,seed,step,samples,tokens,wall_s,bytes_sent,val/loss\nbf16,1,50,800,"))
      << curves.substr(0, 120);
}

TEST(ReportHtml, TwoHundredRunsFitAMegabyteAndTwoSeconds) {
  const struct {
    const char* name;
    std::size_t arms, seeds;
    int eval_every;
  } cases[] = {{"crowd", 2, 100, 4}, {"crowd_of_arms", 5, 40, 1}};
  for (const auto& c : cases) {
    Experiment e = testing::sample_experiment(c.seeds);
    while (e.arms.size() < c.arms) e.arms.push_back({"arm" + std::to_string(e.arms.size())});
    e.margin = 0.03;
    e.target = 2.05;
    e.budget = {Axis::kSteps, 200};
    const std::string folder = testing::fresh_folder(c.name);
    testing::write_runs(e, folder, [&](std::size_t a, std::int64_t s) {
      SyntheticRun run = sample_run(a, s, 0.005);
      run.steps = 200;
      run.eval_every = c.eval_every;
      return run;
    });
    testing::write_text(folder + "/experiment.json", study_record_json({e, 1, false}));
    const std::clock_t begun = std::clock();  // of the processor: other tests may have the machine
    const StudyOutcome out = report_study(folder);
    const double took = static_cast<double>(std::clock() - begun) / CLOCKS_PER_SEC;
    ASSERT_EQ(out.exit_status, 0) << closing_text(out);
    EXPECT_LT(took, 2) << c.name;
    const std::string page = testing::read_text_file(out.report_html_path);
    EXPECT_LE(page.size(), 1'000'000u) << c.name;
    std::cout << c.name << ": " << page.size() << " bytes, " << took << " s\n";
    EXPECT_THAT(page, HasSubstr("bands: 90% of the runs"));
    for (const std::string& file : linked(page)) EXPECT_TRUE(fs::exists(folder + "/csv/" + file)) << file;
    testing::write_text(TENON_BINARY_DIR "/tests/ab_samples/" + std::string(c.name) + ".html", page);
  }
}

TEST(ReportHtml, PartsThatComeAgainAreReferences) {
  const auto drawing = [](const char* axis, const char* line) {
    Svg svg(100, 50, "chart", axis);
    svg.text({5, 45}, axis, "tick", Anchor::kStart);
    svg.begin_clip({0, 0}, 100, 40);
    svg.text({1, 1}, line, "label", Anchor::kStart);
    svg.end_clip();
    return svg.take();
  };
  const std::string a = drawing("steps", "same"), b = drawing("seconds", "other"),
                    c = drawing("tokens", "same");
  EXPECT_EQ(share_drawings(a + b), a + b);
  const std::string page = share_drawings(a + b + c + c);
  EXPECT_EQ(first_unbalanced_tag(page), "");
  EXPECT_EQ(page.find("same"), page.rfind("same"));
  EXPECT_THAT(page, HasSubstr("<svg id=\"drawn0\" x=\"0\""));
  EXPECT_THAT(page, HasSubstr(">tokens</text>\n<use href=\"#drawn0\"/>\n</svg>"));
  EXPECT_EQ(page.find("#drawn1"), std::string::npos);
}

TEST(ReportHtml, ACrowdIsShownByRunsFromTheLeastToTheGreatest) {
  ArmRuns arm{{"a"}, {}};
  for (int i = 0; i < 101; ++i) {
    arm.runs.emplace_back(RunRecord{});
    arm.runs.back()->final_metrics["val/loss"] = (i * 37) % 101;
  }
  arm.runs[50].reset();
  const std::vector<std::size_t> shown = typical_runs(arm, "val/loss", 5);
  std::set<double> values;
  for (const std::size_t s : shown) values.insert(arm.runs[s]->final_metrics["val/loss"]);
  ASSERT_EQ(values.size(), 5u);
  EXPECT_EQ(*values.begin(), 0);
  EXPECT_EQ(*values.rbegin(), 100);
  EXPECT_EQ(typical_runs(arm, "val/loss", 1000).size(), 100u);
}

// Pages for a person to look at; they stay in the build tree.
TEST(ReportHtml, SamplePages) {
  const std::string folder = TENON_BINARY_DIR "/tests/ab_samples/";
  const auto keep = [&](const char* name, const StudyResult& result) {
    const std::string page = report_html(result);
    EXPECT_EQ(first_unbalanced_tag(page), "") << name;
    testing::write_text(folder + name + ".html", page);
    testing::write_text(folder + name + ".json", report_json(result));
  };
  Experiment e = testing::sample_experiment(6);
  e.margin = 0.05;
  e.target = 2.05;
  keep("equivalent", sample_study(e, "s1", 0.02));
  e = testing::sample_experiment(8);
  e.target = 2.0;
  keep("worse", sample_study(e, "s2", 0.02));
  e = testing::sample_experiment(3);
  keep("inconclusive_shared", sample_study(e, "s3", 0.002, 2));
  e = testing::sample_experiment(5);
  e.arms.push_back({"mxfp8-with-a-long-name"});
  e.margin = 0.03;
  keep("three_arms", sample_study(e, "s4", -0.012));
  e = against_itself(testing::sample_experiment(30));
  keep("self_check", sample_study(e, "s5", 0.0, 1, true));
  e = testing::sample_experiment(4);
  StudyResult broken = sample_study(e, "s6", 0.02);
  Study study = broken.study;
  study.config_difference.clear();
  study.refusals.clear();
  study.notes.clear();
  study.arms[1].runs[2]->status = "failed";
  study.arms[1].runs[3].reset();
  study.refusals.push_back("arm 'nvfp4', seed 4: no attempt was made");
  check_study(study);
  broken = analyse(std::move(study));
  EXPECT_TRUE(broken.comparisons.empty());
  keep("refused", broken);
}

}  // namespace
}  // namespace tenon::ab
