#include "simulate/tasks.hpp"

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

}  // namespace tenon::simulate
