// Counts and statistics against a brute-force oracle, the whole file, ranks that hold shards, and the
// observer's life cycle.
#include "tables.hpp"

#include "base/testing/allocation_count.hpp"
#include "store/testing/memory_files.hpp"

#include <tenon/config.hpp>
#include <tenon/error.hpp>
#include <tenon/random.hpp>
#include <tenon/testing/components.hpp>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <vector>

namespace tenon::tables {
namespace {

struct Line {
  std::int64_t step;
  std::string name;
  double value;
  bool operator==(const Line&) const = default;
};

class Sink final : public MetricSink {
 public:
  void record(std::string_view, double) override {}
  void add(std::int64_t step, Split, std::string_view name, double value) override {
    lines.push_back({step, std::string(name), value});
  }
  std::vector<Line> lines;
};

ParameterInfo table_info(int index, const char* name, Shape shape, std::int64_t first, std::int64_t last) {
  ParameterInfo info;
  info.index = index;
  info.spec.name = name;
  info.spec.role = Role::kRowTable;
  info.spec.shape = shape;
  info.local = Shape{last - first, shape[1]};
  info.offset = {first, 0};
  return info;
}

TEST(RowCounts, FactsAreThoseOfABruteForceCount) {
  constexpr std::int64_t kFirst = 1000, kRows = 250;
  RowCounts counts(kFirst, kFirst + kRows);
  std::map<std::int64_t, std::uint32_t> oracle;
  const RandomKey key = random_key(3, "rows");
  for (std::uint64_t i = 0; i < 3000; ++i) {
    // Few rows are hot: the product of two uniform draws. Rows from 200 on are never read.
    const std::uint64_t row = random_below(key, 0, i, 200) * random_below(key, 1, i, 200) / 200;
    const std::int64_t id = kFirst + static_cast<std::int64_t>(row);
    const std::uint32_t times = 1 + static_cast<std::uint32_t>(i % 3);
    counts.add({&id, 1}, {&times, 1});
    oracle[id] += times;
  }
  std::vector<std::pair<std::uint32_t, std::int64_t>> order;  // most accesses first, then the smaller row
  std::uint64_t all = 0, of_3 = 0, of_25 = 0;
  for (const auto& [id, count] : oracle) {
    order.emplace_back(count, -id);
    all += count;
  }
  std::sort(order.rbegin(), order.rend());
  for (std::size_t i = 0; i < 25; ++i) (i < 3 ? of_3 : of_25) += order[i].first;
  const AccessFacts facts = counts.facts(40);
  EXPECT_EQ(facts.accesses, all);
  EXPECT_EQ(facts.touched, static_cast<std::int64_t>(oracle.size()));
  ASSERT_EQ(facts.hottest.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) {
    EXPECT_EQ(facts.hottest[i].row, -order[i].second);
    EXPECT_EQ(facts.hottest[i].accesses, order[i].first);
  }
  EXPECT_DOUBLE_EQ(facts.share_of_1_percent, static_cast<double>(of_3) / static_cast<double>(all));
  EXPECT_DOUBLE_EQ(facts.share_of_10_percent, static_cast<double>(of_3 + of_25) / static_cast<double>(all));
}

TEST(RowCounts, OfFewRowsAndOfNone) {
  RowCounts counts(0, 3);
  EXPECT_EQ(counts.facts(10).hottest.size(), 0u);
  EXPECT_EQ(counts.facts(10).share_of_1_percent, 0);
  const std::int64_t ids[] = {0, 2};
  const std::uint32_t times[] = {5, 5};
  counts.add(ids, times);
  const AccessFacts facts = counts.facts(1);
  ASSERT_EQ(facts.hottest.size(), 1u);
  EXPECT_EQ(facts.hottest[0].row, 0) << "a tie goes to the smaller row";
  EXPECT_EQ(facts.share_of_10_percent, 0.5) << "at least one row";
  EXPECT_EQ(RowCounts(4, 4).facts(10).touched, 0) << "a rank without rows";
}

TEST(RowCounts, ACountStaysAtItsLargestValue) {
  RowCounts counts(0, 1);
  const std::int64_t id = 0;
  for (const std::uint32_t times : {0xfffffff0u, 0x20u, 7u}) counts.add({&id, 1}, {&times, 1});
  EXPECT_EQ(counts.facts(1).hottest[0].accesses, 0xffffffffu);
  EXPECT_EQ(counts.facts(1).accesses, 0xfffffff0u + std::uint64_t{0x27});
}

TEST(RowCounts, RowsOfOthersAreRefused) {
  RowCounts counts(4, 8);
  for (const std::int64_t id : {3, 8}) {
    const std::uint32_t once = 1;
    try {
      counts.add({&id, 1}, {&once, 1});
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()),
                "observer tables: row " + std::to_string(id) + " is not one of this rank's rows [4, 8)");
    }
  }
}

class TablesTest : public ::testing::Test {
 protected:
  TablesTest() {
    auto owned = std::make_unique<testing::MemoryFiles>();
    files_ = owned.get();
    files_->make_directories("/run");
    owned_ = std::move(owned);
    info_.folder = "/run";
  }
  Tables make(std::size_t hottest, std::int64_t every, bool reuse = false) {
    return {{hottest, every, reuse}, sink_, [this] { return counts_; }, std::move(owned_)};
  }
  std::string file(int rank = 0) const {
    return read_text(*files_, "/run/tables.rank" + std::to_string(rank) + ".json", 1 << 20);
  }
  static SlotRecord slot(std::int64_t number, bool applied = true) {
    SlotRecord record;
    record.slot = number;
    record.applied = applied;
    return record;
  }

  Sink sink_;
  TableCounts* counts_ = nullptr;
  testing::MemoryFiles* files_;
  std::unique_ptr<FileSystem> owned_;
  RunInfo info_;
};

TEST_F(TablesTest, TheFileOfARankThatHoldsAPartAndAWholeTable) {
  Tables observer = make(2, 0);
  info_.ranks = 2;
  info_.rank = 1;
  info_.first_slot = 6;
  observer.on_start(info_);
  auto* rows = static_cast<RowObserver*>(observer.query(RowObserver::kId));
  const ParameterInfo tables[] = {table_info(3, "emb.0.weight", Shape{10, 4}, 5, 10),
                                  table_info(4, "emb.\"1\"", Shape{2, 4}, 0, 2)};
  rows->on_tables(tables);
  const std::int64_t first[] = {5, 7, 8}, second[] = {8};
  const std::uint32_t first_counts[] = {1, 2, 2}, second_counts[] = {5};
  rows->on_accesses(3, first, first_counts);
  observer.on_slot(slot(6));
  rows->on_accesses(3, second, second_counts);
  observer.on_slot(slot(7));
  observer.on_slot(slot(8, false));
  EXPECT_FALSE(files_->exists("/run/tables.rank1.json"));
  observer.on_finish("completed", "");
  EXPECT_EQ(file(1), R"({
  "rank": 1,
  "ranks": 2,
  "first_slot": 6,
  "slots": 2,
  "samples": 0,
  "named_rows": 2,
  "tables": [
    {"name": "emb.0.weight", "rows": 10, "width": 4, "dtype": "f32", "bytes": 160,
     "owned": [5, 10], "accesses": 10, "touched_rows": 3, "touched_share": 0.6,
     "share_of_hottest_1_percent": 0.7, "share_of_hottest_10_percent": 0.7,
     "hottest": [{"row": 8, "accesses": 7}, {"row": 7, "accesses": 2}]},
    {"name": "emb.\"1\"", "rows": 2, "width": 4, "dtype": "f32", "bytes": 32,
     "owned": [0, 2], "accesses": 0, "touched_rows": 0, "touched_share": 0,
     "share_of_hottest_1_percent": 0, "share_of_hottest_10_percent": 0,
     "hottest": []}
  ]
}
)");
  EXPECT_EQ(nlohmann::json::parse(file(1))["tables"][1]["name"], "emb.\"1\"");
  EXPECT_TRUE(sink_.lines.empty());
}

TEST_F(TablesTest, AModelWithoutTablesHasAFileThatSaysSo) {
  Tables observer = make(10, 1);
  observer.on_start(info_);
  observer.on_slot(slot(0));
  observer.on_finish("completed", "");
  EXPECT_TRUE(nlohmann::json::parse(file())["tables"].empty());
}

TEST_F(TablesTest, WritesAndMeasuresAsOftenAsItIsTold) {
  Tables observer = make(10, 2);
  observer.on_start(info_);
  const ParameterInfo table = table_info(0, "emb", Shape{8, 2}, 0, 8);
  observer.on_tables({&table, 1});
  for (std::int64_t step = 0; step < 4; ++step) {
    const std::uint32_t once = 1;
    observer.on_accesses(0, {&step, 1}, {&once, 1});
    observer.on_slot(slot(step));
    if (step == 1) {
      EXPECT_EQ(nlohmann::json::parse(file())["tables"][0]["touched_rows"], 2);
    }
  }
  EXPECT_EQ(sink_.lines, (std::vector<Line>{{2, "touched_share", 0.25}, {4, "touched_share", 0.5}}));
}

TEST_F(TablesTest, ASteadySlotAllocatesNothing) {
  Tables observer = make(10, 0);
  observer.on_start(info_);
  const ParameterInfo table = table_info(0, "emb", Shape{100, 2}, 0, 100);
  observer.on_tables({&table, 1});
  const std::int64_t ids[] = {1, 50, 99};
  const std::uint32_t counts[] = {1, 2, 3};
  const auto before = testing::allocation_count();
  for (std::int64_t step = 0; step < 100; ++step) {
    observer.on_accesses(0, ids, counts);
    observer.on_slot(slot(step));
  }
  EXPECT_EQ(testing::allocation_count(), before);
}

/// Counts of two levels of one table, and of a state of it, that grow from slot to slot.
class Levels final : public TableCounts {
 public:
  void visit(const std::function<void(int, std::string_view, const TierCount&)>& each) const override {
    each(3, {},
         {.tier = "cached", .reads = 8 * slots, .writes = 2 * slots, .hits = 7 * slots, .misses = 3 * slots});
    each(3, {}, {.tier = "cached/\"far\"", .hits = slots, .misses = 2 * slots, .stall_seconds = 0.25});
    each(3, "optimizer.sum",
         {.tier = "cached",
          .hits = 100 * slots,
          .misses = 900 * slots,
          .bytes_in = 15 * slots,
          .bytes_out = 5 * slots});
    each(7, {}, {.tier = "dram", .reads = slots});  // not a table of this observer
  }
  std::int64_t slots = 0;
};

TEST_F(TablesTest, TiersAreInTheFileAndTheirCachesInTheMetrics) {
  Levels levels;
  Tables observer = make(0, 2);
  info_.first_slot = 4;
  observer.on_start(info_);
  counts_ = &levels;  // tiers exist once the tables do
  const ParameterInfo table = table_info(3, "emb", Shape{8, 2}, 0, 8);
  observer.on_tables({&table, 1});
  for (std::int64_t number = 4; number < 8; ++number) {
    levels.slots += number == 7 ? 0 : 1;
    SlotRecord record = slot(number);
    record.samples = 5 * (number + 1);
    observer.on_slot(record);
  }
  // 2 slots of 5 samples each; in the last window one slot asked for rows.
  EXPECT_EQ(sink_.lines, (std::vector<Line>{{6, "touched_share", 0},
                                            {6, "tables/moved_bytes_per_sample", 4},
                                            {6, "tables/misses_per_sample", 1},
                                            {6, "tables/hit_rate", 0.7},
                                            {8, "touched_share", 0},
                                            {8, "tables/moved_bytes_per_sample", 2},
                                            {8, "tables/misses_per_sample", 0.5},
                                            {8, "tables/hit_rate", 0.7}}));
  const nlohmann::json root = nlohmann::json::parse(file());
  EXPECT_EQ(root["samples"], 20);
  const nlohmann::json& tiers = root["tables"][0]["tiers"];
  ASSERT_EQ(tiers.size(), 3u);
  EXPECT_EQ(tiers[0], nlohmann::json::parse(R"({"state": "", "tier": "cached", "reads": 24, "writes": 6,
      "hits": 21, "misses": 9, "ahead": 0, "evictions": 0, "write_backs": 0, "bytes_in": 0, "bytes_out": 0,
      "stall_seconds": 0})"));
  EXPECT_EQ(tiers[1]["tier"], "cached/\"far\"");
  EXPECT_EQ(tiers[1]["stall_seconds"], 0.25);
  EXPECT_EQ(tiers[2]["state"], "optimizer.sum");
}

// Hits of a list of rows in the order of their last use, cut at each size.
TEST_F(TablesTest, HitsOfCachesAreThoseOfListsOfTheRowsUsedLast) {
  constexpr std::int64_t kFirst = 20, kRows = 40;
  Tables observer = make(0, 0, true);
  observer.on_start(info_);
  const ParameterInfo table = table_info(0, "emb", Shape{100, 2}, kFirst, kFirst + kRows);
  observer.on_tables({&table, 1});
  const std::vector<std::int64_t> sizes = cache_sizes(kRows);
  EXPECT_EQ(sizes.front(), 1);
  EXPECT_EQ(sizes.back(), kRows);
  std::vector<std::int64_t> hits(sizes.size()), used;
  std::int64_t accesses = 0, first = 0;
  const RandomKey key = random_key(5, "rows");
  for (std::uint64_t step = 0; step < 300; ++step) {
    std::vector<std::int64_t> ids;
    for (std::uint64_t i = 0; i < 6; ++i) {
      const std::uint64_t row = random_below(key, step, i, 40) * random_below(key, step, 9 + i, 40) / 40;
      ids.push_back(kFirst + static_cast<std::int64_t>(row));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    const std::vector<std::uint32_t> counts(ids.size(), 2);
    observer.on_accesses(0, ids, counts);
    for (const std::int64_t id : ids) {
      const auto found = std::find(used.begin(), used.end(), id);
      for (std::size_t i = 0; i < sizes.size(); ++i)
        hits[i] += found - used.begin() < sizes[i] && found != used.end();
      ++accesses;
      first += found == used.end() ? 1 : 0;
      if (found != used.end()) used.erase(found);
      used.insert(used.begin(), id);
    }
  }
  observer.on_finish("completed", "");
  const nlohmann::json reuse = nlohmann::json::parse(file())["tables"][0]["reuse"];
  EXPECT_EQ(reuse["accesses"], accesses);
  EXPECT_EQ(reuse["first"], first);
  ASSERT_EQ(reuse["lru_hits"].size(), sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i)
    EXPECT_EQ(reuse["lru_hits"][i], nlohmann::json::array({sizes[i], hits[i]}));
  EXPECT_GT(hits[2], 0);
}

TEST(CacheSizes, BeginAtOneAndEndAtAllRows) {
  EXPECT_TRUE(cache_sizes(0).empty());
  EXPECT_EQ(cache_sizes(1), std::vector<std::int64_t>{1});
  EXPECT_EQ(cache_sizes(3), (std::vector<std::int64_t>{1, 2, 3}));
  const std::vector<std::int64_t> many = cache_sizes(100'000'000);
  EXPECT_LT(many.size(), 110u);
  EXPECT_EQ(many.back(), 100'000'000);
}

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "test.tables", .version = "1.0.0", .summary = "tables"}, Tables)

TEST(TablesOptions, AreChecked) {
  Registry registry;
  registry.add_builtin(plugin);
  testing::QuietHost host;
  for (const char* options : {"hottest = -1", "hottest = 1001", "every = -1", "reuse = 2"})
    EXPECT_THROW(testing::make<Observer>(registry, host, "tables", options), Error) << options;
}

}  // namespace
}  // namespace tenon::tables
