// Run folders are untrusted input: torn lines, missing files, NaN, damage anywhere.
#include "ab/run_record.hpp"

#include "ab/testing/synthetic_runs.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

namespace tenon::ab {
namespace {

using ::testing::HasSubstr;

std::string sample_folder(const std::string& name) {
  const std::string folder = testing::fresh_folder(name) + "/3";
  testing::SyntheticRun run;
  run.seed = 7;
  run.steps = 100;
  run.eval_every = 25;
  testing::write_run(folder, run);
  return folder;
}

std::string refusal_of(const std::string& folder) {
  try {
    read_run(folder);
  } catch (const Error& error) {
    EXPECT_NE(error.kind(), ErrorKind::kPlugin);
    return error.what();
  }
  return "";
}

constexpr const char* kLine =
    "{\"step\": 1, \"split\": \"val\", \"name\": \"loss\", \"value\": 2.5, \"wall_s\": 1, \"samples\": 16, "
    "\"tokens\": 2048, "
    "\"bytes_sent\": 0}\n";

TEST(RunRecord, ReadsAWholeRun) {
  const RunRecord run = read_run(sample_folder("whole"));
  EXPECT_EQ(run.attempt, 3);
  EXPECT_EQ(run.status, "completed");
  EXPECT_EQ(run.steps, 100);
  EXPECT_EQ(run.samples, 1600);
  EXPECT_EQ(run.consumed(Axis::kTokens), 1600 * 128);
  EXPECT_EQ(run.series.at("val/loss").size(), 4u);
  EXPECT_EQ(run.series.at("train/loss").size(), 100u);
  EXPECT_EQ(run.final_value("val/loss"), 2.0);
  EXPECT_EQ(run.final_value("val/none"), std::nullopt);
  EXPECT_EQ(run.config.at("data.context"), "128");
  EXPECT_EQ(run.manifest.at("data[0].sha256"), "86c4e6aa");
  EXPECT_EQ(run.manifest.at("program.version"), "0.1.0");
  EXPECT_EQ(run.plugins_lock.at("plugin.tenon.optimizer_adamw.version"), "\"0.1.0\"");
  EXPECT_EQ(run.peak_rss_mb, 212.5);
  EXPECT_EQ(run.bytes_by_purpose.at("gradients"), 0);
  EXPECT_TRUE(run.notes.empty());
}

TEST(RunRecord, MissingFilesAreNamed) {
  for (const char* file : {"summary.json", "metrics.jsonl", "manifest.json", "config.resolved.toml"}) {
    const std::string folder = sample_folder("missing");
    std::filesystem::remove(folder + "/" + file);
    EXPECT_THAT(refusal_of(folder), HasSubstr(file));
  }
  EXPECT_THAT(refusal_of("/nonexistent/run"), HasSubstr("no such run folder"));
  const std::string folder = sample_folder("nolock");
  std::filesystem::remove(folder + "/plugins.lock");
  EXPECT_THAT(read_run(folder).notes.at(0), HasSubstr("plugins.lock"));
}

TEST(RunRecord, ATornLastLineIsDroppedAndTold) {
  const std::string good = kLine;
  for (std::size_t cut = 1; cut + 2 < good.size(); ++cut) {
    RunRecord run;
    parse_metrics(good + good.substr(0, cut), "metrics.jsonl", run);
    EXPECT_EQ(run.series.at("val/loss").size(), 1u) << cut;
    ASSERT_EQ(run.notes.size(), 1u) << cut;
    EXPECT_THAT(run.notes[0], HasSubstr("metrics.jsonl:2"));
  }
}

TEST(RunRecord, BrokenLinesInTheMiddleAreErrors) {
  const struct {
    const char* line;
    const char* message;
  } cases[] = {{"{\"step\": 1}", "is missing or no text"},
               {"[1, 2]", "expected an object"},
               {"{\"step\"", "m.jsonl:2"},
               {"{\"step\": \"x\", \"split\": \"val\", \"name\": \"loss\"}", "expected a number"},
               {"{\"step\": 1e300, \"split\": \"val\", \"name\": \"loss\"}", "not a count"}};
  for (const auto& c : cases) {
    RunRecord run;
    try {
      parse_metrics(std::string(kLine) + c.line + "\n" + kLine, "m.jsonl", run);
      ADD_FAILURE() << c.line;
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr(c.message));
      EXPECT_THAT(error.what(), HasSubstr("m.jsonl:2"));
    }
  }
}

TEST(RunRecord, NullIsNaNAndRepeatedStepsKeepTheLater) {
  RunRecord run;
  std::string diverged = kLine;
  diverged.replace(diverged.find("2.5"), 3, "null");
  parse_metrics(diverged, "m", run);
  EXPECT_TRUE(std::isnan(run.series.at("val/loss")[0].value));
  parse_metrics(kLine, "m", run);  // the same step again, after a resume
  ASSERT_EQ(run.series.at("val/loss").size(), 1u);
  EXPECT_EQ(run.series.at("val/loss")[0].value, 2.5);
  parse_summary(
      R"({"status":"completed","steps":1,"samples":1,"tokens":0,"wall_s":1,"bytes_sent":0,"metrics":{"val/loss":null}})",
      "s", run);
  EXPECT_TRUE(std::isnan(*run.final_value("val/loss")));
}

// Lines as the writer spells them have a reader of their own; it takes no more and no less than JSON.
TEST(RunRecord, EverySpellingOfANumberIsReadAsJsonDoes) {
  const auto value_of = [](const std::string& number, const char* more = "") {
    RunRecord run;
    parse_metrics("{\"step\": 1, \"split\": \"val\", \"name\": \"loss\", \"value\": " + number +
                      ", \"wall_s\": 1, \"samples\": 2, \"tokens\": 3, \"bytes_sent\": 4" + more + "}\n",
                  "line", run);
    return run.series.at("val/loss").at(0).value;
  };
  const std::pair<const char*, double> good[] = {
      {"0", 0},           {"-0.5", -0.5},
      {"1e3", 1000},      {"1.25E+2", 125},
      {"5e-324", 5e-324}, {"0.1", 0.1},
      {"  12 ", 12},      {"\"inf\"", INFINITY},
      {"1E-2", 0.01},     {"2.2250738585072014e-308", 2.2250738585072014e-308}};
  for (const auto& [text, value] : good) EXPECT_EQ(value_of(text), value) << text;
  EXPECT_TRUE(std::isnan(value_of("null")));
  EXPECT_EQ(value_of("7", ", \"value\": 8"), 8);
  EXPECT_EQ(value_of("7", ", \"rank\": {\"a\": [1]}"), 7);
  for (const char* text : {"01", "1.", ".5", "+1", "-", "1e", "0x10", "nan", "1 2", "", "\"a\\q\"", "1,"})
    EXPECT_THROW(value_of(text), Error) << text;
}

TEST(RunRecord, NewestAttemptCountsOnlyNumberedFolders) {
  const std::string parent = testing::fresh_folder("attempts");
  EXPECT_EQ(newest_attempt(parent + "/none"), 0);
  for (const char* name : {"1", "2", "10", "latest", "11x", "-5"})
    std::filesystem::create_directories(parent + "/" + name);
  testing::write_text(parent + "/99", "a file, not an attempt");
  EXPECT_EQ(newest_attempt(parent), 10);
}

// Damaged files cause an Error or yield a record, never a crash; truncation at every place and random bytes.
TEST(RunRecord, SurvivesDamage) {
  const std::string folder = sample_folder("damage");
  std::mt19937 random(12345);
  int refused = 0;
  for (const char* file :
       {"summary.json", "metrics.jsonl", "manifest.json", "config.resolved.toml", "plugins.lock"}) {
    const std::string path = folder + "/" + file;
    const std::string good = testing::read_text_file(path);
    for (int i = 0; i < 60; ++i) {
      std::string bad = good;
      if (i < 20) {
        bad.resize(good.size() * static_cast<std::size_t>(i) / 20);
      } else {
        for (int k = 0; k <= i % 5; ++k) bad[random() % bad.size()] = static_cast<char>(random());
      }
      testing::write_text(path, bad);
      try {
        read_run(folder);
      } catch (const Error&) {
        ++refused;
      }
    }
    testing::write_text(path, good);
  }
  EXPECT_GT(refused, 100);
  const std::string nested = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_EQ(flatten_json(nested, "nested").size(), 1u);
  EXPECT_THROW(flatten_json(std::string(1'000'000, '['), "nested"), Error);
}

}  // namespace
}  // namespace tenon::ab
