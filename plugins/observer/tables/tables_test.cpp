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

#include <map>

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
  Tables make(std::size_t hottest, std::int64_t every) { return {hottest, every, sink_, std::move(owned_)}; }
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

TENON_STATIC_PLUGIN(plugin, PluginInfo{.id = "test.tables", .version = "1.0.0", .summary = "tables"}, Tables)

TEST(TablesOptions, AreChecked) {
  Registry registry;
  registry.add_builtin(plugin);
  testing::QuietHost host;
  for (const char* options : {"hottest = -1", "hottest = 1001", "every = -1"})
    EXPECT_THROW(testing::make<Observer>(registry, host, "tables", options), Error) << options;
}

}  // namespace
}  // namespace tenon::tables
