// Hits of each policy against exact reuse distances, and against plain models of sets that serve one
// access at a time.
#include "cached_testing.hpp"

#include "cache_sets.hpp"

#include <tenon/sdk/reuse_distance.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace tenon::tier_cached::policy_test {
namespace {

using namespace tenon::tier_cached::testing;

/// Rows of a power law on [0, rows), neighbours as frequent as one another or strewn over the table.
std::vector<std::int64_t> law_of_power(std::int64_t rows, std::size_t count, double exponent, unsigned seed,
                                       bool strewn) {
  std::vector<std::int64_t> row_of_rank(rows);
  for (std::int64_t i = 0; i < rows; ++i) row_of_rank[i] = i;
  std::mt19937_64 random(seed);
  if (strewn) std::shuffle(row_of_rank.begin(), row_of_rank.end(), random);
  std::uniform_real_distribution<double> uniform;
  std::vector<std::int64_t> ids(count);
  const double end = std::pow(static_cast<double>(rows) + 1, 1 - exponent);
  for (std::int64_t& id : ids) {
    const double rank = std::pow(1 + uniform(random) * (end - 1), 1 / (1 - exponent));
    id = row_of_rank[std::min<std::int64_t>(rows - 1, static_cast<std::int64_t>(rank) - 1)];
  }
  return ids;
}

/// Reads and writes of these rows in calls of 1 to 300 rows.
void access_all(RowMemory& memory, const std::vector<std::int64_t>& ids) {
  std::mt19937 random(5);
  std::vector<float> values(300, 1);
  for (std::size_t begin = 0; begin < ids.size();) {
    const std::size_t count = std::min<std::size_t>(random() % 300 + 1, ids.size() - begin);
    const std::span<const std::int64_t> some(ids.data() + begin, count);
    if (random() % 3 == 0) {
      memory.write(some, reinterpret_cast<const std::byte*>(values.data()));
    } else {
      memory.read(some, reinterpret_cast<std::byte*>(values.data()));
    }
    begin += count;
  }
}

TEST(CachedPolicy, T4_HitsOfOneLruSetAreExactReuseDistances) {
  constexpr std::int64_t kRows = 3000;
  const std::vector<std::int64_t> ids = law_of_power(kRows, 30000, 1.05, 1, true);
  ReuseDistances distances(kRows);
  for (const std::int64_t id : ids) distances.access(id);
  for (const std::int64_t lines : {1, 2, 30, 300, 1000}) {
    CachedTier tier("policy = \"lru\"\nways = 1024\nload_factor = " +
                    std::to_string(static_cast<double>(lines) / kRows + 1e-5));
    const auto memory = tier.allocate({.table = "t", .last = kRows, .width = 1});
    access_all(*memory, ids);
    const TierCount count = count_of(*memory);
    EXPECT_EQ(count.hits, distances.hits(std::vector<std::int64_t>{lines}).front()) << lines << " lines";
    EXPECT_EQ(count.hits + count.misses, static_cast<std::int64_t>(ids.size()));
    EXPECT_EQ(count.evictions, count.misses - lines) << "every line is in use at the end";
  }
}

/// A cache as its README says, one access at a time.
class PlainSets {
 public:
  PlainSets(std::int64_t lines, std::int64_t ways, std::string policy, std::int64_t aging)
      : policy_(std::move(policy)), aging_(aging), sets_(std::max<std::int64_t>(1, lines / ways)) {
    for (std::size_t s = 0; s < sets_.size(); ++s) {
      const auto sets = static_cast<std::int64_t>(sets_.size());
      sets_[s].lines.resize(lines / sets + (static_cast<std::int64_t>(s) < lines % sets ? 1 : 0));
    }
  }
  /// Whether it hits.
  bool access(std::int64_t row) {
    Set& set = sets_[static_cast<std::size_t>(row) % sets_.size()];
    ++now_;
    Line* line = nullptr;
    for (Line& each : set.lines) {
      if (each.row == row) line = &each;
    }
    const bool hit = line != nullptr;
    if (hit) {
      line->used = true;
    } else {
      line = &victim(set);
      *line = {row, now_, false};
    }
    line->last = now_;
    std::int64_t& count = set.counts[row];
    if (count < 255) ++count;
    if (policy_ == "lfu" && aging_ > 0 &&
        ++set.accesses == aging_ * static_cast<std::int64_t>(set.lines.size())) {
      set.accesses = 0;
      for (auto& entry : set.counts) entry.second /= 2;
    }
    return hit;
  }

 private:
  struct Line {
    std::int64_t row = -1, last = 0;
    bool used = false;
  };
  struct Set {
    std::vector<Line> lines;
    std::map<std::int64_t, std::int64_t> counts;
    std::int64_t accesses = 0;
    std::size_t hand = 0;
  };
  Line& victim(Set& set) {
    for (Line& each : set.lines) {
      if (each.row < 0) return each;
    }
    if (policy_ == "clock") {
      while (set.lines[set.hand].used) {
        set.lines[set.hand].used = false;
        set.hand = (set.hand + 1) % set.lines.size();
      }
      Line& found = set.lines[set.hand];
      set.hand = (set.hand + 1) % set.lines.size();
      return found;
    }
    const bool by_count = policy_ == "lfu";
    return *std::min_element(set.lines.begin(), set.lines.end(), [&](const Line& a, const Line& b) {
      if (by_count && set.counts[a.row] != set.counts[b.row]) return set.counts[a.row] < set.counts[b.row];
      return a.last < b.last;
    });
  }

  std::string policy_;
  std::int64_t aging_, now_ = 0;
  std::vector<Set> sets_;
};

TEST(CachedPolicy, T4_HitsAreThoseOfAPlainModelOfSets) {
  constexpr std::int64_t kRows = 2000;
  struct Case {
    const char* policy;
    std::int64_t lines, ways, aging;
  };
  for (const Case& each :
       {Case{"lru", 1, 16, 64}, Case{"lru", 400, 16, 64}, Case{"lru", 403, 8, 64}, Case{"lru", 2000, 16, 64},
        Case{"lfu", 1, 16, 64}, Case{"lfu", 400, 16, 64}, Case{"lfu", 403, 8, 2}, Case{"lfu", 100, 1, 1},
        Case{"lfu", 400, 32, 0}, Case{"clock", 1, 16, 64}, Case{"clock", 400, 16, 64},
        Case{"clock", 403, 8, 64}, Case{"clock", 50, 1, 64}}) {
    CachedTier tier("policy = \"" + std::string(each.policy) + "\"\nways = " + std::to_string(each.ways) +
                    "\naging = " + std::to_string(each.aging) +
                    "\nload_factor = " + std::to_string(static_cast<double>(each.lines) / kRows));
    const auto memory = tier.allocate({.table = "t", .first = 500, .last = 500 + kRows, .width = 1});
    PlainSets plain(each.lines, each.ways, each.policy, each.aging);
    std::int64_t hits = 0;
    for (unsigned part = 0; part < 4; ++part) {
      std::vector<std::int64_t> ids = law_of_power(kRows, 8000, 1.05, part / 2, part % 2 == 0);
      for (const std::int64_t id : ids) hits += plain.access(id) ? 1 : 0;
      for (std::int64_t& id : ids) id += 500;
      access_all(*memory, ids);
      ASSERT_EQ(count_of(*memory).hits, hits) << each.policy << ", " << each.lines << " lines, part " << part;
    }
    EXPECT_GT(hits, 0);
  }
}

TEST(CachedPolicy, T4_StampsStartAnewInTheirOrder) {
  for (const Policy policy : {Policy::kLru, Policy::kLfu}) {
    CacheSets sets({.lines = 4, .sets = 1, .rows = 4}, policy, 0);
    for (std::uint32_t row = 0; row < 4; ++row) sets.insert(sets.place(row), row, false);
    for (std::uint32_t i = 0; i < CacheSets::kMostStamp + 10; ++i) {
      sets.touch(0, i % 4);
      // Counts reach their most, so that age alone decides.
      if (i > 4 * CacheSets::kMostCount && (i % 1024 < 4 || i > CacheSets::kMostStamp - 10)) {
        ASSERT_EQ(sets.victim(0, 0), (i + 1) % 4) << i;
      }
    }
  }
}

TEST(CachedPolicy, T4_LfuHoldsTheRowsUsedMost) {
  constexpr std::int64_t kRows = 20000, kLines = 4000;
  CachedTier tier("policy = \"lfu\"\nload_factor = 0.2");
  const auto memory = tier.allocate({.table = "t", .last = kRows, .width = 1});
  constexpr std::size_t kFirst = 80 * kRows, kMeasured = 200000;  // counts tell rows apart by then
  const std::vector<std::int64_t> ids = law_of_power(kRows, kFirst + kMeasured, 1.05, 3, true);
  access_all(*memory, {ids.begin(), ids.begin() + kFirst});
  const TierCount before = count_of(*memory);
  access_all(*memory, {ids.begin() + kFirst, ids.end()});
  const double hits = static_cast<double>(count_of(*memory).hits - before.hits) / kMeasured;
  const double ideal = power_law_share(kRows, kLines, 1.05);
  RecordProperty("hits", std::to_string(hits));
  RecordProperty("ideal", std::to_string(ideal));
  // The ideal cache knows the law. This one counts, sets have more or fewer frequent rows, and every set has
  // a line or two for rows that have just come.
  EXPECT_LT(hits, ideal + 0.003);
  EXPECT_GT(hits, ideal - 0.01) << "ideal: " << ideal;
}

TEST(CachedPolicy, LinesNeverExceedTheShare) {
  for (const auto& [rows, factor, ways, lines] :
       std::vector<std::tuple<std::int64_t, double, std::int64_t, std::int64_t>>{{1000, 0.2, 16, 200},
                                                                                 {1003, 0.2, 16, 200},
                                                                                 {1000, 1e-9, 16, 1},
                                                                                 {1000, 1, 16, 1000},
                                                                                 {1, 0.2, 16, 1},
                                                                                 {7, 1, 16, 7},
                                                                                 {1000, 21.0 / 1000, 16, 21},
                                                                                 {0, 0.2, 16, 0},
                                                                                 {3, 0.999999999, 1, 3}}) {
    const Geometry geometry = make_geometry(rows, factor, ways);
    EXPECT_EQ(geometry.lines, lines) << rows << " rows, " << factor;
    EXPECT_GE(geometry.sets, 1U);
    if (lines >= ways) {
      EXPECT_GE(lines / static_cast<std::int64_t>(geometry.sets), ways);
    }
  }
}

TEST(CachedPolicy, TagsAreSmall) {
  constexpr std::int64_t kRows = 2000000, kRowBytes = 256;  // of 64 f32
  const Geometry geometry = make_geometry(kRows, 0.2, 16);
  EXPECT_LE(CacheSets::bytes(geometry, Policy::kLru), kRows * kRowBytes / 100) << "1 %";
  EXPECT_LE(CacheSets::bytes(geometry, Policy::kLfu) - CacheSets::bytes(geometry, Policy::kLru),
            kRows + static_cast<std::int64_t>(geometry.sets))
      << "a byte a row";
}

}  // namespace
}  // namespace tenon::tier_cached::policy_test
