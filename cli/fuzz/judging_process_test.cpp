// A process that judges and does not end, in place of which a script stands: slow the first time, or always.
#include "fuzz/judging_process.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

namespace tenon::fuzz::judging_process_test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class JudgingProcess : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ =
        fs::path(::testing::TempDir()) / ::testing::UnitTest::GetInstance()->current_test_info()->name();
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  /// Judges by a script that sleeps as long as `sleeps` says, and then accepts.
  Judged judge(const std::string& sleeps, bool twice = true) {
    Judged accepted;
    accepted.verdict.accepted = true;
    const std::string program = (folder_ / "program").string();
    std::ofstream(program) << "#!/bin/sh\ncd '" << folder_.string()
                           << "'\necho >> calls\nmkdir -p work/attempt0\n"
                           << sleeps
                           << "\nls work/attempt0 > seen\ntouch work/attempt0/left\ncat >&3 <<'END'\n"
                           << verdict_line(accepted) << "END\n";
    fs::permissions(program, fs::perms::owner_all);
    JudgingRequest request;
    request.index = 7;
    request.folder = (folder_ / "work").string();
    request.program = program;
    request.seconds = 1.5;
    request.twice = twice;
    return judged_in_process(request);
  }
  int calls() const {
    std::ifstream in(folder_ / "calls");
    int lines = 0;
    for (std::string line; std::getline(in, line);) ++lines;
    return lines;
  }

  fs::path folder_;
};

TEST_F(JudgingProcess, ASlowOneGetsThreeTimesTheTime) {
  const Judged judged = judge("[ -f late ] || { touch late work/attempt0/half; sleep 30; }\nsleep 2");
  EXPECT_TRUE(judged.verdict.accepted);
  EXPECT_FALSE(judged.verdict.finding.has_value());
  EXPECT_EQ(calls(), 2);
  EXPECT_EQ(fs::file_size(folder_ / "seen"), 0u) << "what the first one left is gone";
}

TEST_F(JudgingProcess, OneThatNeverEndsIsAFinding) {
  const Judged judged = judge("sleep 30");
  EXPECT_EQ(calls(), 2);
  EXPECT_EQ(judged.index, 7u);
  ASSERT_TRUE(judged.verdict.finding.has_value());
  EXPECT_EQ(judged.verdict.finding->identity, "process");
  EXPECT_THAT(judged.verdict.finding->text, HasSubstr("did not end within 4.5 s"));
}

TEST_F(JudgingProcess, OnceIsEnoughWhereACaseIsMadeSmaller) {
  EXPECT_TRUE(judge("sleep 30", false).verdict.finding.has_value());
  EXPECT_EQ(calls(), 1);
}

}  // namespace
}  // namespace tenon::fuzz::judging_process_test
