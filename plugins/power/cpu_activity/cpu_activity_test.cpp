// Jiffies from files that count, stand still, go backwards, are damaged and vanish; and a process's clock.
#include "cpu_activity.hpp"

#include <tenon/testing/folders.hpp>
#include <tenon/testing/power.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace tenon::cpu_activity {
namespace {

using ::testing::HasSubstr;
using testing::make_policy;

double wall_now = 0, processor_now = 0;
const Clocks kTestClocks{[] { return wall_now; }, [] { return processor_now; }};

/// The text of the Error(kRun) that `body` throws.
template <typename Body>
std::string refusal_of(Body body) {
  return testing::error_of(body, ErrorKind::kRun);
}

class CpuActivityOfAFile : public testing::FolderTest {
 protected:
  void put(const std::string& text) { file_ = write("stat", text); }
  testing::MadePolicy<CpuActivity> make() const {
    return make_policy<CpuActivity>("stat = '" + folder_ + "/stat'", kTestClocks);
  }
  std::string file_;
};

TEST_F(CpuActivityOfAFile, IsTheBusyShareOfTheJiffiesSinceTheLastValue) {
  put("cpu  100 10 40 800 30 5 5 10 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\nintr 5\n");
  const auto made = make();
  const PowerSourceInfo info = made->open(0);
  EXPECT_EQ(info.unit, PowerUnit::kShare);
  EXPECT_EQ(info.origin, PowerOrigin::kMeasured);
  EXPECT_EQ(info.rated, 1);
  EXPECT_THAT(info.sensor, HasSubstr(file_));
  EXPECT_TRUE(std::isnan(made->read(0.01))) << "no jiffy has passed";
  // user 20, nice 1, system 5, irq 2 and softirq 2 are busy; idle 40, iowait 6 and steal 4 are not.
  put("cpu  120 11 45 840 36 7 7 14 9 0\n");
  EXPECT_EQ(made->read(0.02), 30.0 / 80);
  EXPECT_TRUE(std::isnan(made->read(0.03)));
  put("cpu  130 11 45 840 36 7 7 14 9 0\n");
  EXPECT_EQ(made->read(0.04), 1);
  put("cpu  130 11 45 850 36 7 7 14 9 0\n");
  EXPECT_EQ(made->read(0.05), 0);
}

TEST_F(CpuActivityOfAFile, CountsAnewAfterACounterWentBackwards) {
  put("cpu  100 0 0 100 0 0 0 0 0 0\n");
  const auto made = make();
  made->open(0);
  put("cpu  50 0 0 50 0 0 0 0 0 0\n");
  EXPECT_TRUE(std::isnan(made->read(1)));
  put("cpu  51 0 0 53 0 0 0 0 0 0\n");
  EXPECT_EQ(made->read(2), 0.25);
  // The wait for disks goes back by more than idle time came: never above 1.
  put("cpu  61 0 0 55 0 0 0 0 0 0\n");
  made->read(3);
  put("cpu  71 0 0 52 0 0 0 0 0 0\n");
  EXPECT_EQ(made->read(4), 1);
}

TEST_F(CpuActivityOfAFile, IsRefusedWhereItIsNoSuchFile) {
  EXPECT_EQ(refusal_of([&] { make()->open(0); }),
            folder_ + "/stat cannot be read: No such file or directory");
  EXPECT_EQ(refusal_of([&] { make_policy<CpuActivity>("stat = '" + folder_ + "'")->open(0); }),
            folder_ + " cannot be read: Is a directory");
  const std::string expected = "; expected 'cpu' and 8 counts of jiffies";
  const char* const kBad[] = {"",
                              "cpu  1 2 3 4 5 6 7",
                              "cpu  1 2 3 4 5 6 7 x",
                              "cpu  1 2 3 -4 5 6 7 8",
                              "cpu0 1 2 3 4 5 6 7 8",
                              "cpu  1 2 3 4 5 6 7 99999999999999999999",
                              "\n\ncpu  1 2 3 4 5 6 7 8",
                              "total garbage"};
  for (const char* const text : kBad) {
    put(text);
    EXPECT_THAT(refusal_of([&] { make()->open(0); }), HasSubstr(expected)) << text;
  }
}

TEST_F(CpuActivityOfAFile, EndsTheSourceWhereItVanishes) {
  put("cpu  100 0 0 100 0 0 0 0 0 0\n");
  const auto made = make();
  made->open(0);
  put("cpu  100 0 0 1");
  EXPECT_THAT(refusal_of([&] { made->read(1); }), HasSubstr("begins 'cpu  100 0 0 1'"));
  std::filesystem::remove(file_);
  EXPECT_THAT(refusal_of([&] { made->read(2); }), HasSubstr("cannot be read: No such file"));
}

TEST(CpuActivity, OfAProcessIsItsClockByTimeAndCores) {
  wall_now = 10, processor_now = 3;
  const auto made = make_policy<CpuActivity>("scope = 'process'", kTestClocks);
  const std::string sensor = made->open(0).sensor;
  const int cores = std::atoi(sensor.substr(sensor.find("of ", 20) + 3).c_str());
  ASSERT_GE(cores, 1) << sensor;
  wall_now = 10.0005, processor_now = 3.01;
  EXPECT_TRUE(std::isnan(made->read(0))) << "too short a time for clocks that are read one by one";
  wall_now = 10.01, processor_now = 3 + 0.004 * cores;
  EXPECT_NEAR(made->read(0), 0.4, 1e-9);
  wall_now = 10.02, processor_now += 0.02 * cores;
  EXPECT_EQ(made->read(0), 1) << "the clocks are read one after the other";
  EXPECT_FALSE(made->every_rank());
  EXPECT_TRUE(std::isnan(made->joules()));
}

TEST(CpuActivity, OfThisProcessRisesWhileItComputes) {
  const auto made = make_policy<CpuActivity>("scope = 'process'");
  made->open(0);
  const Clocks clocks = system_clocks();
  const double until = clocks.processor() + 0.05;
  while (clocks.processor() < until) {
  }
  EXPECT_GT(made->read(0), 0);
}

}  // namespace
}  // namespace tenon::cpu_activity
