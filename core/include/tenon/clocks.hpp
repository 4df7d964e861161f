// The two clocks of the core behind <tenon/clock.hpp>. Every thread of a run that communicates is a
// participant: announced before its thread starts, entered by the thread itself, left at its end.
#pragma once

#include <tenon/clock.hpp>

#include <memory>

TENON_ABI_BEGIN

/// Time since this call. `advance` does nothing: real work has taken its real time already.
std::unique_ptr<Clock> make_wall_clock();

/// Virtual time. One participant runs at a time: the runnable one with the smallest (time, replica, actor).
/// Announce all first participants before starting any of their threads; one announced later starts at its
/// announcer's time. `wake` on a participant that is not parked lets its next `park` return at once, so no
/// wake is ever lost; therefore a parked caller looks at its condition again whenever `park` returns.
/// `deadline_wall_s`: the longest real time that one participant may run without calling the clock. When it
/// passes, or when all participants are parked, the clock stops: every waiting participant gets a
/// DeadlineError that says who waits for what, and so does every later call that would wait.
std::unique_ptr<Clock> make_simulated_clock(double deadline_wall_s);

TENON_ABI_END
