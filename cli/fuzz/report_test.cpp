// The report of a fuzz: counts of identities, components and pairs; verdicts between processes; cases on
// disk.
#include "fuzz/report.hpp"

#include "fuzz/fuzzer.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace tenon::fuzz::report_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Judged judged(std::uint64_t index, std::set<std::string> components) {
  Judged one;
  one.index = index;
  one.base = "mlp";
  one.components = std::move(components);
  one.verdict.accepted = true;
  one.verdict.held = {"check", "repetition"};
  one.seconds = static_cast<double>(index);
  return one;
}

FuzzRun sample_run() {
  FuzzRun run;
  run.seed = 3;
  run.components = {"sync.ddp", "sync.none", "precision.fp32", "precision.bf16"};
  run.judged = {judged(1, {"sync.ddp", "precision.fp32"}), judged(2, {"sync.none", "precision.fp32"})};
  run.judged.push_back(judged(3, {"sync.ddp", "precision.bf16"}));
  run.judged[2].verdict.accepted = false;
  run.judged[2].verdict.held = {"check"};
  run.judged.push_back(judged(4, {"sync.ddp", "precision.fp32"}));
  run.judged[3].verdict.finding =
      Finding{"crash", "a < b", {"tenon train case.toml --run-dir a"}, "other", "own"};
  run.judged[3].verdict.left_out = {{"clock", "why"}};
  run.judged[3].folder = "fuzz/abc";
  return run;
}

TEST(Report, CountsCompositionsThatTrainedAlone) {
  const FuzzRun run = sample_run();
  const Coverage coverage = coverage_of(run);
  EXPECT_EQ(coverage.components.at("sync.ddp"), 2);
  EXPECT_EQ(coverage.components.count("precision.bf16"), 0u) << "it was refused";
  EXPECT_EQ(coverage.pairs.at({"precision.fp32", "sync.ddp"}), 2);
  EXPECT_THAT(uncovered_pairs(run, coverage), ::testing::IsEmpty());
  FuzzRun wider = run;
  wider.judged.push_back(judged(5, {"precision.bf16", "sync.none"}));
  EXPECT_THAT(uncovered_pairs(wider, coverage_of(wider)),
              ::testing::ElementsAre(std::pair<std::string, std::string>("precision.bf16", "sync.ddp")));
}

TEST(Report, TellsIdentitiesComponentsAndFailures) {
  const FuzzRun run = sample_run();
  EXPECT_THAT(
      text_report(run),
      AllOf(
          HasSubstr("composition 4 (mlp) fails crash: a < b"), HasSubstr("fuzz/abc/case.toml"),
          HasSubstr("  tenon train case.toml --run-dir a\n"), HasSubstr("precision.bf16  0"),
          HasSubstr("seed 3: 4 compositions, 3 trained, 1 were refused alike by check and train, 1 failed")));
  EXPECT_THAT(html_report(run), AllOf(HasSubstr("a &lt; b"), HasSubstr("fuzz/abc"), HasSubstr("repetition")));
  EXPECT_THAT(json_report(run), AllOf(HasSubstr("\"failed\": 1"), HasSubstr("\"case\": \"fuzz/abc\"")));
}

TEST(Report, AVerdictComesBackAsItWas) {
  for (const Judged& one : sample_run().judged) {
    const Judged back = read_verdict(verdict_line(one));
    EXPECT_EQ(back.index, one.index);
    EXPECT_EQ(back.components, one.components);
    EXPECT_EQ(back.verdict.accepted, one.verdict.accepted);
    EXPECT_EQ(back.verdict.held, one.verdict.held);
    EXPECT_EQ(back.verdict.left_out, one.verdict.left_out);
    ASSERT_EQ(back.verdict.finding.has_value(), one.verdict.finding.has_value());
    if (!one.verdict.finding) continue;
    EXPECT_EQ(back.verdict.finding->identity, one.verdict.finding->identity);
    EXPECT_EQ(back.verdict.finding->text, one.verdict.finding->text);
    EXPECT_EQ(back.verdict.finding->commands, one.verdict.finding->commands);
    EXPECT_EQ(back.verdict.finding->other, one.verdict.finding->other);
    EXPECT_EQ(back.verdict.finding->own, one.verdict.finding->own);
  }
  EXPECT_THROW(read_verdict("{}"), Error);
  EXPECT_THROW(read_verdict("no JSON"), Error);
}

TEST(Report, ACaseNamesItsIdentityItsDrawAndTwoCommands) {
  Judged one = sample_run().judged[3];
  one.verdict.finding->commands = {"tenon a", "tenon b"};
  const Value root = Config::parse("[run]\nsteps = 4\n", "x", {}).root();
  EXPECT_EQ(
      case_text(one, 3, root),
      "# identity: crash\n# seed: 3\n# composition: 4\n# found: a < b\n# see: tenon a\n# see: tenon b\n" +
          to_toml(root, false));
}

TEST(Identities, EachComesUpInRotation) {
  std::map<std::string, int> times;
  for (std::uint64_t index = 0; index < 120; ++index) {
    const std::vector<std::string> chosen = identities_of(1, index);
    EXPECT_EQ(chosen, identities_of(1, index));
    EXPECT_LE(chosen.size(), 3u);
    for (const std::string& name : chosen) ++times[name];
  }
  for (const IdentityText& identity : all_identities()) {
    if (identity.name == std::string_view("check") || identity.name == std::string_view("trains")) continue;
    EXPECT_GE(times[identity.name], 3) << identity.name;
  }
}

}  // namespace
}  // namespace tenon::fuzz::report_test
