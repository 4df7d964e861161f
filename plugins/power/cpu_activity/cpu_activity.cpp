#include "cpu_activity.hpp"

#include <fmt/format.h>

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

namespace tenon::cpu_activity {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
/// The two clocks are read one after the other, which over less time would be most of the value.
constexpr double kShortestS = 1e-3;

double seconds_of(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

std::string first_line_of(const std::string& file) {
  errno = 0;
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  if (!in.is_open() || in.bad())
    fail_run(fmt::format("{} cannot be read: {}", file, std::strerror(errno != 0 ? errno : EIO)));
  return line;
}

/// Those that this process may run on.
int cores_of_process() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

Clocks system_clocks() {
  return {[] { return seconds_of(CLOCK_MONOTONIC); }, [] { return seconds_of(CLOCK_PROCESS_CPUTIME_ID); }};
}

Jiffies jiffies_of(const std::string& line, const std::string& file) {
  // user nice system idle iowait irq softirq steal; guests are part of user.
  constexpr int kFields = 8, kIdle = 3, kIowait = 4, kSteal = 7;
  std::istringstream in(line);
  std::string word;
  in >> word;
  Jiffies jiffies;
  for (int field = 0; field < kFields; ++field) {
    std::int64_t count = -1;
    if (word != "cpu" || !(in >> count) || count < 0 || count > std::int64_t{1} << 58)
      fail_run(fmt::format("{} begins '{}'; expected 'cpu' and {} counts of jiffies", file,
                           line.substr(0, 60), kFields));
    jiffies.all += count;
    if (field != kIdle && field != kIowait && field != kSteal) jiffies.busy += count;
  }
  return jiffies;
}

CpuActivity::CpuActivity(const Options& options, Clocks clocks)
    : scope_(options.choice("scope", kScopes)), file_(options.text("stat")), clocks_(clocks) {}

PowerSourceInfo CpuActivity::open(int) {
  PowerSourceInfo info;
  info.unit = PowerUnit::kShare;
  info.rated = 1;
  if (scope_ == Scope::kMachine) {
    last_ = jiffies_of(first_line_of(file_), file_);
    info.sensor = fmt::format("share of the machine's cores that are busy, {}", file_);
    return info;
  }
  cores_ = cores_of_process();
  last_wall_s_ = clocks_.wall();
  last_processor_s_ = clocks_.processor();
  info.sensor = fmt::format("CPU clock of this process, of {} usable core{}", cores_, cores_ == 1 ? "" : "s");
  return info;
}

double CpuActivity::read(double) {
  return scope_ == Scope::kMachine ? of_machine() : of_process();
}

double CpuActivity::of_machine() {
  const Jiffies now = jiffies_of(first_line_of(file_), file_);
  const std::int64_t all = now.all - last_.all, busy = now.busy - last_.busy;
  if (all == 0) return kNone;
  last_ = now;
  // A core that is taken away takes its jiffies along, and the wait for disks may count backwards.
  if (all < 0) return kNone;
  return std::clamp(static_cast<double>(busy) / static_cast<double>(all), 0.0, 1.0);
}

double CpuActivity::of_process() {
  const double wall_s = clocks_.wall(), processor_s = clocks_.processor();
  const double elapsed_s = wall_s - last_wall_s_, computed_s = processor_s - last_processor_s_;
  if (elapsed_s < kShortestS) return kNone;
  last_wall_s_ = wall_s;
  last_processor_s_ = processor_s;
  return std::clamp(computed_s / (elapsed_s * cores_), 0.0, 1.0);
}

}  // namespace tenon::cpu_activity

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.power_cpu_activity",
                               .version = "0.1.0",
                               .summary = "share of cores that are busy, a proxy of power"},
             tenon::cpu_activity::CpuActivity)
