// The end of a run whose kernel does not return (pass_watch.hpp). The other ranks hear of it as of every
// failure; a process whose own rank is held by the kernel ends from outside of it.
#include "plugin/process_end.hpp"
#include "run/world.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace tenon::train {
namespace {

/// Under a simulated clock [run] deadline is of simulated time, and kernels take the machine's.
constexpr double kLeastUnderSimulatedClock = 300;
/// Ranks beside a lost one have so long to end by themselves.
constexpr double kOthersEndWithin = 5;

}  // namespace

void World::watch_passes() {
  const double deadline = settings.run.deadline;
  pass_watch = std::make_unique<PassWatch>(
      clock->simulated() ? std::max(deadline, kLeastUnderSimulatedClock) : deadline,
      [this](const LatePass& pass) { end_late(pass); }, [this](const LatePass& pass) { end_lost(pass); });
}

// Where the run outlives deaths, so it does here: the process ends, and another takes its place.
void World::end_late(const LatePass& pass) {
  pass.host->log(LogLevel::kError, pass.text);
  if (place.survives && links.control_client != nullptr)
    return links.control_client->miss(pass.host->rank(), pass.text);
  links.control->fail(pass.host->rank(), static_cast<int>(ErrorKind::kRun), pass.text);
}

void World::end_lost(const LatePass& pass) {
  if (!plugin::ends_process_when_plugins_hang()) return;
  if (running_ > 1 && pass.over_s < kOthersEndWithin) return;
  const std::lock_guard lock(end_mutex_);
  const bool goes_on =
      place.survives && links.control_client != nullptr && links.control_client->interrupted();
  if (!goes_on && (place.rank <= 0 ? record.metrics != nullptr : record.store != nullptr)) {
    record.result.steps = std::max(record.result.steps, std::max<std::int64_t>(0, pass.host->slot()));
    finish_locked();
  }
  const std::string why = links.control->failure();
  std::string text = "tenon: " + why;
  if (why.find(pass.text) == std::string::npos) text += why.empty() ? pass.text : "; " + pass.text;
  text += "\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text.data(), text.size());
  ::_exit(static_cast<int>(ErrorKind::kRun));
}

void World::await_late_pass() const {
  if (clock->simulated() || (threads_only() && !pass_watch->expects_one())) return;
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(pass_watch->patience());
  while (!links.control->failed() && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

}  // namespace tenon::train
