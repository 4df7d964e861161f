// Bytes in the tables of studies whose runs communicate, and the figure of loss against bytes.
#include "reproduce/arms.hpp"

#include "ab/study.hpp"
#include "ab/testing/synthetic_runs.hpp"
#include "reproduce/render.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

namespace tenon::reproduce {
namespace {

using ab::testing::fresh_folder;
using ab::testing::read_text_file;
using ab::testing::SyntheticRun;
using ab::testing::write_text;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kBytesStudy = R"(title = "Bytes"
paper = "none"
question = "What does a byte buy?"
base = "base.toml"
baseline = "often"
figure = "bytes"

[size.quick]
steps = 400
seeds = [1]

[size.default]
steps = 400
seeds = [1, 2]

[[arm]]
name = "often"

[[arm]]
name = "seldom"
steps_over = 4

[[arm]]
name = "alone"
)";

/// often sends 8 MB of gradients, seldom 1 MB of gradients and 1 MB of weights in a quarter of the slots,
/// alone nothing.
StudyResult results(const std::string& name) {
  const std::string folder = fresh_folder(name);
  write_text(folder + "/bytes.toml", kBytesStudy);
  write_text(folder + "/base.toml", "[run]\nname = \"x\"\n");
  const StudyFile study = read_study(folder + "/bytes.toml");
  ab::RunnerOptions options;
  options.folder = folder + "/out";
  const Plan plan = make_plan(study, *study.size("default"), options,
                              [](const std::string& path, const std::vector<std::string>& sets) {
                                return ResolvedRun{Config::load(path, sets).root(), {}};
                              });
  ab::testing::write_runs(plan.experiment, options.folder, [](std::size_t arm, std::int64_t seed) {
    SyntheticRun run;
    run.seed = seed;
    run.final_loss = 2.0 + 0.1 * static_cast<double>(arm);
    if (arm == 1) run.steps = 100, run.batch = 64;
    return run;
  });
  const char* sent[] = {"\"gradient\": 8e6, \"statistics\": 5e6", "\"gradient\": 1e6, \"parameter\": 1e6",
                        "\"state\": 7"};
  for (std::size_t arm = 0; arm < 3; ++arm) {
    for (const int seed : {1, 2}) {
      const std::string path =
          ab::run_parent(options.folder, study.arms[arm].arm.name, seed) + "/1/summary.json";
      std::string text = read_text_file(path);
      const std::size_t at = text.find("\"gradients\": 0");
      EXPECT_NE(at, std::string::npos);
      write_text(path, text.replace(at, 14, sent[arm]));
    }
  }
  return read_results(study, *study.size("default"), plan, options.folder);
}

TEST(Bytes, AreThoseOfGradientsAndWeightsBesideTheBaselines) {
  const StudyResult r = results("bytes_table");
  EXPECT_EQ(r.arms[0].bytes, 8e6) << "statistics are not what the method costs";
  EXPECT_EQ(r.arms[1].bytes, 2e6);
  EXPECT_EQ(r.arms[2].bytes, 0);
  const std::string text = table_markdown(r);
  EXPECT_THAT(text, HasSubstr("| bytes per rank | of often's, % |"));
  EXPECT_THAT(text, HasSubstr("| seldom | 2.1000 | −5.00 "));
  EXPECT_THAT(text, HasSubstr("| 2,000,000 | 25.00 |"));
  EXPECT_THAT(table_json(r), HasSubstr("\"bytes_per_rank\": 2e+06"));
}

// A quarter of the slots, each of four times the samples, is the same work.
TEST(Bytes, ArmsWithSlotsThatHoldMoreArePairedBySamples) {
  const StudyResult r = results("bytes_pairs");
  EXPECT_EQ(r.arms[1].gaps.size(), 2u);
  EXPECT_TRUE(r.warnings.empty()) << r.warnings[0];
}

TEST(Bytes, TheFigureNamesEveryArmThatSent) {
  const std::string figure = figure_svg(results("bytes_figure"));
  EXPECT_THAT(figure, HasSubstr(">often<"));
  EXPECT_THAT(figure, HasSubstr(">seldom<"));
  EXPECT_THAT(figure, Not(HasSubstr(">alone<")));
  EXPECT_THAT(figure, HasSubstr("MB sent per rank"));
}

TEST(Bytes, LogarithmicTicksAreOneTwoAndFive) {
  EXPECT_THAT(log_ticks(0.9, 60), ElementsAre(1, 2, 5, 10, 20, 50));
  EXPECT_THAT(log_ticks(3e6, 4e6), ElementsAre());
}

}  // namespace
}  // namespace tenon::reproduce
