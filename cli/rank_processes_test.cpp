// Processes that end well, with an error, by a signal and not at all.
#include "rank_processes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tenon::cli {
namespace {

using testing::HasSubstr;

std::vector<RankProcess> ranks(int count) {
  std::vector<RankProcess> all;
  for (int rank = 0; rank < count; ++rank) all.push_back({rank, {"TENON_RANK=" + std::to_string(rank)}});
  return all;
}

/// Four ranks: 0 ends well, 1 with status 3 and a word, 2 by SIGKILL, 3 waits to be killed.
constexpr const char* kScript =
    "case $TENON_RANK in 0) exit 0;; 1) echo sorry >&2; exit 3;; 2) kill -9 $$;; 4) kill -40 $$;; *) exec "
    "sleep 1000;; esac";

TEST(RankProcesses, TellEndsApart) {
  RankProcesses processes("/bin/sh", {"-c", kScript}, ranks(4));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto three_ended = [&] {
    return processes.describe_exit(0) != "" && processes.describe_exit(1) != "" &&
           processes.describe_exit(2) != "";
  };
  while (!three_ended() && std::chrono::steady_clock::now() < until)
    EXPECT_FALSE(processes.poll(std::chrono::milliseconds(20)));
  EXPECT_EQ(processes.describe_exit(0), "its process ended with exit status 0");
  EXPECT_EQ(processes.describe_exit(1), "its process ended with exit status 3");
  EXPECT_EQ(processes.describe_exit(2), "its process was killed by signal 9 (Killed)");
  EXPECT_EQ(processes.describe_exit(3), "");
  processes.kill_all();
  while (!processes.poll(std::chrono::milliseconds(20)) && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_THAT(processes.describe_exit(3), HasSubstr("signal 9"));
  EXPECT_THAT(processes.last_words(1), HasSubstr("sorry"));
  EXPECT_EQ(processes.exit_status(), 3);
}

TEST(RankProcesses, SpeakForThemselvesOnlyWithAnErrorOfTheirOwn) {
  RankProcesses processes("/bin/sh", {"-c", kScript}, ranks(3));
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!processes.poll(std::chrono::milliseconds(20)) && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_FALSE(processes.spoke_for_itself(0));  // it ended well, and knows nothing of later deaths
  EXPECT_TRUE(processes.spoke_for_itself(1));
  EXPECT_FALSE(processes.spoke_for_itself(2));
}

TEST(RankProcesses, HaveWordsForSignalsWithoutAName) {
  RankProcesses processes("/bin/sh", {"-c", kScript}, {{4, {"TENON_RANK=4"}}});
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!processes.poll(std::chrono::milliseconds(20)) && std::chrono::steady_clock::now() < until) {
  }
  EXPECT_EQ(processes.describe_exit(4), "its process was killed by signal 40 (a signal without a name)");
}

}  // namespace
}  // namespace tenon::cli
