// Draws of failures, from hours of the job to slots of the run, counts of accesses, and the hash that divides
// rows.
#include "clock/emulated_failures.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>

#include <fmt/format.h>

#include <boost/math/special_functions/gamma.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>

namespace tenon {

// The mixing function of SplitMix64 (Steele, Lea, Flood 2014): every bit of a word reaches every bit of the
// result.

constexpr std::uint64_t kSplitMixStep = 0x9e3779b97f4a7c15U;

constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += kSplitMixStep;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

}  // namespace tenon

TENON_ABI_BEGIN

int shard_of_row(const FailureDomains& domains, int table, std::int64_t row) noexcept {
  const std::uint64_t word =
      mixed(static_cast<std::uint64_t>(row) + kSplitMixStep * static_cast<std::uint64_t>(table));
  return static_cast<int>(word % static_cast<std::uint64_t>(domains.shards));
}

TENON_ABI_END

namespace tenon::train {

using config::EmulatedFailure;
using config::FailureLaw;

namespace {

/// Draws after which a schedule with enough failures is given up as too rare.
constexpr std::uint64_t kMostDraws = 100000;

double time_between(const FailureLaw& law, double uniform) {
  if (law.shape == 1) return -law.mean_hours * std::log1p(-uniform);
  return boost::math::gamma_p_inv(law.shape, uniform) * law.mean_hours / law.shape;
}

/// Deals shards; a deck is shuffled anew once it is used up.
class Deck {
 public:
  Deck(RandomKey key, int shards) : key_(key), cards_(shards) { std::iota(cards_.begin(), cards_.end(), 0); }

  std::vector<int> deal(int count) {
    std::vector<int> hand;
    while (hand.size() < static_cast<std::size_t>(count)) {
      if (left_ == 0) shuffle();
      const int card = cards_[--left_];
      // The rest of an old deck and the beginning of a new one may hold the same card.
      if (std::find(hand.begin(), hand.end(), card) == hand.end()) hand.push_back(card);
    }
    std::sort(hand.begin(), hand.end());
    return hand;
  }

 private:
  void shuffle() {
    left_ = cards_.size();
    for (std::size_t i = left_; i > 1; --i)
      std::swap(cards_[i - 1], cards_[random_below(key_, 0, draws_++, i)]);
  }

  RandomKey key_;
  std::vector<int> cards_;
  std::size_t left_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace

std::vector<EmulatedFailure> draw_failures(const FailureLaw& law) {
  if (!(law.mean_hours > 0)) {
    if (law.at_least > 0)
      fail_config(fmt::format("{} failure(s) are asked for, but the mean time between them is not given",
                              law.at_least));
    return {};
  }
  const RandomKey times = random_key(law.seed, "emulate:times");
  for (std::uint64_t draw = 0; draw < kMostDraws; ++draw) {
    std::vector<EmulatedFailure> failures;
    double hour = 0;
    for (std::uint64_t index = 0;; ++index) {
      hour += time_between(law, random_uniform(times, draw, index));
      if (hour >= law.hours) break;
      failures.push_back({hour, {}});
    }
    if (failures.size() < static_cast<std::size_t>(law.at_least)) continue;
    Deck deck(random_key(law.seed, "emulate:victims"), law.shards);
    for (EmulatedFailure& failure : failures) failure.shards = deck.deal(law.lost);
    return failures;
  }
  fail_config(
      fmt::format("none of {} draws has {} failure(s) in {:g} hours, with {:g} hours between them on "
                  "average; ask for fewer",
                  kMostDraws, law.at_least, law.hours, law.mean_hours));
}

EmulatedFailures::EmulatedFailures(const config::EmulateSettings& settings, std::int64_t steps,
                                   std::span<const ParameterInfo> parameters)
    : settings_(settings),
      steps_(steps),
      failures_(draw_failures(settings.law)),
      tables_(parameters.size()),
      accesses_(settings.domains.shards, 0) {
  failures_.insert(failures_.end(), settings.scripted.begin(), settings.scripted.end());
  std::stable_sort(failures_.begin(), failures_.end(),
                   [](const EmulatedFailure& a, const EmulatedFailure& b) { return a.hour < b.hour; });
  std::int64_t rows = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.spec.role != Role::kRowTable) continue;
    rows += info.spec.shape[0];
    Table& table = tables_[info.index];
    table.first = info.offset[0];
    table.since_save.assign(info.local[0], 0);
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
  Table& counted = tables_[table];
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const std::uint64_t count = i < counts.size() ? counts[i] : 1;
    counted.since_save[ids[i] - counted.first] += count;
    accesses_[shard_of_row(settings_.domains, table, ids[i])] += count;
  }
}

void EmulatedFailures::saved(const SavePlan& plan) {
  for (Table& table : tables_) {
    if (plan.everything) std::fill(table.since_save.begin(), table.since_save.end(), 0);
  }
  if (plan.everything) return;
  for (const RowSelection& rows : plan.tables) {
    Table& table = tables_[rows.parameter];
    if (rows.all) std::fill(table.since_save.begin(), table.since_save.end(), 0);
    for (const std::int64_t id : rows.ids) table.since_save[id - table.first] = 0;
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
