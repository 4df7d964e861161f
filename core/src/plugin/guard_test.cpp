#include "plugin/guard.hpp"
#include "plugin/process_end.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/parallel.hpp>

#include <gtest/gtest.h>

#include <csignal>
#include <stdexcept>
#include <thread>

namespace tenon {
namespace {

const GuardContext kPlace{"acme.lion", "optimizer.lion", 2, 14};

TEST(Guard, ReturnsWhatTheCallReturns) {
  int value = 3;
  EXPECT_EQ(guard(kPlace, [&] { return value + 1; }), 4);
  guard(kPlace, [&]() -> int& { return value; }) = 9;
  EXPECT_EQ(value, 9);
}

TEST(Guard, NamesThePlaceAndKeepsTheKind) {
  struct Case {
    GuardContext context;
    void (*call)();
    ErrorKind kind;
    const char* message;
  };
  ResolvedOptions options("optimizer.lion");
  options.set_origin(Origin{"x.toml", 3, 1});
  const Case cases[] = {
      {kPlace, [] { throw std::runtime_error("boom"); }, ErrorKind::kPlugin,
       "plugin acme.lion (optimizer.lion, rank 2, step 14): boom"},
      {kPlace, [] { throw 5; }, ErrorKind::kPlugin,
       "plugin acme.lion (optimizer.lion, rank 2, step 14): threw an object that is not a std::exception"},
      {kPlace, [] { fail_config("lr is odd"); }, ErrorKind::kConfig,
       "plugin acme.lion (optimizer.lion, rank 2, step 14): lr is odd"},
      {kPlace, [] { fail_run("disk full"); }, ErrorKind::kRun,
       "plugin acme.lion (optimizer.lion, rank 2, step 14): disk full"},
      {{"acme.lion", "optimizer.lion", 2},
       [] { fail_config("lr is odd"); },
       ErrorKind::kConfig,
       "plugin acme.lion (optimizer.lion): lr is odd"},
      {{"acme.lion", "optimizer.lion", 2, -1, &options},
       [] { fail_config("lr is odd"); },
       ErrorKind::kConfig,
       "x.toml:3:1: plugin acme.lion (optimizer.lion): lr is odd"},
      {{"acme.lion", ""}, [] { fail_plugin("no"); }, ErrorKind::kPlugin, "plugin acme.lion: no"},
      {{"acme.lion", "", 0}, [] { fail_plugin("no"); }, ErrorKind::kPlugin, "plugin acme.lion (rank 0): no"},
      {{"", "prefetch", 1}, [] { fail_run("no"); }, ErrorKind::kRun, "prefetch (rank 1): no"},
  };
  for (const Case& c : cases) {
    try {
      guard(c.context, c.call);
      FAIL() << c.message;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), c.kind);
      EXPECT_STREQ(error.what(), c.message);
    }
  }
}

TEST(Guard, DeadlineKeepsItsTypeAndCancellationIsLeftAlone) {
  try {
    guard(kPlace, [] { throw DeadlineError("rank 3 is late"); });
    FAIL();
  } catch (const DeadlineError& error) {
    EXPECT_STREQ(error.what(), "plugin acme.lion (optimizer.lion, rank 2, step 14): rank 3 is late");
  }
  try {
    guard(kPlace, [] { throw CancelledError("rank 3 failed"); });
    FAIL();
  } catch (const CancelledError& error) {
    EXPECT_STREQ(error.what(), "rank 3 failed");
  }
}

TEST(Guard, TheInnermostCallIsNamed) {
  try {
    guard(kPlace, [] {
      guard(GuardContext{"acme.device", "device.acme", 2, 14}, [] { throw std::runtime_error("no memory"); });
    });
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plugin acme.device (device.acme, rank 2, step 14): no memory");
  }
}

TEST(Guard, CurrentCallNestsAndBelongsToTheThread) {
  EXPECT_EQ(current_plugin_call(), nullptr);
  const GuardContext inner{"zeta.twin", "toy.twin"};
  guard(kPlace, [&] {
    EXPECT_EQ(current_plugin_call(), &kPlace);
    EXPECT_THROW(guard(inner,
                       [&] {
                         EXPECT_EQ(current_plugin_call(), &inner);
                         throw 1;
                       }),
                 Error);
    EXPECT_EQ(current_plugin_call(), &kPlace);
    std::thread([] { EXPECT_EQ(current_plugin_call(), nullptr); }).join();
  });
  EXPECT_EQ(current_plugin_call(), nullptr);
}

TEST(FatalSignalDeathTest, NamesThePlugin) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        plugin::install_fatal_signal_handler();
        guard(kPlace, [] { std::raise(SIGSEGV); });
      },
      testing::KilledBySignal(SIGSEGV),
      "tenon: fatal signal 11 \\(Segmentation fault\\) inside plugin acme.lion, component optimizer.lion, "
      "rank 2, step "
      "14");
  EXPECT_EXIT(
      {
        plugin::install_fatal_signal_handler();
        std::abort();
      },
      testing::KilledBySignal(SIGABRT), "tenon: fatal signal 6 \\(Aborted\\) outside any plugin call");
}

TEST(FatalSignalDeathTest, NamesThePluginOnThreadsThatHelp) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        plugin::install_fatal_signal_handler();
        set_parallel_threads(2);
        const std::thread::id caller = std::this_thread::get_id();
        guard(kPlace, [&] {
          parallel_for(2, 1, [&](std::int64_t, std::int64_t) {
            if (std::this_thread::get_id() != caller) std::raise(SIGSEGV);
          });
        });
      },
      testing::KilledBySignal(SIGSEGV), "inside plugin acme.lion, component optimizer.lion, rank 2, step 14");
}

struct Thrower {
  void fail() { throw std::runtime_error("no such row"); }
  int answer() { return 42; }
};

TEST(GuardedCall, NamesTheCallThatAnExceptionLeft) {
  Thrower thrower;
  const auto call = [&](const char* component) {
    return GuardedCall<Thrower>(&thrower, {"acme.lion", component, 2, 14});
  };
  EXPECT_EQ(call("optimizer.lion")->answer(), 42);
  EXPECT_EQ(current_plugin_call(), nullptr);
  try {
    try {
      call("optimizer.lion")->fail();
    } catch (...) {
      rethrow_noted_call();
    }
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "plugin acme.lion (optimizer.lion, rank 2, step 14): no such row");
    EXPECT_EQ(error.kind(), ErrorKind::kPlugin);
  }
  // The note is used once: a later failure of the core itself carries no plugin's name.
  try {
    try {
      fail_run("disk full");
    } catch (...) {
      rethrow_noted_call();
    }
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "disk full");
  }
}

}  // namespace
}  // namespace tenon
