// Judgements that do not end, by a script in the place of the program: slow the first time, or always.
#include "fuzz/fuzzer.hpp"

#include <tenon/testing/folders.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tenon::fuzz::fuzzer_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class SlowJudgement : public testing::FolderTest {
 protected:
  /// A program whose judgement sleeps as `sleeps` says, and then accepts.
  std::string program(const std::string& sleeps) const {
    Judged accepted;
    accepted.index = 7;
    accepted.verdict.accepted = true;
    const fs::path path = folder_ + "/program";
    std::ofstream(path) << "#!/bin/sh\ncd '" << folder_ << "'\necho >> calls\n"
                        << "attempt=$(dirname \"$3\")/attempt0\nmkdir -p \"$attempt\"\n"
                        << sleeps << "\nls \"$attempt\" > seen\ncat >&3 <<'END'\n"
                        << verdict_line(accepted) << "END\n";
    fs::permissions(path, fs::perms::owner_all);
    return path.string();
  }
  /// Judges one composition.
  FuzzRun run(const std::string& sleeps) const {
    FuzzRequest request;
    request.count = 1;
    request.out = folder_ + "/out";
    request.program = program(sleeps);
    request.judgement_seconds = 1.5;
    return fuzz(request);
  }
  int calls() const {
    std::ifstream in(folder_ + "/calls");
    int lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }
};

TEST_F(SlowJudgement, IsMadeOnceMoreWithThreeTimesTheTimeAndTold) {
  const FuzzRun judged =
      run("[ -f late ] || { touch late; echo half > \"$attempt/log\"; sleep 30; }\nsleep 2");
  ASSERT_EQ(judged.judged.size(), 1u);
  EXPECT_TRUE(judged.judged[0].verdict.accepted);
  EXPECT_FALSE(judged.judged[0].verdict.finding.has_value());
  EXPECT_EQ(calls(), 2);
  EXPECT_EQ(fs::file_size(folder_ + "/seen"), 0u) << "what the first one left is gone";
  EXPECT_TRUE(fs::exists(folder_ + "/out/slow/0/attempt0/log")) << "and kept";
  EXPECT_THAT(text_report(judged), HasSubstr("composition 7 did not end in its time and was judged again"));
  EXPECT_THAT(html_report(judged), HasSubstr("out/slow/0"));
  EXPECT_THAT(json_report(judged), HasSubstr("\"judged_again\": [\n    {\n      \"composition\": 7"));
}

TEST_F(SlowJudgement, IsAFindingWhereItNeverEnds) {
  const FuzzRun judged = run("sleep 30");
  EXPECT_EQ(calls(), 2);
  ASSERT_EQ(judged.judged.size(), 1u);
  ASSERT_TRUE(judged.judged[0].verdict.finding.has_value());
  EXPECT_EQ(judged.judged[0].verdict.finding->identity, "process");
  EXPECT_THAT(judged.judged[0].verdict.finding->text, HasSubstr("did not end within 4.5 s"));
}

TEST_F(SlowJudgement, IsMadeOnceWhereACaseIsMadeSmaller) {
  JudgingRequest request;
  request.index = 7;
  request.folder = folder_ + "/work";
  request.program = program("sleep 30");
  request.seconds = 1.5;
  const Judged judged = judged_in_process(request);
  EXPECT_TRUE(judged.verdict.finding.has_value());
  EXPECT_FALSE(judged.ended);
  EXPECT_EQ(judged.index, 7u);
  EXPECT_EQ(calls(), 1);
}

}  // namespace
}  // namespace tenon::fuzz::fuzzer_test
