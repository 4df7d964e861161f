// Pages and JSON of runs: every fact is there, text is escaped, nothing is loaded, unfinished runs are shown.
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include <limits>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class Report : public RunFolders {};

TEST(ConfigLines, HaveTheirTablesNamesAndOrigins) {
  const auto lines = config_lines(
      "top = 1\n[a.b]\nx = \"# no comment \\\" #\"  # f.toml:1:2\ny = [1, 2]\n[[list]]\nz = 'a#b' # "
      "default\n[[list]]\nz = 2\n");
  std::vector<std::string> text;
  for (const ConfigLine& line : lines) text.push_back(line.key + "|" + line.value + "|" + line.origin);
  EXPECT_THAT(text, ElementsAre("top|1|", "a.b.x|\"# no comment \\\" #\"|f.toml:1:2", "a.b.y|[1, 2]|",
                                "list[0].z|'a#b'|default", "list[1].z|2|"));
}

TEST(Facts, LastAndExtremesWithTheirSteps) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const MetricFacts facts =
      facts_of({{1, 3, 0, 0, 0, 0}, {2, nan, 0, 0, 0, 0}, {3, 1, 0, 0, 0, 0}, {4, 2, 0, 0, 0, 0}});
  EXPECT_EQ(facts.lines, 4);
  EXPECT_EQ(facts.last, 2);
  EXPECT_EQ(facts.last_step, 4);
  EXPECT_EQ(facts.least, 1);
  EXPECT_EQ(facts.least_step, 3);
  EXPECT_EQ(facts.most, 3);
  EXPECT_EQ(facts.most_step, 1);
}

TEST_F(Report, OneRunShowsItsFactsAndLoadsNothing) {
  const auto loaded = load_run(run("tiny"));
  EXPECT_EQ(loaded.name, "tiny");
  const std::string page = run_page(loaded);
  EXPECT_THAT(page,
              AllOf(HasSubstr("Completed after 5 steps"), HasSubstr("val/loss, last"), HasSubstr("<svg"),
                    HasSubstr("r.toml:9:6"), HasSubstr("tenon.sgd"), HasSubstr("avx2")));
  EXPECT_THAT(page, HasSubstr("a # &lt;b&gt;"));
  // An address may occur only as the name of SVG's format.
  for (const char* loading : {"https://", "<script", "src=", "@import", "url(", "<link", "href=\"http"})
    EXPECT_EQ(page.find(loading), std::string::npos) << loading;
}

TEST_F(Report, AnUnfinishedRunIsShownAsFarAsItCame) {
  const std::string folder = run("tiny");
  std::filesystem::remove(folder + "/summary.json");
  const auto loaded = load_run(folder);
  EXPECT_EQ(status_text(loaded), "still running or killed; 5 steps so far");
  EXPECT_EQ(loaded.record.samples, 80);
  EXPECT_THAT(run_page(loaded), HasSubstr("Still running or killed; 5 steps so far"));
}

TEST_F(Report, ManyRunsComeInTheOrderOfTheBestValue) {
  run("runs/slow", 3.0, "0.01");
  run("runs/fast", 2.0, "0.1");
  run("runs/other", 2.5, "0.01");
  run("runs/fast2", 2.2, "0.1");
  write("runs/broken/1/metrics.jsonl", "garbage\n");
  write("runs/broken/1/config.resolved.toml", "");
  std::vector<std::string> unreadable;
  const auto runs = load_runs((folder_ / "runs").string(), unreadable);
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_THAT(unreadable, ElementsAre(HasSubstr("broken/1/metrics.jsonl:1")));
  const std::string page = runs_page("runs", runs, unreadable);
  const auto at = [&](const char* text) {
    return page.find(std::string("<span class=\"arm\">") + text + "</span>");
  };
  EXPECT_LT(at("fast"), at("fast2"));
  EXPECT_LT(at("fast2"), at("other"));
  EXPECT_LT(at("other"), at("slow"));
  EXPECT_THAT(page, AllOf(HasSubstr("<code>optimizer.lr</code>"), Not(HasSubstr("<code>run.name</code>")),
                          HasSubstr("left out: ")));
}

/// 2.0 and 2.4: mean 2.2, s sqrt(0.08), and 12.706 s / sqrt(2) on both sides.
TEST_F(Report, RunsThatDifferInTheirSeedsAloneAreOneRow) {
  run("runs/a1", 2.0, "0.1");
  run("runs/a2", 2.4, "0.1");
  run("runs/b1", 3.0, "0.01");
  std::vector<std::string> unreadable;
  const auto runs = load_runs((folder_ / "runs").string(), unreadable);
  const std::string page = runs_page("runs", runs, unreadable);
  EXPECT_THAT(page, HasSubstr("Over seeds"));
  EXPECT_THAT(page, HasSubstr("<code>0.1</code></th><td class=\"num\">2</td><td class=\"num\">2.2</td>"));
  EXPECT_THAT(page, AllOf(HasSubstr(">0.28284<"), HasSubstr("0.34124 to 4.7412")));
  EXPECT_LT(page.find("<code>0.1</code></th>"), page.find("<code>0.01</code></th>")) << "best mean first";
  EXPECT_THAT(runs_page("runs", runs, unreadable, {"run.steps"}), HasSubstr("<code>run.steps</code></th>"));
  run("single/a1", 2.0, "0.1");
  run("single/b1", 3.0, "0.01");
  EXPECT_THAT(runs_page("single", load_runs((folder_ / "single").string(), unreadable), unreadable),
              Not(HasSubstr("Over seeds")));
}

TEST_F(Report, RunsOfOneNameAreToldApartByTheirFolders) {
  run("study/a/tiny");
  run("study/b/tiny");
  std::vector<std::string> unreadable;
  const auto runs = load_runs((folder_ / "study").string(), unreadable);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].name, "a/tiny");
  EXPECT_EQ(runs[1].name, "b/tiny");
}

TEST_F(Report, LinkedRunsAreFoundOnce) {
  namespace fs = std::filesystem;
  run("disk/far");
  run("runs/near");
  fs::create_directory_symlink(folder_ / "disk/far", folder_ / "runs/away");
  fs::create_directory_symlink(folder_ / "runs/near", folder_ / "runs/alias");
  fs::create_directory_symlink(folder_ / "runs", folder_ / "runs/loop");
  fs::rename(folder_ / "runs/near/1", folder_ / "disk/one");
  fs::create_directory_symlink(folder_ / "disk/one", folder_ / "runs/near/1");
  std::vector<std::string> unreadable, folders;
  for (const auto& found : load_runs((folder_ / "runs").string(), unreadable))
    folders.push_back(found.record.folder);
  EXPECT_THAT(folders, ElementsAre((folder_ / "runs/away/1").string(), (folder_ / "runs/near/1").string()));
  EXPECT_THAT(unreadable, ::testing::IsEmpty());
}

TEST_F(Report, JsonHasTheSameFacts) {
  const auto loaded = load_run(run("tiny"));
  const auto json = nlohmann::json::parse(run_json(loaded));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["metrics"]["train/loss"]["last"], 2.5);
  EXPECT_EQ(json["metrics"]["train/loss"]["last_step"], 5);
  EXPECT_EQ(json["config"]["optimizer.lr"]["origin"], "r.toml:9:6");
  EXPECT_EQ(json["manifest"]["seeds.seed"], "7");
  const auto many = nlohmann::json::parse(runs_json("runs", {loaded}, {"why"}));
  EXPECT_EQ(many["runs"].size(), 1u);
  EXPECT_EQ(many["unreadable"][0]["reason"], "why");
}

}  // namespace
}  // namespace tenon::report
