// Control plane: the state machine alone, then the in-process plane under threads and both clocks.
#include <tenon/clock.hpp>
#include "control/control_inprocess.hpp"
#include "control/control_state.hpp"

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace tenon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Verdict = ControlState::Verdict;

template <typename Call>
std::string error_of(Call&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(ControlState, RanksAfterTheVotersCanOnlyFail) {
  ControlState state(3, 2);
  EXPECT_EQ(state.voters(), 2);
  EXPECT_EQ(state.request(kControlSave), 0);
  for (int rank = 0; rank < 2; ++rank) {
    EXPECT_EQ(state.begin_slot(rank, 0), kControlSave);
    state.vote(rank, 0, true);
  }
  EXPECT_EQ(state.verdict(0), Verdict::kYes);
  EXPECT_THAT(error_of([&] { state.begin_slot(2, 0); }),
              HasSubstr("rank 2, which does not train; ranks 0 ... 1 do"));
  EXPECT_TRUE(state.fail(2, 1, "its disk is full"));
  EXPECT_EQ(state.failure(), "rank 2: its disk is full");
}

TEST(ControlState, AgreesOnASlotThatNobodyHasBegun) {
  ControlState state(3);
  EXPECT_EQ(state.request(kControlEvaluate), 0);
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(state.begin_slot(rank, 0), kControlEvaluate);
  EXPECT_EQ(state.begin_slot(0, 1), 0u);
  EXPECT_EQ(state.begin_slot(0, 2), 0u);
  EXPECT_EQ(state.request(kControlSave), 3);  // rank 0 is in slot 2 already
  EXPECT_EQ(state.request(kControlStop), 3);  // merges
  for (int rank = 1; rank < 3; ++rank) {
    EXPECT_EQ(state.begin_slot(rank, 1), 0u);
    EXPECT_EQ(state.begin_slot(rank, 2), 0u);
    EXPECT_EQ(state.begin_slot(rank, 3), kControlSave | kControlStop);
  }
  EXPECT_EQ(state.request(kControlEvaluate), 4);
  EXPECT_EQ(state.begin_slot(0, 3), kControlSave | kControlStop);
  EXPECT_EQ(state.begin_slot(0, 4), kControlEvaluate);
}

TEST(ControlState, ARollBackRepeatsAnActionOnlyUntilAllTookIt) {
  ControlState state(2);
  EXPECT_EQ(state.begin_slot(0, 5), 0u);
  EXPECT_EQ(state.begin_slot(1, 5), 0u);
  EXPECT_EQ(state.request(kControlSave), 6);
  EXPECT_EQ(state.begin_slot(0, 6), kControlSave);
  EXPECT_EQ(state.begin_slot(0, 4), 0u);  // rolled back before rank 1 came to slot 6
  EXPECT_EQ(state.begin_slot(1, 4), 0u);
  EXPECT_EQ(state.begin_slot(0, 6), kControlSave);
  EXPECT_EQ(state.begin_slot(1, 6), kControlSave);
  EXPECT_EQ(state.begin_slot(0, 6), 0u);
}

TEST(ControlState, AJumpOverASlotLosesNoAction) {
  ControlState state(2);
  EXPECT_EQ(state.request(kControlStop), 0);
  EXPECT_EQ(state.begin_slot(0, 3), kControlStop);
  EXPECT_EQ(state.begin_slot(0, 4), 0u);
  EXPECT_EQ(state.begin_slot(1, 3), kControlStop);
}

TEST(ControlState, CommitNeedsAYesOfEveryLiveRank) {
  struct Case {
    std::vector<bool> votes;
    Verdict expected;
  };
  for (const Case& c : {Case{{true, true, true}, Verdict::kYes}, Case{{true, false, true}, Verdict::kNo},
                        Case{{false, false, false}, Verdict::kNo}}) {
    ControlState state(3);
    for (int repetition = 0; repetition < 3;
         ++repetition) {  // a slot may be voted on again once all know the result
      for (int rank = 0; rank < 3; ++rank) {
        EXPECT_EQ(state.verdict(7), Verdict::kPending);
        state.vote(rank, 7, c.votes[rank]);
      }
      for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(state.collect(rank, 7), c.expected);
    }
  }
}

TEST(ControlState, TheFirstFailureWins) {
  ControlState state(2);
  EXPECT_FALSE(state.failed());
  EXPECT_TRUE(state.fail(1, 3, "disk full"));
  EXPECT_FALSE(state.fail(0, 2, "peer lost"));
  EXPECT_EQ(state.failure(), "rank 1: disk full");
  EXPECT_EQ(state.failure_status(), 3);
  ControlState single(1);
  EXPECT_TRUE(single.fail(0, 0, "loss is NaN"));
  EXPECT_EQ(single.failure(), "loss is NaN");
  EXPECT_EQ(single.failure_status(), 1);
}

TEST(ControlState, RefusesMisuse) {
  ControlState state(2);
  EXPECT_THROW(state.begin_slot(2, 0), Error);
  EXPECT_THROW(state.begin_slot(0, -1), Error);
  EXPECT_THROW(state.request(0), Error);
  EXPECT_THROW(state.collect(0, 9), Error);
  state.vote(0, 1, true);
  EXPECT_THAT(error_of([&] { state.vote(0, 1, true); }), HasSubstr("rank 0 votes twice on slot 1"));
  EXPECT_THROW(ControlState(0), Error);
}

void on_threads(int ranks, const std::function<void(int)>& run) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
}

TEST(InprocessControl, RanksAgreeUnderThreads) {
  constexpr int kRanks = 4, kSlots = 200;
  const auto clock = make_wall_clock();
  const auto control = make_inprocess_control(kRanks, 30, *clock);
  std::vector<std::vector<std::int64_t>> stops(kRanks);
  std::atomic<int> wrong{0};
  on_threads(kRanks, [&](int rank) {
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      if (control->begin_slot(rank, slot) & kControlSave) stops[rank].push_back(slot);
      if (slot % 50 == rank) {
        const std::int64_t agreed = control->request(kControlSave, "timer");
        if (agreed <= slot) ++wrong;
      }
      const bool expected = slot % 7 != 0;
      if (control->commit(rank, slot, expected || rank != 2) != expected) ++wrong;
    }
  });
  EXPECT_EQ(wrong, 0);
  EXPECT_FALSE(stops[0].empty());
  for (const auto& stop : stops) EXPECT_EQ(stop, stops[0]);
  EXPECT_GT(control->bytes(), kRanks * kSlots * 4 * kControlRecordBytes - 1);
}

TEST(InprocessControl, ALateVoterIsNamedToAllAndToItself) {
  const auto clock = make_wall_clock();
  const auto control = make_inprocess_control(3, 0.05, *clock);
  std::vector<std::string> errors(3);
  on_threads(3, [&](int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(300));
    errors[rank] = error_of([&] { control->commit(rank, 12, true); });
  });
  for (const std::string& error : errors)
    EXPECT_THAT(error, HasSubstr("rank 1 did not vote on slot 12 within 0.05 s"));
}

TEST(InprocessControl, AFailureEndsEveryWaitAndRunsEveryCallbackOnce) {
  const auto clock = make_wall_clock();
  const auto control = make_inprocess_control(3, 30, *clock);
  std::vector<std::string> calls;
  control->on_failure([&](const std::string& text) { calls.push_back("a " + text); });
  const int forgotten = control->on_failure([&](const std::string&) { calls.push_back("forgotten"); });
  control->on_failure([&](const std::string& text) {
    calls.push_back("b " + text);
    throw Error(ErrorKind::kRun, "cancelling failed");
  });
  control->on_failure([&](const std::string& text) { calls.push_back("c " + text); });
  control->forget(forgotten);
  std::vector<std::string> errors(3);
  on_threads(3, [&](int rank) {
    if (rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      control->fail(2, 3, "plugin misbehaves");
      control->fail(2, 1, "and again");
      return;
    }
    errors[rank] = error_of([&] { control->commit(rank, 0, true); });
  });
  EXPECT_EQ(errors[0], "rank 2: plugin misbehaves");
  EXPECT_EQ(errors[1], errors[0]);
  EXPECT_THAT(calls, ElementsAre("a " + errors[0], "b " + errors[0], "c " + errors[0]));
  control->on_failure([&](const std::string& text) { calls.push_back("late " + text); });
  EXPECT_EQ(calls.back(), "late " + errors[0]);
  EXPECT_EQ(error_of([&] { control->begin_slot(0, 1); }), errors[0]);
  EXPECT_TRUE(control->failed());
  EXPECT_EQ(control->failure_status(), 3);
}

TEST(InprocessControl, VotesMeetAtTheLatestVirtualTime) {
  const auto clock = make_simulated_clock(20);
  const auto control = make_inprocess_control(3, 30, *clock);
  std::vector<int> ids;
  for (int rank = 0; rank < 3; ++rank) ids.push_back(clock->announce(rank, 0, "rank"));
  std::vector<double> times(3);
  std::vector<std::string> errors(3);
  on_threads(3, [&](int rank) {
    const std::size_t r = rank;
    errors[r] = error_of([&] {
      clock->enter(ids[r]);
      clock->advance(1.5 * (rank + 1));
      control->commit(rank, 0, true);
      times[r] = clock->now();
      if (rank != 1) control->commit(rank, 1, true);  // rank 1 leaves: no rank can go on
    });
    clock->leave();
  });
  EXPECT_THAT(times, ElementsAre(4.5, 4.5, 4.5));
  EXPECT_THAT(errors[0], HasSubstr("rank 1 will never vote on slot 1"));
  EXPECT_EQ(errors[1], "");
  EXPECT_THAT(errors[2], HasSubstr("rank 1 will never vote on slot 1"));
}

}  // namespace
}  // namespace tenon
