// The text of both forms, and when it appears, on a clock that the test controls.
#include "progress.hpp"

#include "base/testing/allocation_count.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tenon::progress {
std::unique_ptr<LineOutput> standard_error() {
  throw std::logic_error("a test writes to memory");
}

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Screen {
  std::vector<std::string> writes;
  int width = 100;
};

class ScreenOutput final : public LineOutput {
 public:
  explicit ScreenOutput(Screen& screen) : screen_(screen) {}
  void write(std::string_view text) override { screen_.writes.emplace_back(text); }
  int width() const override { return screen_.width; }

 private:
  Screen& screen_;
};

class ProgressTest : public ::testing::Test {
 protected:
  Progress make(bool terminal, bool quiet = false, std::int64_t first_slot = 0) {
    Progress progress(10, std::make_unique<ScreenOutput>(screen_), [this] { return now_; });
    RunInfo info;
    info.name = "tiny";
    info.steps = 400;
    info.first_slot = first_slot;
    info.terminal = terminal;
    info.quiet = quiet;
    progress.on_start(info);
    return progress;
  }

  /// Slots at 10 a second with 4 samples of 128 tokens each.
  void run(Progress& progress, std::int64_t from, std::int64_t to) {
    for (std::int64_t slot = from; slot < to; ++slot) {
      now_ += 0.1;
      progress.on_slot(record(slot));
    }
  }
  static SlotRecord record(std::int64_t slot) {
    SlotRecord record;
    record.slot = slot;
    record.applied = true;
    record.loss = 2.5;
    record.lr = 1e-3;
    record.samples = 4 * (slot + 1);
    record.tokens = 128 * record.samples;
    return record;
  }
  static Metric validation(std::int64_t step, std::string_view name, double value) {
    Metric metric;
    metric.step = step;
    metric.split = Split::kVal;
    metric.name = name;
    metric.value = value;
    return metric;
  }

  double now_ = 1000;
  Screen screen_;
};

TEST_F(ProgressTest, PlainLinesEveryTenSeconds) {
  Progress progress = make(false);
  run(progress, 0, 250);
  EXPECT_THAT(screen_.writes,
              ElementsAre("step 100/400 (25.0 %) | loss 2.5 | lr 1.00e-03 | 5.12k tok/s | ETA 0:30\n",
                          "step 200/400 (50.0 %) | loss 2.5 | lr 1.00e-03 | 5.12k tok/s | ETA 0:20\n"));
}

TEST_F(ProgressTest, AnEvaluationMakesOnePlainLine) {
  Progress progress = make(false);
  run(progress, 0, 50);
  progress.on_metric(validation(50, "accuracy", 0.25));
  progress.on_metric(validation(50, "loss", 2.75));
  EXPECT_THAT(screen_.writes, IsEmpty());  // more metrics may follow
  run(progress, 50, 51);
  ASSERT_THAT(screen_.writes, SizeIs(1));
  EXPECT_THAT(screen_.writes[0],
              HasSubstr("step 50/400 (12.5 %) | loss 2.5 | val loss 2.75 | val accuracy 0.25 | lr"));
  run(progress, 51, 60);
  EXPECT_THAT(screen_.writes, SizeIs(1));
}

TEST_F(ProgressTest, NamedEvaluationsFollowTheirLosses) {
  Progress progress = make(false);
  const auto named = [](std::string_view set, std::string_view name, double value) {
    Metric metric = validation(50, name, value);
    metric.set = set;
    return metric;
  };
  run(progress, 0, 50);
  progress.on_metric(validation(50, "loss", 2.75));
  progress.on_metric(validation(50, "loss_per_byte", 0.5));
  progress.on_metric(named("val.code", "loss", 1.5));
  progress.on_metric(named("val.code", "accuracy", 0.5));
  progress.on_metric(named("val.a_name_that_is_longer_than_its_place", "loss", 3.5));
  progress.on_metric(named("val.a_name_that_is_longer_than_its_place", "loss", 3.25));
  progress.on_metric(named("val.third", "loss", 9));
  progress.on_metric(named("val.code", "loss", 1.25));
  run(progress, 50, 51);
  ASSERT_THAT(screen_.writes, SizeIs(1));
  EXPECT_THAT(screen_.writes[0],
              HasSubstr(" | val loss 2.75 | val.code loss 1.25 | val.a_name_that_is_longe loss 3.25 | lr"));
}

TEST_F(ProgressTest, TrainMetricsMakeNoLines) {
  Progress progress = make(false);
  Metric metric = validation(1, "loss", 9);
  metric.split = Split::kTrain;
  progress.on_metric(metric);
  run(progress, 0, 3);
  EXPECT_THAT(screen_.writes, IsEmpty());
}

TEST_F(ProgressTest, TheTerminalIsRedrawnAtMostTenTimesASecond) {
  Progress progress = make(true);
  for (std::int64_t slot = 0; slot < 390; ++slot) {
    now_ += 0.001;
    progress.on_slot(record(slot));
  }
  EXPECT_THAT(screen_.writes, SizeIs(::testing::AllOf(::testing::Ge(3u), ::testing::Le(4u))));
}

TEST_F(ProgressTest, TheBarFitsTheTerminal) {
  Progress progress = make(true);
  run(progress, 0, 199);
  screen_.writes.clear();
  screen_.width = 100;
  run(progress, 199, 200);
  EXPECT_THAT(screen_.writes, ElementsAre("\rtiny [===============>              ] 200/400 | loss 2.5 | lr "
                                          "1.00e-03 | 5.12k tok/s | ETA 0:20\x1b[K"));
  for (int width = 1; width <= 200; ++width) {
    screen_.writes.clear();
    screen_.width = width;
    run(progress, 200 + width / 2, 201 + width / 2);
    if (screen_.writes.empty()) continue;
    const std::size_t columns = screen_.writes[0].size() - 1 - 3;  // without \r and the escape
    EXPECT_LE(columns, static_cast<std::size_t>(std::max(width - 1, 1)));
    EXPECT_EQ(screen_.writes[0].find('\n'), std::string::npos);
  }
}

TEST_F(ProgressTest, TheBarIsFullAtTheEnd) {
  Progress progress = make(true);
  run(progress, 0, 399);
  now_ += 0.001;  // sooner than a redraw is due
  screen_.writes.clear();
  progress.on_slot(record(399));
  ASSERT_THAT(screen_.writes, SizeIs(1));
  EXPECT_THAT(screen_.writes[0], HasSubstr("[==============================] 400/400"));
}

TEST_F(ProgressTest, TheLastLineSaysHowItEnded) {
  struct Case {
    bool terminal;
    const char* status;
    const char* message;
    const char* line;
  } const cases[] = {
      {false, "completed", "", "completed: 30/400 steps in 0:03 | loss 2.5 | val loss 2.75\n"},
      {true, "failed", "rank 1: disk full",
       "failed: 30/400 steps in 0:03 | loss 2.5 | val loss 2.75 | 5.12k tok/s | rank 1: disk full\n"},
  };
  for (const Case& c : cases) {
    Progress progress = make(c.terminal);
    run(progress, 0, 30);
    progress.on_metric(validation(30, "loss", 2.75));
    progress.on_finish(c.status, c.message);
    EXPECT_EQ(screen_.writes.back(), c.line);
  }
}

TEST_F(ProgressTest, QuietMeansNothingAtAll) {
  for (const bool terminal : {false, true}) {
    Progress progress = make(terminal, true);
    run(progress, 0, 400);
    progress.on_metric(validation(400, "loss", 1));
    progress.on_finish("completed", "");
    EXPECT_THAT(screen_.writes, IsEmpty());
  }
}

TEST_F(ProgressTest, AResumedRunDoesNotCountWhatCameBefore) {
  Progress progress = make(false, false, 200);
  run(progress, 200, 302);
  ASSERT_THAT(screen_.writes, SizeIs(1));
  EXPECT_THAT(screen_.writes[0], HasSubstr("| 5.12k tok/s | ETA 0:10"));
}

TEST_F(ProgressTest, SamplesWhereTokensMeanNothing) {
  Progress progress = make(false);
  for (std::int64_t slot = 0; slot < 100; ++slot) {
    now_ += 0.1;
    SlotRecord one = record(slot);
    one.tokens = one.samples;
    one.loss = std::numeric_limits<double>::quiet_NaN();
    progress.on_slot(one);
  }
  ASSERT_THAT(screen_.writes, SizeIs(1));
  EXPECT_THAT(screen_.writes[0], HasSubstr("| loss nan |"));
  EXPECT_THAT(screen_.writes[0], HasSubstr("| 40 samples/s |"));
}

TEST_F(ProgressTest, DurationsAndRates) {
  struct Case {
    double rate;
    double seconds;
    const char* text;
  } const cases[] = {
      {0.25, 59.6, "| 0.25 tok/s | ETA 1:00"},
      {999, 3599, "| 999 tok/s | ETA 59:59"},
      {1000, 3600, "| 1k tok/s | ETA 1:00:00"},
      {2.5e6, 100000, "| 2.5M tok/s | ETA 27:46:40"},
      {3e9, 1e300, "| 3G tok/s | ETA -:--"},
      {1, std::numeric_limits<double>::quiet_NaN(), "ETA -:--"},
      {1, -5, "ETA 0:00"},
  };
  LineBuffer buffer;
  for (const Case& c : cases) {
    Snapshot now;
    now.done = now.steps = 1;
    now.rate = c.rate;
    now.unit = "tok";
    now.seconds_left = c.seconds;
    EXPECT_THAT(std::string(plain_line(buffer, now)), HasSubstr(c.text));
  }
}

TEST_F(ProgressTest, LongTextsAreCutAndTheLineStillEnds) {
  LineBuffer buffer;
  const std::string long_text(2000, 'x');
  Snapshot now;
  now.run = long_text;
  const std::string_view line = final_line(buffer, now, "failed", long_text, 1);
  EXPECT_EQ(line.size(), kLineCapacity);
  EXPECT_EQ(line.back(), '\n');
  EXPECT_LE(bar_line(buffer, now, 100000).size(), kLineCapacity);
}

TEST_F(ProgressTest, ASlotAllocatesNothing) {
  Progress progress = make(false);
  run(progress, 0, 2);
  screen_.writes.reserve(8);
  const std::int64_t before = testing::allocation_count();
  run(progress, 2, 90);
  EXPECT_EQ(testing::allocation_count(), before);
}

}  // namespace
}  // namespace tenon::progress
