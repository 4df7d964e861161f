// Log files: prefix, level, many threads, continuing a file.
#include "loop/rank_log.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

namespace tenon {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

class RankLogTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "tenon_log_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::vector<std::string> lines(int rank) const {
    std::ifstream file(folder_ + "/log.rank" + std::to_string(rank) + ".txt");
    std::vector<std::string> found;
    for (std::string line; std::getline(file, line);) found.push_back(line);
    return found;
  }

  std::string folder_;
};

TEST_F(RankLogTest, EachLineSaysWhoAndWhen) {
  {
    RankLog log(folder_, 3, LogLevel::kInfo);
    log.write(LogLevel::kInfo, "sync.mean", 12, "100 % of {} buckets");
    log.write(LogLevel::kDebug, "sync.mean", 12, "left out");
    log.write(LogLevel::kError, "core", -1, "first\nsecond");
    EXPECT_FALSE(log.enabled(LogLevel::kDebug));
    EXPECT_TRUE(log.enabled(LogLevel::kWarning));
  }
  const std::string time = "[0-9-]{10}T[0-9:]{8}\\.[0-9]{3}Z ";
  const std::vector<std::string> found = lines(3);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_THAT(found[0], MatchesRegex(time + "info rank 3 step 12 \\[sync\\.mean\\] 100 % of \\{\\} buckets"));
  EXPECT_THAT(found[1], MatchesRegex(time + "error rank 3 \\[core\\] first"));
  EXPECT_EQ(found[2], "    second");
}

TEST_F(RankLogTest, WarningsAreInTheFileAtOnceAndResumeContinues) {
  RankLog first(folder_, 0, LogLevel::kDebug);
  first.write(LogLevel::kWarning, "core", 0, "slow disk");
  EXPECT_EQ(lines(0).size(), 1u);
  first.write(LogLevel::kDebug, "core", 1, "detail");
  first.flush();
  RankLog second(folder_, 0, LogLevel::kInfo);
  second.write(LogLevel::kError, "core", 1, "again");
  EXPECT_EQ(lines(0).size(), 3u);
}

TEST_F(RankLogTest, ThreadsDoNotMixTheirLines) {
  {
    RankLog log(folder_, 0, LogLevel::kInfo);
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&log, t] {
        for (int i = 0; i < 250; ++i)
          log.write(LogLevel::kInfo, "actor", t, std::string(100, static_cast<char>('a' + t)));
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const std::vector<std::string> found = lines(0);
  EXPECT_EQ(found.size(), 1000u);
  for (const std::string& line : found) {
    EXPECT_EQ(line.find_first_not_of(line.back(), line.size() - 100), std::string::npos) << line;
  }
}

TEST_F(RankLogTest, ErrorsAndLevels) {
  EXPECT_THROW(RankLog("/dev/null/x", 0, LogLevel::kInfo), Error);
  struct Case {
    const char* text;
    LogLevel level;
  } const cases[] = {{"", LogLevel::kInfo},
                     {"info", LogLevel::kInfo},
                     {"debug", LogLevel::kDebug},
                     {"warning", LogLevel::kWarning},
                     {"error", LogLevel::kError}};
  for (const Case& c : cases) {
    ::setenv("TENON_LOG", c.text, 1);
    EXPECT_EQ(log_level_from_environment(), c.level) << c.text;
  }
  ::setenv("TENON_LOG", "loud", 1);
  try {
    log_level_from_environment();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kConfig);
    EXPECT_THAT(error.what(), HasSubstr("expected debug, info, warning or error, found 'loud'"));
  }
  ::unsetenv("TENON_LOG");
}

}  // namespace
}  // namespace tenon
