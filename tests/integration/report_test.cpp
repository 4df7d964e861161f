// The commands that look at finished runs, as a user starts them: report, compare, export-study, and the JSON
// of check and doctor.
#include "run_program.hpp"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <sstream>

namespace tenon::integration::report_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Report, WritesPagesOfOneRunAndOfMany) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  ASSERT_EQ(scratch.train({"--set", "run.name=other", "--set", "run.seed=2"}).status, 0);
  const Ended one = scratch.run({"report", "runs/tiny"});
  EXPECT_EQ(one.status, 0) << one.err;
  EXPECT_EQ(one.out, "tiny: completed after 6 steps\nruns/tiny/1/report.html\n");
  EXPECT_THAT(read_file(scratch / "runs/tiny/1/report.html"),
              AllOf(HasSubstr("Completed after 6 steps"), HasSubstr("Graph of model gpt_neo")));
  const Ended many = scratch.run({"report", "runs"});
  EXPECT_EQ(many.out, "2 runs\nruns/report.html\n");
  const json facts = json::parse(scratch.run({"report", "runs", "--json"}).out);
  EXPECT_EQ(facts["runs"].size(), 2u);
  EXPECT_EQ(facts["runs"][1]["config"]["run.steps"]["value"], "6");
}

TEST(Report, SaysWhatIsNoRun) {
  const Scratch scratch;
  fs::create_directories(scratch / "empty");
  const Ended ended = scratch.run({"report", "empty"});
  EXPECT_EQ(ended.status, 2);
  EXPECT_EQ(
      ended.err,
      "tenon: tenon report: empty holds no run (a folder with metrics.jsonl and config.resolved.toml), and "
      "no study (experiment.json)\n");
}

/// Lines of a CSV text as the values under the names of the first one. No value of these tests has a comma.
std::vector<std::map<std::string, std::string>> rows_of(const std::string& csv) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream in(csv);
  for (std::string line; std::getline(in, line);) {
    lines.emplace_back();
    std::istringstream fields(line + ",");
    for (std::string field; std::getline(fields, field, ',');) lines.back().push_back(field);
  }
  std::vector<std::map<std::string, std::string>> rows;
  for (std::size_t i = 1; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].size(), lines[0].size());
    for (rows.emplace_back(); rows.back().size() < lines[0].size();)
      rows.back()[lines[0][rows.back().size()]] = "";
    for (std::size_t k = 0; k < lines[0].size(); ++k) rows.back()[lines[0][k]] = lines[i].at(k);
  }
  return rows;
}

TEST(ExportStudy, IsOneTableOfAllRuns) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  ASSERT_EQ(scratch.train({"--set", "run.name=other", "--set", "run.seed=2"}).status, 0);
  const Ended csv = scratch.run({"export-study", "runs"});
  ASSERT_EQ(csv.status, 0) << csv.err;
  const auto rows = rows_of(csv.out);
  std::istringstream metrics(read_file(scratch / "runs/tiny/1/metrics.jsonl") +
                             read_file(scratch / "runs/other/1/metrics.jsonl"));
  std::size_t lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    const json metric = json::parse(line);
    const auto matches = [&](const auto& row) {
      return row.at("metric") ==
                 metric["split"].get<std::string>() + "/" + metric["name"].get<std::string>() &&
             std::stoll(row.at("step")) == metric["step"] && std::stod(row.at("value")) == metric["value"];
    };
    EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), matches)) << line;
  }
  EXPECT_EQ(rows.size(), lines);
  EXPECT_EQ(rows.front().at("run"), "other/1");
  EXPECT_EQ(rows.front().at("run.seed"), "2");
  EXPECT_EQ(rows.front().at("run.name"), "other");
  EXPECT_EQ(rows.back().at("run"), "tiny/1");
  EXPECT_EQ(rows.back().at("status"), "completed");
  EXPECT_EQ(rows.front().count("model.layers"), 0u) << "equal in both";

  const Ended jsonl = scratch.run({"export-study", "runs", "--to", "jsonl", "--out", "runs.jsonl",
                                   "--columns", "optimizer.lr,model.layers"});
  EXPECT_EQ(jsonl.out, "runs.jsonl\n") << jsonl.err;
  std::istringstream text(read_file(scratch / "runs.jsonl"));
  std::size_t i = 0;
  for (std::string line; std::getline(text, line); ++i) {
    const json row = json::parse(line);
    EXPECT_EQ(row["step"], std::stoll(rows.at(i).at("step")));
    EXPECT_EQ(row["value"], std::stod(rows.at(i).at("value")));
    EXPECT_TRUE(row.contains("optimizer.lr"));
    EXPECT_FALSE(row.contains("run.seed"));
  }
  EXPECT_EQ(i, rows.size());
}

TEST(ExportStudy, SaysWhatItCannotDo) {
  const Scratch scratch;
  fs::create_directories(scratch / "empty");
  EXPECT_EQ(scratch.run({"export-study", "empty"}).err,
            "tenon: tenon export-study: there is no run below 'empty'\n");
  EXPECT_EQ(scratch.run({"export-study", "empty", "--to", "xlsx"}).err,
            "tenon: tenon export-study: --to xlsx: expected csv or jsonl\n");
  ASSERT_EQ(scratch.train().status, 0);
  EXPECT_EQ(scratch.run({"export-study", "runs", "--columns", "optimizer.lrr"}).err,
            "tenon: tenon export-study: --columns: no run below 'runs' has the key 'optimizer.lrr'\n");
}

TEST(Compare, NamesTheInputAndTheNumbers) {
  const Scratch scratch;
  ASSERT_EQ(scratch.train().status, 0);
  ASSERT_EQ(scratch.train().status, 0);
  const Ended same = scratch.run({"compare", "runs/tiny/1", "runs/tiny/2"});
  EXPECT_EQ(same.status, 0) << same.err;
  EXPECT_THAT(same.out, AllOf(HasSubstr("inputs: equal in configuration"), HasSubstr("weights: equal bits")));
  ASSERT_EQ(scratch.train({"--set", "run.clip=0.01"}).status, 0);
  const Ended other = scratch.run({"compare", "runs/tiny/1", "runs/tiny/3"});
  EXPECT_THAT(other.out, AllOf(HasSubstr("first differing input:\n  config   run.clip\n"),
                               HasSubstr("(--set run.clip=0.01)"), HasSubstr("weights: differ")));
  const json facts = json::parse(scratch.run({"compare", "runs/tiny/1", "runs/tiny/3", "--json"}).out);
  EXPECT_EQ(facts["inputs"][0]["key"], "run.clip");
  EXPECT_EQ(scratch.run({"compare", "runs/tiny/1"}).status, 2);
}

TEST(Compare, NumericsNameTheStepAndOperandWhereRunsPart) {
  const Scratch scratch;
  const std::string plain = read_file(scratch / "run.toml");
  const auto train = [&](const std::string& more, const std::string& numerics) {
    write_file(scratch / "run.toml", plain + more + numerics);
    ASSERT_EQ(scratch.train().status, 0);
  };
  const std::string observer = "[[observe]]\ntype = \"numerics\"\nevery = 2\n";
  const std::string nvfp4 = "[precision]\ntype = \"nvfp4\"\n";
  train("[precision]\ntype = \"bf16\"\n", observer);
  train(nvfp4, observer);
  train(nvfp4, observer);
  train(nvfp4, "");
  const Ended same = scratch.run({"compare", "runs/tiny/2", "runs/tiny/3", "--numerics"});
  EXPECT_THAT(same.out, HasSubstr("all of them have equal bits and equal figures")) << same.err;
  const Ended parted = scratch.run({"compare", "runs/tiny/1", "runs/tiny/2", "--numerics"});
  EXPECT_THAT(parted.out, AllOf(HasSubstr("the runs part at step 1, transformer.h.0."),
                                HasSubstr("equal bits went in, the formats differ"),
                                HasSubstr("the first other bits go in at step 1, transformer.h.0.")));
  const json facts =
      json::parse(scratch.run({"compare", "runs/tiny/1", "runs/tiny/2", "--numerics", "--json"}).out);
  EXPECT_EQ(facts["operands"]["first"]["b"]["format"], "nvfp4");
  const Ended missing = scratch.run({"compare", "runs/tiny/3", "runs/tiny/4", "--numerics"});
  EXPECT_EQ(missing.status, 0);
  EXPECT_THAT(missing.out, HasSubstr("operands: B has no numerics.jsonl; to see where the runs part"));
  ASSERT_EQ(scratch.run({"report", "runs/tiny/2"}).status, 0);
  EXPECT_THAT(read_file(scratch / "runs/tiny/2/report.html"),
              AllOf(HasSubstr("Number formats"), HasSubstr("in 3 sampled steps of 1 to 5")));
}

TEST(Json, OfCheckAndDoctorIsWhole) {
  const Scratch scratch;
  const json check = json::parse(scratch.run({"check", "run.toml", "--json"}).out);
  EXPECT_EQ(check["ok"], true);
  EXPECT_EQ(check["facts"][0]["name"], "parameters");
  const json doctor = json::parse(scratch.run({"doctor", "--json"}).out);
  EXPECT_GT(doctor["plugins"].size(), 5u);
  for (const json& plugin : doctor["plugins"]) EXPECT_EQ(plugin["ok"], true) << plugin["name"];
}

}  // namespace
}  // namespace tenon::integration::report_test
