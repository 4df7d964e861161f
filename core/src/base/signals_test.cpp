// Delivery of the signals of a process, in children of this test where the default would end it.
#include "base/signals.hpp"
#include "base/child_process.hpp"
#include "base/standard_streams.hpp"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <pthread.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <string>
#include <thread>

namespace tenon::base {
namespace {

using std::chrono::milliseconds;

bool within(double seconds, const std::function<bool()>& holds) {
  for (int i = 0; i < static_cast<int>(seconds * 200); ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return false;
}

TEST(Signals, ThreadsOfBeforePassThemOnAndAllAreOneRequest) {
  std::atomic<bool> done{false};
  std::thread before([&] {
    while (!done) std::this_thread::sleep_for(milliseconds(5));
  });
  std::atomic<int> asked{0}, insisted{0};
  std::string first;
  {
    const StopListener listener(
        [&](const std::string& signal, bool typed) {
          first = signal + (typed ? " typed" : "");
          ++asked;
        },
        [&] { ++insisted; });
    ::pthread_kill(before.native_handle(), SIGTERM);
    EXPECT_TRUE(within(5, [&] { return asked == 1; }));
    for (int i = 0; i < 3; ++i) {
      ::kill(::getpid(), i == 1 ? SIGTERM : SIGINT);
      std::this_thread::sleep_for(milliseconds(500));
    }
  }
  EXPECT_EQ(first, "SIGTERM");
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(insisted, 0);
  done = true;
  before.join();
}

TEST(SignalsDeathTest, NobodyListens) {
  const auto wait = [] { std::this_thread::sleep_for(milliseconds(5000)); };
  EXPECT_EXIT(
      {
        ::signal(SIGTERM, SIG_DFL);
        const Signals taken;
        ::kill(::getpid(), SIGTERM);
        wait();
      },
      testing::KilledBySignal(SIGTERM), "")
      << "taken, with no listener";
  EXPECT_EXIT(
      {
        ::signal(SIGINT, SIG_DFL);
        {
          const StopListener listener([](const std::string&, bool) {}, [] {});
        }
        ::kill(::getpid(), SIGINT);
        wait();
      },
      testing::KilledBySignal(SIGINT), "")
      << "given back";
  EXPECT_EXIT(
      {
        const Signals taken;
        {
          std::atomic<bool> heard{false};
          const StopListener listener([&](const std::string&, bool) { heard = true; }, [] {});
          ::kill(::getpid(), SIGTERM);
          within(5, [&] { return heard.load(); });
        }
        ::kill(::getpid(), SIGTERM);
        std::this_thread::sleep_for(milliseconds(200));
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "")
      << "the same request, after it was obeyed";
}

// A terminal sends Ctrl-C to the group in its foreground.
TEST(Signals, CtrlCTypedAgainAfterASecondInsists) {
  int terminal = -1;
  const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
  ASSERT_GE(child, 0);
  if (child == 0) {
    const StopListener listener(
        [](const std::string& signal, bool typed) {
          if (::write(1, typed && signal == "SIGINT" ? "A" : "x", 1) != 1) std::_Exit(1);
        },
        [] { std::_Exit(42); });
    if (::write(1, "R", 1) != 1) std::_Exit(1);
    std::this_thread::sleep_for(std::chrono::seconds(20));
    std::_Exit(3);
  }
  std::string seen;
  const auto sees = [&](char mark) {
    for (char c = 0; c != mark;) {
      if (::read(terminal, &c, 1) != 1) return false;
      seen += c;
    }
    return true;
  };
  ASSERT_TRUE(sees('R'));
  const auto type = [&] { EXPECT_EQ(::write(terminal, "\003", 1), 1); };
  type();
  ASSERT_TRUE(sees('A')) << seen;
  std::this_thread::sleep_for(milliseconds(300));
  type();
  std::this_thread::sleep_for(milliseconds(300));
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, WNOHANG), 0) << "a key held down is no second request";
  std::this_thread::sleep_for(milliseconds(600));
  type();
  ASSERT_TRUE(within(5, [&] { return ::waitpid(child, &status, WNOHANG) == child; }));
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 42);
  ::close(terminal);
}

TEST(Spawn, AChildFindsTheSignalsOfAShell) {
  const Signals taken;
  prepare();
  int words[2];
  ASSERT_EQ(::pipe2(words, O_CLOEXEC), 0);
  ChildFiles files;
  files.open(0, "/dev/null", O_RDONLY);
  files.copy(words[1], 1);
  ChildProcess child;
  // No shell, which would set its own.
  ASSERT_EQ(child.start({"cat", {"/proc/self/status", "/proc/self/environ"}, {"WORD=given"}}, files), 0);
  ::close(words[1]);
  std::string text;
  for (char c; ::read(words[0], &c, 1) == 1;) text += c;
  ::close(words[0]);
  ASSERT_TRUE(within(5, [&] { return child.ended(); }));
  EXPECT_EQ(describe_exit(child.status()), "ended with exit status 0");
  const auto mask = [&](const char* name) {
    return std::strtoull(text.c_str() + text.find(name) + 7, nullptr, 16);
  };
  std::uint64_t ours = 0;
  for (const int signal : {SIGINT, SIGTERM, SIGPIPE, SIGXFSZ, SIGCHLD})
    ours |= std::uint64_t{1} << (signal - 1);
  EXPECT_EQ(mask("SigBlk:"), 0u) << text;
  EXPECT_EQ(mask("SigIgn:") & ours, 0u) << text;
  EXPECT_NE(text.find("WORD=given"), std::string::npos) << text;
}

TEST(StandardStreamsDeathTest, AreThere) {
  EXPECT_EXIT(
      {
        for (int descriptor = 0; descriptor <= 2; ++descriptor) ::close(descriptor);
        open_standard_streams();
        const bool ours = ::open("/dev/null", O_RDONLY) == 3 || ::fcntl(2, F_GETFD) >= 0;
        std::_Exit(ours && ::write(1, "x", 1) == 1 && ::write(2, "x", 1) == 1 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        ::close(1);
        if (::open("/dev/full", O_WRONLY) != 1) std::_Exit(2);
        StandardOutput output;
        for (int i = 0; i < 3000; ++i) std::cout << "words\n";
        std::_Exit(output.failure() == "standard output cannot be written: No space left on device" ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace tenon::base
