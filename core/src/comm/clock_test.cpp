// Clocks: the order in which the simulated clock lets participants run, its waits, and how it ends when no
// participant can go on.
#include <tenon/clock.hpp>

#include <tenon/error.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace tenon {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Script {
  int replica;
  int actor;
  std::function<void(Clock&)> run;
};

// Runs every script as a participant; returns what each threw, "" for nothing.
std::vector<std::string> run_participants(Clock& clock, const std::vector<Script>& scripts) {
  std::vector<int> ids;
  for (const Script& script : scripts) {
    ids.push_back(clock.announce(script.replica, script.actor, "p" + std::to_string(ids.size())));
  }
  std::vector<std::string> errors(scripts.size());
  std::vector<std::thread> threads;
  // Started last to first, so that thread order cannot be what makes the tests pass.
  for (std::size_t i = scripts.size(); i-- > 0;) {
    threads.emplace_back([&, i] {
      try {
        clock.enter(ids[i]);
        scripts[i].run(clock);
      } catch (const Error& error) {
        errors[i] = error.what();
      }
      clock.leave();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(WallClock, MovesByItselfAndKnowsItsParticipants) {
  const auto clock = make_wall_clock();
  EXPECT_FALSE(clock->simulated());
  const double before = clock->now();
  clock->advance(1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_GE(clock->now() - before, 0.002);
  EXPECT_LT(clock->now() - before, 500);
  EXPECT_EQ(clock->current(), -1);
  const int id = clock->announce(0, 0, "trainer");
  clock->enter(id);
  EXPECT_EQ(clock->current(), id);
  clock->leave();
  EXPECT_EQ(clock->current(), -1);
  EXPECT_THROW(clock->park("anything"), Error);
  EXPECT_THROW(clock->enter(7), Error);
}

TEST(SimulatedClock, RunsTheEarliestAndBreaksTiesByReplicaThenActor) {
  for (int repetition = 0; repetition < 50; ++repetition) {
    const auto clock = make_simulated_clock(20);
    std::vector<std::string> log;  // unguarded on purpose: only the holder of the baton runs
    const auto worker = [&log](std::string name, double step, int rounds) {
      return [&log, name, step, rounds](Clock& c) {
        for (int i = 0; i < rounds; ++i) {
          log.push_back(name + "@" + std::to_string(static_cast<int>(c.now())));
          c.advance(step);
        }
      };
    };
    const auto errors = run_participants(
        *clock, {{1, 0, worker("b", 2, 3)}, {0, 1, worker("a1", 3, 2)}, {0, 0, worker("a0", 3, 2)}});
    EXPECT_THAT(errors, ElementsAre("", "", ""));
    ASSERT_THAT(log, ElementsAre("a0@0", "a1@0", "b@0", "b@2", "a0@3", "a1@3", "b@4"));
    EXPECT_EQ(clock->now(), 6);
  }
}

TEST(SimulatedClock, AWokenParticipantContinuesAtTheLaterTime) {
  const auto clock = make_simulated_clock(20);
  std::vector<double> times;
  const auto errors = run_participants(*clock, {{0, 0,
                                                 [&](Clock& c) {
                                                   c.park("a wake at 5");
                                                   times.push_back(c.now());
                                                   c.park("a wake at 1");
                                                   times.push_back(c.now());
                                                 }},
                                                {1, 0, [&](Clock& c) {
                                                   c.wake(0, 5);
                                                   c.advance(6);
                                                   c.wake(0, 1);
                                                 }}});
  EXPECT_THAT(errors, ElementsAre("", ""));
  EXPECT_THAT(times, ElementsAre(5, 5));
}

TEST(SimulatedClock, AWakeBeforeTheParkIsNotLost) {
  const auto clock = make_simulated_clock(20);
  double after = 0;
  const auto errors =
      run_participants(*clock, {{0, 0, [](Clock& c) { c.wake(1, 3); }}, {0, 1, [&](Clock& c) {
                                                                           c.park("the early wake");
                                                                           after = c.now();
                                                                         }}});
  EXPECT_THAT(errors, ElementsAre("", ""));
  EXPECT_EQ(after, 3);
}

TEST(SimulatedClock, AnActorAnnouncedLateStartsAtItsAnnouncersTime) {
  const auto clock = make_simulated_clock(20);
  std::vector<std::string> log;
  const auto errors = run_participants(*clock, {{0, 0, [&](Clock& c) {
                                                   c.advance(2);
                                                   const int id = c.announce(0, 1, "actor");
                                                   std::thread actor([&, id] {
                                                     c.enter(id);
                                                     log.push_back("actor@" + std::to_string(int(c.now())));
                                                     c.wake(0, c.now());
                                                     c.leave();
                                                   });
                                                   c.advance(3);  // the actor is earlier: it must run first
                                                   log.push_back("owner@" + std::to_string(int(c.now())));
                                                   actor.join();
                                                 }}});
  EXPECT_THAT(errors, ElementsAre(""));
  EXPECT_THAT(log, ElementsAre("actor@2", "owner@5"));
}

TEST(SimulatedClock, ADeadlockTellsEveryoneWhoWaitsForWhat) {
  const auto clock = make_simulated_clock(20);
  const auto errors = run_participants(*clock, {{0, 0, [](Clock& c) { c.park("the gradient of p1"); }},
                                                {1, 0,
                                                 [](Clock& c) {
                                                   c.advance(4);
                                                   c.park("the weights of p0");
                                                 }},
                                                {2, 0, [](Clock& c) { c.advance(9); }}});
  for (int i = 0; i < 2; ++i) {
    const std::string& error = errors[i];
    EXPECT_THAT(error, HasSubstr("deadlock"));
    EXPECT_THAT(error, HasSubstr("'p0' (replica 0, actor 0) waits since 0 s for the gradient of p1"));
    EXPECT_THAT(error, HasSubstr("'p1' (replica 1, actor 0) waits since 4 s for the weights of p0"));
  }
  EXPECT_EQ(errors[2], "");
}

TEST(SimulatedClock, AHolderThatHangsIsNamedAfterTheRealDeadline) {
  const auto clock = make_simulated_clock(0.05);
  const auto errors = run_participants(
      *clock, {{0, 0,
                [](Clock& c) {
                  c.advance(1);
                  c.advance(1);
                }},
               {1, 0, [](Clock&) { std::this_thread::sleep_for(std::chrono::milliseconds(400)); }}});
  EXPECT_THAT(errors[0], HasSubstr("'p1' (replica 1, actor 0) did not call the clock for 0.05 s"));
}

TEST(SimulatedClock, AParticipantThatNeverEntersIsNamed) {
  const auto clock = make_simulated_clock(0.05);
  clock->announce(0, 0, "ghost");
  const auto errors = run_participants(*clock, {{1, 0, [](Clock& c) { c.advance(1); }}});
  EXPECT_THAT(errors[0], HasSubstr("'ghost' (replica 0, actor 0) was announced but has not entered"));
}

TEST(SimulatedClock, RefusesMisuse) {
  const auto clock = make_simulated_clock(20);
  EXPECT_THROW(clock->advance(1), Error);
  EXPECT_THROW(clock->park("nothing"), Error);
  EXPECT_THROW(clock->enter(0), Error);
  EXPECT_THROW(clock->wake(0, 1), Error);
  const auto errors = run_participants(
      *clock, {{0, 0, [](Clock& c) { c.advance(-1); }}, {0, 1, [](Clock& c) { c.advance(std::nan("")); }}});
  for (const std::string& error : errors) EXPECT_THAT(error, HasSubstr("time only grows"));
  EXPECT_THROW(make_simulated_clock(0), Error);
}

TEST(ClockEvent, WaitUntilSetsTheTimeExactly) {
  const auto clock = make_simulated_clock(20);
  const double at = 0.1 + 0.7 / 3;
  double after = 0;
  const auto errors = run_participants(*clock, {{0, 0, [&](Clock& c) {
                                                   std::mutex mutex;
                                                   std::unique_lock lock(mutex);
                                                   ClockEvent event;
                                                   c.advance(0.1);
                                                   while (c.now() < at) event.wait_until(lock, c, at);
                                                   after = c.now();
                                                 }}});
  EXPECT_THAT(errors, ElementsAre(""));
  EXPECT_EQ(after, at);
}

TEST(ClockEvent, PassesOnWhyTheClockStopped) {
  const auto clock = make_simulated_clock(20);
  std::string why;
  const auto errors = run_participants(*clock, {{0, 0, [&](Clock& c) {
                                                   std::mutex mutex;
                                                   std::unique_lock lock(mutex);
                                                   ClockEvent event;
                                                   const auto outcome =
                                                       event.wait(lock, c, WaitDeadline(1), "nothing", &why);
                                                   EXPECT_EQ(outcome, ClockEvent::Outcome::kLate);
                                                   EXPECT_TRUE(lock.owns_lock());
                                                 }}});
  EXPECT_THAT(errors, ElementsAre(""));
  EXPECT_THAT(why, HasSubstr("waits since 0 s for nothing"));
}

TEST(ClockEvent, SurvivesAWakeUpThatIsLost) {
  const auto clock = make_wall_clock();
  std::mutex mutex;
  ClockEvent event;
  bool done = false;
  std::unique_lock lock(mutex);
  std::thread other([&] {
    const std::lock_guard mine(mutex);
    done = true;  // and says nothing
  });
  const auto begin = std::chrono::steady_clock::now();
  const WaitDeadline deadline(60);
  while (!done && event.wait(lock, *clock, deadline, "the other") != ClockEvent::Outcome::kLate) continue;
  lock.unlock();
  other.join();
  EXPECT_TRUE(done);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST(ClockEvent, IsLateOnTheWallClock) {
  const auto clock = make_wall_clock();
  std::mutex mutex;
  std::unique_lock lock(mutex);
  ClockEvent event;
  EXPECT_EQ(event.wait(lock, *clock, WaitDeadline(0.01), "nothing"), ClockEvent::Outcome::kLate);
}

}  // namespace
}  // namespace tenon
