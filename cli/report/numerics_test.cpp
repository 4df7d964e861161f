// numerics.jsonl on the page of a run and between two runs: first differences, and messages for a missing or
// damaged file.
#include "report/numerics.hpp"
#include "report/compare.hpp"
#include "report/pages.hpp"
#include "report/testing_runs.hpp"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace tenon::report {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

struct Fields {
  int step = 1;
  std::string layer = "h.0.fc", gemm = "fprop", operand = "x", format = "nvfp4", hash = "aa",
              error = "0.0625";
  std::string choices = "";
};

std::string operand_line(const Fields& f) {
  return "{\"step\": " + std::to_string(f.step) + ", \"layer\": \"" + f.layer +
         "\", \"site\": 0, \"gemm\": \"" + f.gemm + "\", \"operand\": \"" + f.operand +
         "\", \"first_row\": 0, \"rows\": 4, \"columns\": 16, \"dtype\": \"bf16\", \"format\": \"" +
         f.format +
         "\", \"reason\": \"recipe\", \"amax\": 3.5, \"underflow\": 0.25, \"saturated\": 0, \"sqnr_db\": "
         "null, "
         "\"mean_relative_error\": " +
         f.error + ", \"scale_min\": 1, \"scale_max\": 4, \"scale_binades\": 2, " + f.choices +
         "\"hash\": \"" + f.hash + "\"}\n";
}

class NumericsReport : public RunFolders {
 protected:
  OperandComparison compare(const std::string& a, const std::string& b) const {
    write("a/1/numerics.jsonl", a);
    write("b/1/numerics.jsonl", b);
    return compare_operands((folder_ / "a/1").string(), (folder_ / "b/1").string());
  }
};

TEST_F(NumericsReport, ThePageShowsLayersByOperands) {
  const std::string attempt = run("tiny");
  EXPECT_THAT(run_page(load_run(attempt)), Not(HasSubstr("Number formats"))) << "a run without the observer";
  write("tiny/1/numerics.jsonl",
        operand_line({}) + operand_line({.operand = "w", .format = "bf16", .error = "0"}) +
            operand_line({.step = 101, .error = "0.1875"}) +
            operand_line({.layer = "h.<1>", .gemm = "wgrad", .operand = "dy", .error = "null"}));
  const std::string page = run_page(load_run(attempt));
  EXPECT_THAT(page, AllOf(HasSubstr("<h2>Number formats</h2>"), HasSubstr("in 2 sampled steps of 1 to 101"),
                          HasSubstr("12.5 %"), HasSubstr("fprop w"), HasSubstr("h.&lt;1&gt;"),
                          HasSubstr("Why each format was chosen")));
  EXPECT_THAT(page, Not(HasSubstr(">kept</label>"))) << "no mixture";
}

TEST_F(NumericsReport, AMixtureShowsWhatItKept) {
  const std::string attempt = run("tiny");
  write("tiny/1/numerics.jsonl",
        operand_line({.format = "mor",
                      .choices = "\"choices\": {\"kept\": 1, \"e4m3\": 3, \"e5m2\": 0, \"e2m3\": 0}, "}));
  EXPECT_THAT(run_page(load_run(attempt)), AllOf(HasSubstr("kept"), HasSubstr("25 %")));
}

TEST_F(NumericsReport, ADamagedFileTakesNoPageAway) {
  const std::string attempt = run("tiny");
  write("tiny/1/numerics.jsonl", operand_line({}) + "{\"step\": 1}\n" + operand_line({}));
  EXPECT_THAT(run_page(load_run(attempt)), AllOf(HasSubstr("Completed after 5 steps"),
                                                 HasSubstr("numerics.jsonl:2: not a line of the observer")));
  const auto files = make_posix_files();
  write("tiny/1/numerics.jsonl", operand_line({}) + "{\"step\": 2, \"la");
  EXPECT_EQ(read_numerics(*files, attempt)->size(), 1u) << "a torn last line";
}

TEST_F(NumericsReport, EqualRunsPartNowhere) {
  const OperandComparison same =
      compare(operand_line({}) + operand_line({.step = 2}), operand_line({}) + operand_line({.step = 2}));
  EXPECT_EQ(same.common, 2);
  EXPECT_EQ(same.equal, 2);
  EXPECT_FALSE(same.first);
  EXPECT_THAT(operands_text(same), HasSubstr("all of them have equal bits and equal figures"));
}

TEST_F(NumericsReport, TheFirstPartingIsNamedByStepAndOperand) {
  const OperandComparison parted =
      compare(operand_line({}) + operand_line({.operand = "w"}) + operand_line({.layer = "h.1.fc"}) +
                  operand_line({.layer = "h.1.fc", .operand = "w"}),
              operand_line({}) + operand_line({.operand = "w", .format = "bf16", .error = "0"}) +
                  operand_line({.layer = "h.1.fc", .hash = "bb", .error = "0.07"}) +
                  operand_line({.layer = "h.1.fc", .operand = "w"}));
  ASSERT_TRUE(parted.first);
  EXPECT_EQ(parted.first->a.name(), "h.0.fc fprop w");
  EXPECT_TRUE(parted.first->same_bits());
  ASSERT_TRUE(parted.first_bits);
  EXPECT_EQ(parted.first_bits->a.name(), "h.1.fc fprop x");
  EXPECT_EQ(parted.largest.front().a.name(), "h.0.fc fprop w") << "6.25 % against 0";
  EXPECT_THAT(operands_text(parted),
              AllOf(HasSubstr("the runs part at step 1, h.0.fc fprop w (equal bits went in, the formats "
                              "differ)\n    A: nvfp4 "
                              "bf16 [4, 16], hash aa, amax 3.5, mean relative error 6.25 %"),
                    HasSubstr("the first other bits go in at step 1, h.1.fc fprop x (other bits went in)"),
                    HasSubstr("2 of 4 differ")));
}

TEST_F(NumericsReport, EqualBitsThatAreRoundedOtherwisePartThere) {
  const OperandComparison parted = compare(operand_line({}), operand_line({.error = "0.07"}));
  EXPECT_THAT(operands_text(parted), AllOf(HasSubstr("(equal bits went in and were rounded otherwise)"),
                                           HasSubstr("no operand has other bits before rounding")));
}

TEST_F(NumericsReport, ARunWithoutTheFileIsNamed) {
  run("a");
  write("b/1/numerics.jsonl", operand_line({}));
  const OperandComparison missing = compare_operands((folder_ / "a/1").string(), (folder_ / "b/1").string());
  EXPECT_EQ(
      operands_text(missing),
      "operands: A has no numerics.jsonl; to see where the runs part, train it again with\n  [[observe]]\n  "
      "type = \"numerics\"\n");
}

TEST_F(NumericsReport, RunsThatLookedElsewhereHaveNothingInCommon) {
  EXPECT_THAT(operands_text(compare(operand_line({}), operand_line({.step = 3}))),
              HasSubstr("nothing to compare: the runs looked at other steps or layers"));
}

TEST_F(NumericsReport, JsonHasTheSameAnswer) {
  const auto a = load_run(run("a")), b = load_run(run("b"));
  NumericsAnswer answer;
  answer.operands = compare(operand_line({}), operand_line({.hash = "bb"}));
  const auto json = nlohmann::json::parse(comparison_json(a, b, compare_runs(a, b), &answer));
  EXPECT_EQ(json["operands"]["first"]["operand"], "h.0.fc fprop x");
  EXPECT_EQ(json["operands"]["first"]["same_bits"], false);
  EXPECT_EQ(json["operands"]["largest"].size(), 1u);
  EXPECT_FALSE(json.contains("numerics")) << "no checkpoints";
}

}  // namespace
}  // namespace tenon::report
