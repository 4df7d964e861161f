// Preloaded into the program: a machine whose clock loses an hour at every reading. The steady clock is
// unchanged.
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

namespace {
std::atomic<long> lost{0};
}

extern "C" {

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  const auto result = static_cast<int>(::syscall(SYS_clock_gettime, clock, out));
  if (result == 0 && clock == CLOCK_REALTIME) out->tv_sec -= lost += 3600;
  return result;
}

int gettimeofday(timeval* out, void*) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  out->tv_sec = now.tv_sec;
  out->tv_usec = now.tv_nsec / 1000;
  return 0;
}

time_t time(time_t* out) noexcept {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}
}
