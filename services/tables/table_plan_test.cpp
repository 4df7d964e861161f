// Plans against all plans of small tables (T8), budgets of random tables, and refusals.
#include "tables/table_plan.hpp"

#include <tenon/error.hpp>

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>

namespace tenon::train {
namespace {

using Case = std::pair<std::vector<PlannedTable>, std::vector<PlannedTier>>;

/// A band per row; whole accesses, so that ties occur and sums are exact.
PlannedTable planned_table(const std::string& name, std::int64_t row_bytes, std::vector<int> accesses) {
  std::sort(accesses.rbegin(), accesses.rend());
  PlannedTable table{name, static_cast<std::int64_t>(accesses.size()), row_bytes, {}};
  for (const int count : accesses) table.bands.push_back({1, static_cast<double>(count)});
  return table;
}

std::int64_t bytes_of_all(const std::vector<PlannedTable>& tables) {
  std::int64_t sum = 0;
  for (const PlannedTable& table : tables) sum += table.rows * table.row_bytes;
  return sum;
}

Case random_case(std::mt19937& random, int most_tables, int most_rows, bool equal_rows) {
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution<int>(from, to)(random); };
  Case made;
  const int tables = draw(1, most_tables);
  std::int64_t row_of_each = 0;
  for (int i = 0; i < tables; ++i) {
    std::vector<int> accesses(static_cast<std::size_t>(draw(1, most_rows)));
    for (int& count : accesses) count = draw(0, 12);
    made.first.push_back(
        planned_table("t" + std::to_string(tables - i), equal_rows ? 8 : 4 * draw(1, 5), accesses));
    row_of_each += made.first.back().row_bytes;
  }
  const std::int64_t all = bytes_of_all(made.first);
  const int tiers = draw(2, 3);
  for (int i = 0; i < tiers; ++i) {
    const std::int64_t bytes = all * draw(5, i + 1 == tiers ? 120 : 70) / 100;
    made.second.push_back({"tier " + std::to_string(i), std::max(row_of_each, bytes)});
  }
  return made;
}

/// Served by each tier and those before it, then bytes, which count against a plan.
using Worth = std::vector<double>;

/// The best of all homes and all sizes of caches.
class AllPlans {
 public:
  explicit AllPlans(const Case& of) : tables_(of.first), tiers_(of.second) {
    for (const PlannedTier& tier : tiers_) room_.push_back(tier.bytes);
    served_.assign(tiers_.size(), 0.0);
    place(0);
  }
  std::optional<Worth> best;

 private:
  void place(std::size_t table) {
    if (table == tables_.size()) return judge();
    for (std::size_t home = 0; home < tiers_.size(); ++home) {
      const std::int64_t bytes = tables_[table].rows * tables_[table].row_bytes;
      if (room_[home] < bytes) continue;
      room_[home] -= bytes;
      cache(table, home, 0, 0);
      room_[home] += bytes;
    }
  }
  void cache(std::size_t table, std::size_t home, std::size_t tier, std::int64_t taken) {
    const PlannedTable& of = tables_[table];
    if (tier == home) {
      const double rest = accesses(of, taken, of.rows);
      served_[home] += rest;
      place(table + 1);
      served_[home] -= rest;
      return;
    }
    for (std::int64_t rows = 0; taken + rows <= of.rows && rows * of.row_bytes <= room_[tier]; ++rows) {
      const double here = accesses(of, taken, taken + rows);
      room_[tier] -= rows * of.row_bytes;
      served_[tier] += here;
      cache(table, home, tier + 1, taken + rows);
      served_[tier] -= here;
      room_[tier] += rows * of.row_bytes;
    }
  }
  static double accesses(const PlannedTable& table, std::int64_t first, std::int64_t last) {
    double sum = 0;
    for (std::int64_t row = first; row < last; ++row) sum += table.bands[row].accesses;
    return sum;
  }
  void judge() {
    Worth worth;
    double sum = 0;
    std::int64_t left = 0;
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      worth.push_back(sum += served_[tier]);
      left += room_[tier];
    }
    worth.push_back(static_cast<double>(left));
    if (!best || worth > *best) best = worth;
  }

  const std::vector<PlannedTable>& tables_;
  const std::vector<PlannedTier>& tiers_;
  std::vector<std::int64_t> room_;
  std::vector<double> served_;
};

Worth worth_of(const TablePlan& plan, const std::vector<PlannedTier>& tiers) {
  Worth worth;
  double sum = 0;
  std::int64_t left = 0;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    worth.push_back(sum += plan.served[tier]);
    left += tiers[tier].bytes - plan.bytes[tier];
  }
  worth.push_back(static_cast<double>(left));
  return worth;
}

std::string refusal(const Case& of) {
  try {
    plan_tables(of.first, of.second);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

/// Homes, caches and sums of a plan agree with each other and with the budgets.
void expect_sound(const TablePlan& plan, const Case& of) {
  const auto& [tables, tiers] = of;
  std::vector<std::int64_t> bytes(tiers.size(), 0);
  double served = 0, accesses = 0;
  for (std::size_t i = 0; i < tables.size(); ++i) {
    const TableHome& placed = plan.tables.at(i);
    ASSERT_LT(placed.home, tiers.size());
    ASSERT_EQ(placed.cached.size(), placed.home);
    std::int64_t cached = 0;
    for (std::size_t tier = 0; tier < placed.home; ++tier) {
      EXPECT_GE(placed.cached[tier], 0);
      bytes[tier] += placed.cached[tier] * tables[i].row_bytes;
      cached += placed.cached[tier];
    }
    EXPECT_LE(cached, tables[i].rows);
    bytes[placed.home] += tables[i].rows * tables[i].row_bytes;
    for (const double count : placed.served) served += count;
    accesses += hottest_accesses(tables[i].bands, tables[i].rows);
  }
  EXPECT_EQ(plan.bytes, bytes);
  EXPECT_NEAR(served, accesses, 1e-6 * (1 + accesses));
  double reached = 0;
  for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
    EXPECT_LE(bytes[tier], tiers[tier].bytes) << tiers[tier].name;
    reached += plan.served[tier];
    EXPECT_LE(reached, plan.bound[tier] + 1e-6 * (1 + accesses));
  }
}

TEST(TablePlan, T8_EqualsTheBestOfAllPlans) {
  std::mt19937 random(8);
  int planned = 0, refused = 0;
  for (int round = 0; round < 200; ++round) {
    // Ways to place and cache grow as 15^tables of 3 rows and 10^tables of 2.
    const bool wide = round % 25 == 0;
    const Case of = random_case(random, wide ? 6 : 4, wide ? 2 : 3, true);
    const AllPlans all(of);
    if (!all.best) {
      EXPECT_NE(refusal(of), "");
      ++refused;
      continue;
    }
    const TablePlan plan = plan_tables(of.first, of.second);
    EXPECT_TRUE(plan.searched_all);
    EXPECT_EQ(worth_of(plan, of.second), *all.best) << "round " << round;
    expect_sound(plan, of);
    ++planned;
  }
  EXPECT_GT(planned, 100);
  EXPECT_GT(refused, 5);
}

TEST(TablePlan, T8_RowsOfUnequalSizeCostAtMostOneOfThem) {
  std::mt19937 random(9);
  for (int round = 0; round < 100; ++round) {
    const Case of = random_case(random, 4, 3, false);
    const AllPlans all(of);
    if (!all.best) continue;
    double most = 0;
    for (const PlannedTable& table : of.first) most = std::max(most, table.bands.front().accesses);
    const TablePlan plan = plan_tables(of.first, of.second);
    EXPECT_GE(plan.served[0], all.best->front() - most) << "round " << round;
    expect_sound(plan, of);
  }
}

TEST(TablePlan, T8_NeverExceedsABudget) {
  std::mt19937 random(10);
  const auto draw = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  int planned = 0;
  for (int round = 0; round < 30; ++round) {
    Case of;
    const std::int64_t tables = draw(1, 30), tiers = draw(1, 4);
    for (std::int64_t i = 0; i < tables; ++i) {
      const std::int64_t rows = draw(0, 1) == 0 ? draw(1, 50) : draw(1, 3000000);
      PlannedTable table{"emb." + std::to_string(i), rows, 4 * draw(1, 70), {}};
      table.bands = power_law_bands(rows, static_cast<double>(draw(0, 20)) / 10);
      for (RowBand& band : table.bands) band.accesses *= static_cast<double>(draw(1, 4));
      std::stable_sort(table.bands.begin(), table.bands.end(), [](const RowBand& a, const RowBand& b) {
        return a.accesses * static_cast<double>(b.rows) > b.accesses * static_cast<double>(a.rows);
      });
      of.first.push_back(std::move(table));
    }
    const std::int64_t all = bytes_of_all(of.first);
    for (std::int64_t i = 0; i < tiers; ++i)
      of.second.push_back({"tier", draw(all / 100, i + 1 == tiers ? 2 * all : all / 2)});
    if (const std::string why = refusal(of); !why.empty()) continue;
    ++planned;
    expect_sound(plan_tables(of.first, of.second), of);
  }
  EXPECT_GT(planned, 10);
}

TEST(TablePlan, ChangesOfHomesComeCloseToTheBest) {
  std::mt19937 random(11);
  int planned = 0, equal = 0;
  for (int round = 0; round < 200; ++round) {
    const Case of = random_case(random, 6, 6, true);
    if (!refusal(of).empty()) continue;
    Worth changed;
    try {
      changed = worth_of(plan_tables(of.first, of.second, {.most_homes = 0}), of.second);
    } catch (const Error&) {
      continue;  // largest first in the slowest tier may fit nothing where something fits
    }
    const Worth best = worth_of(plan_tables(of.first, of.second), of.second);
    EXPECT_LE(changed, best);
    ++planned;
    equal += changed == best ? 1 : 0;
  }
  EXPECT_GT(planned, 100);
  EXPECT_GT(equal, planned * 9 / 10);
}

TEST(TablePlan, IsTheSameInAnyOrderOfTables) {
  std::mt19937 random(12);
  for (int round = 0; round < 20; ++round) {
    Case of = random_case(random, 6, 4, true);
    if (!refusal(of).empty()) continue;
    const TablePlan plan = plan_tables(of.first, of.second);
    std::vector<std::pair<std::string, TableHome>> named, again;
    for (std::size_t i = 0; i < of.first.size(); ++i) named.emplace_back(of.first[i].name, plan.tables[i]);
    std::shuffle(of.first.begin(), of.first.end(), random);
    const TablePlan other = plan_tables(of.first, of.second);
    for (std::size_t i = 0; i < of.first.size(); ++i) again.emplace_back(of.first[i].name, other.tables[i]);
    const auto by_name = [](const auto& a, const auto& b) { return a.first < b.first; };
    std::sort(named.begin(), named.end(), by_name);
    std::sort(again.begin(), again.end(), by_name);
    for (std::size_t i = 0; i < named.size(); ++i) {
      EXPECT_EQ(named[i].second.home, again[i].second.home) << named[i].first;
      EXPECT_EQ(named[i].second.cached, again[i].second.cached) << named[i].first;
    }
  }
}

TEST(TablePlan, CachesHotRowsOfEveryTableOverAHomeWithRoom) {
  const std::vector<PlannedTable> tables{{"a", 100000, 64, power_law_bands(100000, 1)},
                                         {"b", 1000, 64, power_law_bands(1000, 1)},
                                         {"c", 3, 64, power_law_bands(3, 1)}};
  const std::vector<PlannedTier> tiers{{"fast", 640000}, {"slow", std::int64_t{1} << 40}};
  const TablePlan plan = plan_tables(tables, tiers);
  EXPECT_EQ(plan.tables[2].home, 0u);  // all its rows are hot
  EXPECT_EQ(plan.tables[0].home, 1u);
  EXPECT_EQ(plan.bytes[0], 640000);
  // What no plan exceeds: the densest 10,000 rows of all.
  EXPECT_NEAR(plan.served[0], plan.bound[0], 1e-3);
  const double equal_shares = hottest_accesses(tables[0].bands, 9901) +
                              hottest_accesses(tables[1].bands, 99) + hottest_accesses(tables[2].bands, 0);
  EXPECT_GT(plan.served[0], equal_shares + 1);
}

TEST(TablePlan, RefusesWithSizes) {
  const PlannedTable ten = planned_table("emb.0.weight", 8, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  PlannedTable other = ten;
  other.name = "emb.1.weight";
  EXPECT_EQ(refusal({{ten, other}, {{"run.toml:9:1: [[tables.budget]]", 15}, {"slow", 1000}}}),
            "run.toml:9:1: [[tables.budget]] has 15 bytes, and one row of each of the 2 tables, with its "
            "optimizer rows, takes 16; raise it, or leave this tier out");
  EXPECT_EQ(
      refusal({{ten, other}, {{"fast", 16}, {"slow", 100}}}),
      "the budgets of [tables] do not hold the 2 tables on this rank, which take 160 bytes with their "
      "optimizer rows, the largest, 'emb.0.weight', 80: 44 bytes are missing (fast: 16 bytes; slow: 100 "
      "bytes); raise the budget of the slowest tier");
  EXPECT_EQ(
      refusal({{ten, other}, {{"fast", 70}, {"slow", 150}}}),
      "the budgets of [tables] do not hold the 2 tables on this rank, which take 160 bytes with their "
      "optimizer rows, the largest, 'emb.0.weight', 80: a table lies whole in one tier, and the rest of "
      "no tier holds the last one (fast: 70 bytes; slow: 150 bytes); raise the budget of the slowest "
      "tier");
  EXPECT_TRUE(plan_tables({}, std::vector<PlannedTier>{{"fast", 0}}).tables.empty());
}

}  // namespace
}  // namespace tenon::train
