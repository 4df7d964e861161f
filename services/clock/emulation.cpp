// Draws of the emulated cluster's failures, and the hash that divides rows.
#include <tenon/emulation.hpp>

#include "clock/splitmix.hpp"

#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/recovery.hpp>

#include <fmt/format.h>
#include <boost/math/special_functions/gamma.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>

TENON_ABI_BEGIN

namespace {

/// A law under which one draw in so many has enough failures can be waited for.
constexpr std::uint64_t kMostDraws = 100000;

double time_between(const FailureLaw& law, double uniform) {
  if (law.shape == 1) return -law.mean_hours * std::log1p(-uniform);
  return boost::math::gamma_p_inv(law.shape, uniform) * law.mean_hours / law.shape;
}

/// Deals shards; a deck is shuffled anew once it is used up.
class Deck {
 public:
  Deck(RandomKey key, int shards) : key_(key), cards_(static_cast<std::size_t>(shards)) {
    std::iota(cards_.begin(), cards_.end(), 0);
  }

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

int shard_of_row(const FailureDomains& domains, int table, std::int64_t row) noexcept {
  const std::uint64_t word =
      mixed(static_cast<std::uint64_t>(row) + kSplitMixStep * static_cast<std::uint64_t>(table));
  return static_cast<int>(word % static_cast<std::uint64_t>(domains.shards));
}

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

TENON_ABI_END
