#include "plugin/call_watch.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace tenon::plugin {
namespace {

constexpr GuardContext kPlace{"acme.lion", "optimizer.lion", 2, 14};

std::string longest(double seconds, double deadline, bool ending = false) {
  const auto call = longest_call(seconds, deadline, ending);
  return call ? guard_place(call->context) + (call->seconds >= call->limit ? ": late" : "") : "none";
}

TEST(CallWatch, ACallThatLastsIsLateAfterItsDeadline) {
  EXPECT_EQ(longest(1, 3), "none");
  const PluginCallScope scope(kPlace);
  EXPECT_EQ(longest(1, 3), "none") << "it began since the last look";
  EXPECT_EQ(longest(1, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14)");
  EXPECT_EQ(longest(2, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14): late");
}

TEST(CallWatch, ACallWithinBeginsTheTimeAnew) {
  const PluginCallScope scope(kPlace);
  longest(1, 3);
  longest(2, 3);
  {
    const GuardContext inner{"acme.device", "device.acme", 2, 14};
    const PluginCallScope within(inner);
    EXPECT_EQ(longest(5, 3), "none");
    EXPECT_EQ(longest(5, 3), "plugin acme.device (device.acme, rank 2, step 14): late");
  }
  EXPECT_EQ(longest(5, 3), "none");
  EXPECT_EQ(longest(5, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14): late");
}

TEST(CallWatch, WaitsOfTheCoreDoNotCount) {
  const PluginCallScope scope(kPlace);
  const OutsideCall waits;
  longest(9, 3);
  EXPECT_EQ(longest(9, 3), "none");
}

TEST(CallWatch, PatienceIsInDeadlines) {
  GuardContext patient = kPlace;
  patient.patience = 2;
  const PluginCallScope scope(patient);
  longest(1, 3);
  EXPECT_EQ(longest(5, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14)");
  EXPECT_EQ(longest(1, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14): late");
}

TEST(CallWatch, ACallAsLongAsTheRunHasADeadlineOnceTheRunHasFailed) {
  GuardContext serves = kPlace;
  serves.patience = 0;
  const PluginCallScope scope(serves);
  longest(1, 3);
  EXPECT_EQ(longest(100, 3), "none");
  EXPECT_EQ(longest(1, 3, true), "plugin acme.lion (optimizer.lion, rank 2, step 14)");
  EXPECT_EQ(longest(2, 3, true), "plugin acme.lion (optimizer.lion, rank 2, step 14): late");
}

TEST(CallWatch, LooksAtAllThreads) {
  std::atomic<bool> inside = false, end = false;
  std::thread other([&] {
    const PluginCallScope scope(kPlace);
    inside = true;
    while (!end) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  longest(1, 3);
  EXPECT_EQ(longest(1, 3), "plugin acme.lion (optimizer.lion, rank 2, step 14)");
  end = true;
  other.join();
  EXPECT_EQ(longest(1, 3), "none");
}

}  // namespace
}  // namespace tenon::plugin
