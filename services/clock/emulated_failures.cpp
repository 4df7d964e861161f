// From hours of the job to slots of the run, and counts of accesses.
#include "clock/emulated_failures.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tenon::train {

EmulatedFailures::EmulatedFailures(const config::EmulateSettings& settings, std::int64_t steps,
                                   std::span<const ParameterInfo> parameters)
    : settings_(settings),
      steps_(steps),
      failures_(draw_failures(settings.law)),
      tables_(parameters.size()),
      accesses_(static_cast<std::size_t>(settings.domains.shards), 0) {
  failures_.insert(failures_.end(), settings.scripted.begin(), settings.scripted.end());
  std::stable_sort(failures_.begin(), failures_.end(),
                   [](const EmulatedFailure& a, const EmulatedFailure& b) { return a.hour < b.hour; });
  std::int64_t rows = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.spec.role != Role::kRowTable) continue;
    rows += info.spec.shape[0];
    Table& table = tables_[static_cast<std::size_t>(info.index)];
    table.first = info.offset[0];
    table.since_save.assign(static_cast<std::size_t>(info.local[0]), 0);
  }
  if (rows > 0 && rows < settings.domains.shards) {
    fail_config(
        fmt::format("[emulate] shards = {}, but the row tables have {} rows together; a failure domain "
                    "without rows has nothing to lose",
                    settings.domains.shards, rows));
  }
}

double EmulatedFailures::hour(std::int64_t slot) const {
  return settings_.hours * static_cast<double>(slot) / static_cast<double>(steps_);
}

// The first boundary at which the failure has happened, before the last one.
std::int64_t EmulatedFailures::slot_of(const EmulatedFailure& failure) const {
  const double at = std::ceil(failure.hour / settings_.hours * static_cast<double>(steps_));
  if (!(at < static_cast<double>(steps_))) return steps_ - 1;
  auto slot = static_cast<std::int64_t>(at);
  // Rounding of the quotient must not move a failure at exactly some slot's hour to the next slot.
  if (slot > 0 && hour(slot - 1) >= failure.hour) --slot;
  return std::min(slot, steps_ - 1);
}

void EmulatedFailures::start_at(std::int64_t slot) {
  for (next_ = 0; next_ < failures_.size() && slot_of(failures_[next_]) < slot;) ++next_;
}

const EmulatedFailure* EmulatedFailures::due(std::int64_t slot) const {
  return next_ < failures_.size() && slot_of(failures_[next_]) <= slot ? &failures_[next_] : nullptr;
}

void EmulatedFailures::accessed(int table, std::span<const std::int64_t> ids,
                                std::span<const std::uint32_t> counts) {
  Table& counted = tables_[static_cast<std::size_t>(table)];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t count = i < counts.size() ? counts[i] : 1;
    counted.since_save[static_cast<std::size_t>(ids[i] - counted.first)] += count;
    accesses_[static_cast<std::size_t>(shard_of_row(settings_.domains, table, ids[i]))] += count;
  }
}

void EmulatedFailures::saved(const SavePlan& plan) {
  for (Table& table : tables_) {
    if (plan.everything) std::fill(table.since_save.begin(), table.since_save.end(), 0);
  }
  if (plan.everything) return;
  for (const RowSelection& rows : plan.tables) {
    Table& table = tables_[static_cast<std::size_t>(rows.parameter)];
    if (rows.all) std::fill(table.since_save.begin(), table.since_save.end(), 0);
    for (const std::int64_t id : rows.ids) table.since_save[static_cast<std::size_t>(id - table.first)] = 0;
  }
}

double EmulatedFailures::lose(std::span<const int> shards) {
  std::uint64_t lost = 0;
  for (std::size_t t = 0; t < tables_.size(); ++t) {
    Table& table = tables_[t];
    for (std::size_t i = 0; i < table.since_save.size(); ++i) {
      const std::int64_t row = table.first + static_cast<std::int64_t>(i);
      if (!std::binary_search(shards.begin(), shards.end(),
                              shard_of_row(settings_.domains, static_cast<int>(t), row)))
        continue;
      lost += table.since_save[i];
      table.since_save[i] = 0;
    }
  }
  const auto all = std::accumulate(accesses_.begin(), accesses_.end(), std::uint64_t{0});
  return all == 0 ? 0 : static_cast<double>(lost) / static_cast<double>(all);
}

std::vector<double> EmulatedFailures::access_shares() const {
  const auto all = std::accumulate(accesses_.begin(), accesses_.end(), std::uint64_t{0});
  std::vector<double> shares;
  for (const std::uint64_t count : accesses_)
    shares.push_back(all == 0 ? 0 : static_cast<double>(count) / static_cast<double>(all));
  return shares;
}

}  // namespace tenon::train
