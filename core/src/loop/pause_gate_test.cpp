// Parking at the gate: an actor that pauses from inside, two that ask at once, nesting, and one that never
// parks.
#include "loop/pause_gate.hpp"

#include <tenon/clock.hpp>
#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tenon::train {
namespace {

TEST(PauseGate, LetsOneThreadChangeWhatAllOthersRead) {
  const auto clock = make_wall_clock();
  PauseGate gate(*clock, 20);
  std::atomic<int> changing{0}, broken{0}, pauses{0};
  const auto loop = [&](bool pauses_others) {
    const InsideGate inside(gate);
    for (int round = 0; round < 300; ++round) {
      gate.boundary();
      if (pauses_others) {
        const HeldPause outer(gate), again(gate);
        gate.boundary();  // of one's own pause: nothing to wait for
        if (changing.fetch_add(1) != 0) ++broken;
        std::this_thread::yield();
        changing.fetch_sub(1);
        ++pauses;
      } else if (changing.load() != 0) {
        ++broken;
      }
    }
  };
  std::vector<std::thread> threads;
  for (const bool pauses_others : {true, true, false, false}) threads.emplace_back(loop, pauses_others);
  for (int round = 0; round < 100; ++round) {  // a thread that is not inside: a rank at a slot boundary
    const HeldPause pause(gate);
    if (changing.load() != 0) ++broken;
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(broken, 0);
  EXPECT_EQ(pauses, 600);
}

TEST(PauseGate, NamesTheDeadlineWhenSomebodyNeverParks) {
  const auto clock = make_wall_clock();
  PauseGate gate(*clock, 0.05);
  std::atomic<bool> entered{false}, done{false};
  std::thread stubborn([&] {
    const InsideGate inside(gate);
    entered = true;
    while (!done) std::this_thread::yield();
  });
  while (!entered) std::this_thread::yield();
  EXPECT_THROW(gate.pause(), DeadlineError);
  done = true;
  stubborn.join();
  gate.pause();  // the failed one had no effect
  gate.resume();
}

}  // namespace
}  // namespace tenon::train
