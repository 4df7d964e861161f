// Queues of indices, and the words of progress.
#include "simulate/tasks.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace tenon::simulate {

Tasks::Tasks(SimulationManifest& manifest, std::int64_t retries, Place place)
    : manifest_(manifest), retries_(retries) {
  std::erase_if(manifest_.failed, [](const auto& entry) { return entry.second.kind != "error"; });
  for (std::int64_t index = 0; index < manifest_.samples; ++index) {
    if (place.makes(index) && manifest_.finished.count(index) == 0 && manifest_.failed.count(index) == 0)
      waiting_.push_back(index);
  }
}

std::optional<Tasks::Next> Tasks::take() {
  if (waiting_.empty()) return std::nullopt;
  const std::int64_t index = waiting_.front();
  waiting_.pop_front();
  const auto found = attempts_.find(index);
  const std::int64_t attempt = found == attempts_.end() ? 1 : found->second + 1;
  if (attempt > 1) ++repeated_;
  running_[index] = attempt;
  return Next{index, attempt};
}

void Tasks::finished(std::int64_t index, std::string digest) {
  running_.erase(index);
  manifest_.finished[index] = std::move(digest);
}

void Tasks::settle(std::int64_t index, const std::string& kind, const std::string& cause) {
  manifest_.failed[index] = {kind, cause, running_.at(index)};
  running_.erase(index);
}

void Tasks::refused(std::int64_t index, const std::string& cause) {
  settle(index, "error", cause);
}

bool Tasks::interrupted(std::int64_t index, const std::string& kind, const std::string& cause) {
  const std::int64_t attempt = running_.at(index);
  if (attempt > retries_) {
    settle(index, kind, cause);
    return false;
  }
  attempts_[index] = attempt;
  running_.erase(index);
  waiting_.push_front(index);
  return true;
}

void Tasks::give_back(std::int64_t index) {
  running_.erase(index);
  waiting_.push_front(index);
}

namespace {

/// "0:26", "1:02:03".
std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  const std::int64_t hours = whole / 3600, minutes = whole / 60 % 60;
  return hours > 0 ? fmt::format("{}:{:02}:{:02}", hours, minutes, whole % 60)
                   : fmt::format("{}:{:02}", minutes, whole % 60);
}

}  // namespace

std::string progress_line(const Progress& progress) {
  const std::int64_t settled = progress.finished + progress.failed;
  std::string line =
      fmt::format("sample {}/{} ({:.1f} %)", settled, progress.samples,
                  100.0 * static_cast<double>(settled) / static_cast<double>(progress.samples));
  if (progress.failed > 0) line += fmt::format(" | {} failed", progress.failed);
  if (progress.settled_here == 0 || !(progress.seconds > 0)) return line + " | ETA -:--";
  const double rate = static_cast<double>(progress.settled_here) / progress.seconds;
  const double left = static_cast<double>(progress.samples - settled) / rate;
  return line + fmt::format(" | {:.3g} samples/s | ETA {}", rate, clock_text(left));
}

}  // namespace tenon::simulate
