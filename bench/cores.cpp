// Do the processors of this machine compute beside each other? Two processors of a virtual machine may for a
// while be two threads of one core, and nothing in the machine says so: then two threads take up to twice as
// long as one. Usage: cores [THREADS [SECONDS]]; waits at most SECONDS until threads do not slow each other,
// computing all the while, because a host moves what is busy. Prints how many times as long a thread takes
// beside the others as alone, and the seconds it waited.
#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

/// Below this, threads count as apart: clocks fall a little with each core that works.
constexpr double kApart = 1.25;
/// As many windows in a row must be so.
constexpr int kWindows = 5;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Keeps the arithmetic units of a core busy and touches no memory; returns the seconds that it took.
double compute(std::int64_t repetitions) {
  const auto begin = Clock::now();
  std::array<double, 24> chains{};
  for (std::int64_t i = 0; i < repetitions; ++i) {
    for (double& value : chains) value = value * 0.999 + 0.001;
  }
  for (double& value : chains) {
    [[maybe_unused]] volatile double kept = value;
  }
  return since(begin);
}

/// Threads that compute at the same time, window by window.
class Team {
 public:
  explicit Team(int threads) : turn_(threads), seconds_(threads) {
    while (compute(repetitions_) < 2e-3) repetitions_ *= 2;
    for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { follow(i); });
  }
  ~Team() {
    ends_ = true;
    turn_.arrive_and_wait();
    for (std::thread& other : others_) other.join();
  }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  /// Time of the slowest thread beside the others over that of one alone.
  double window() {
    const double alone = compute(repetitions_);
    turn_.arrive_and_wait();
    seconds_[0] = compute(repetitions_);
    turn_.arrive_and_wait();
    return *std::max_element(seconds_.begin(), seconds_.end()) / alone;
  }

 private:
  void follow(int place) {
    for (turn_.arrive_and_wait(); !ends_; turn_.arrive_and_wait()) {
      seconds_[place] = compute(repetitions_);
      turn_.arrive_and_wait();
    }
  }

  std::barrier<> turn_;
  std::vector<double> seconds_;
  std::int64_t repetitions_ = 1000;
  bool ends_ = false;
  std::vector<std::thread> others_;
};

}  // namespace

int main(int argc, char** argv) {
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const double most = argc > 2 ? std::atof(argv[2]) : 0;
  if (threads < 1) {
    std::fprintf(stderr, "usage: cores [THREADS [SECONDS]], of at least one thread\n");
    return 2;
  }
  const auto begin = Clock::now();
  Team team(threads);
  std::vector<double> windows;
  int apart = 0;
  while (static_cast<int>(windows.size()) < kWindows || (apart < kWindows && since(begin) < most)) {
    windows.push_back(team.window());
    apart = windows.back() <= kApart ? apart + 1 : 0;
  }
  std::vector<double> last(windows.end() - kWindows, windows.end());
  std::sort(last.begin(), last.end());
  std::printf("{\"at_once\": %.3f, \"waited_s\": %.3f}\n", last[kWindows / 2], since(begin));
  return 0;
}
