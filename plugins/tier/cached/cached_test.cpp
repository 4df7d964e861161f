// Values of cached rows: those of plain memory, to the bit, through every policy, stack and number of
// threads.
#include "cached_testing.hpp"

#include "graph/row_table.hpp"

#include <tenon/sdk/row_update.hpp>

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <future>
#include <numeric>
#include <random>
#include <thread>

namespace tenon::tier_cached::values_test {
namespace {

using namespace tenon::tier_cached::testing;
using std::chrono_literals::operator""ms;

constexpr std::int64_t kFirst = 300, kRows = 1000, kWidth = 5;
constexpr std::size_t kRowBytes = kWidth * sizeof(float);

RowMemorySpec spec_of_rows() {
  return {.table = "t", .first = kFirst, .last = kFirst + kRows, .width = kWidth};
}

std::vector<std::string> all_options() {
  std::vector<std::string> all;
  for (const char* policy : {"lru", "lfu", "clock"}) {
    for (const char* write : {"back", "through"}) {
      for (const char* size :
           {"load_factor = 1e-9", "load_factor = 0.02\nways = 4", "load_factor = 0.2", "load_factor = 1.0"})
        all.push_back(std::string("policy = \"") + policy + "\"\nwrite = \"" + write + "\"\n" + size);
    }
  }
  const std::string small = "load_factor = 0.05\nways = 2\n";
  all.push_back(small + "behind = {type = \"cached\", load_factor = 0.2, policy = \"lfu\"}");
  all.push_back(small + "behind = {type = \"cached\", load_factor = 0.2, write = \"through\"}");
  all.push_back(
      "front = {type = \"cached\", load_factor = 0.1}\nbehind = {type = \"cached\", policy = \"clock\"}");
  all.push_back("front = {type = \"watched\"}\nbehind = {type = \"watched\"}\n" + small);
  return all;
}

/// Some owned rows, each once.
std::vector<std::int64_t> some_rows(std::mt19937& random, std::size_t most) {
  std::vector<std::int64_t> ids(random() % most + 1);
  const std::int64_t span = random() % 2 == 0 ? kRows : kRows / 10;
  for (std::int64_t& id : ids)
    id = kFirst + static_cast<std::int64_t>(random() % static_cast<unsigned>(span));
  std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}
std::vector<std::int64_t> once_each(std::vector<std::int64_t> ids, std::mt19937& random) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::shuffle(ids.begin(), ids.end(), random);
  return ids;
}
std::vector<float> draw(std::mt19937& random, std::size_t rows) {
  std::vector<float> values(rows * kWidth);
  for (float& value : values) value = static_cast<float>(random() % 100000);
  return values;
}

std::vector<float> rows_of(const RowMemory& memory, const std::vector<std::int64_t>& ids, bool scan) {
  std::vector<float> values(ids.size() * kWidth, -1);
  auto* const out = reinterpret_cast<std::byte*>(values.data());
  scan ? memory.scan(ids, out) : memory.read(ids, out);
  return values;
}
std::vector<std::int64_t> every_row() {
  std::vector<std::int64_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), kFirst);
  return ids;
}

TEST(Cached, T1_T3_EqualsPlainMemoryAfterRandomCalls) {
  for (const std::string& options : all_options()) {
    SCOPED_TRACE(options);
    CachedTier tier(options);
    const auto plain = make_host_rows(spec_of_rows(), {});
    const auto memory = tier.allocate(spec_of_rows());
    EXPECT_EQ(rows_of(*memory, every_row(), true), std::vector<float>(kRows * kWidth, 0)) << "zero at first";
    std::mt19937 random(7);
    std::int64_t slot = 0, asked = 0;
    for (std::int64_t moved = 0; moved < 100000;) {
      const unsigned kind = random() % 16;
      std::vector<std::int64_t> ids = some_rows(random, 300);
      moved += static_cast<std::int64_t>(ids.size());
      if (kind < 6) {
        ASSERT_EQ(rows_of(*memory, ids, false), rows_of(*plain, ids, false));
        asked += static_cast<std::int64_t>(ids.size());
      } else if (kind < 12) {
        ids = once_each(ids, random);
        const std::vector<float> values = draw(random, ids.size());
        memory->write(ids, reinterpret_cast<const std::byte*>(values.data()));
        plain->write(ids, reinterpret_cast<const std::byte*>(values.data()));
        asked += static_cast<std::int64_t>(ids.size());
      } else if (kind == 12) {
        ASSERT_EQ(rows_of(*memory, ids, true), rows_of(*plain, ids, true));
      } else if (kind == 13) {
        ids = once_each(ids, random);
        const std::vector<float> values = draw(random, ids.size());
        memory->fill(ids, reinterpret_cast<const std::byte*>(values.data()));
        plain->fill(ids, reinterpret_cast<const std::byte*>(values.data()));
      } else {
        slot = random() % 10 == 0 ? 0 : slot + static_cast<std::int64_t>(random() % 3);
        ahead_of(*memory).ahead(slot, ids);
      }
    }
    EXPECT_EQ(rows_of(*memory, every_row(), true), rows_of(*plain, every_row(), true));
    const TierCount count = count_of(*memory);
    EXPECT_EQ(count.hits + count.misses, asked);
    EXPECT_EQ(count.reads + count.writes, asked);
    EXPECT_GT(count.misses, 0);
  }
}

/// Threads own every fourth row each, so that they meet in all sets; a further one gives hints for all rows.
TEST(Cached, T1_ThreadsOnDifferentRowsOfOneSet) {
  constexpr int kThreads = 4;
  for (const std::string& options : all_options()) {
    SCOPED_TRACE(options);
    CachedTier tier(options);
    const auto memory = tier.allocate(spec_of_rows());
    const auto plain = make_host_rows(spec_of_rows(), {});
    std::atomic<bool> done{false};
    std::atomic<int> wrong{0};
    std::thread hints([&] {
      std::mt19937 random(99);
      for (std::int64_t slot = 0; !done; ++slot) ahead_of(*memory).ahead(slot, some_rows(random, 200));
    });
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937 random(static_cast<unsigned>(t));
        for (int i = 0; i < 150; ++i) {
          std::vector<std::int64_t> ids = some_rows(random, 150);
          for (std::int64_t& id : ids) id = std::min(kFirst + kRows - kThreads, id - id % kThreads) + t;
          ids = once_each(ids, random);
          const unsigned kind = random() % 8;
          if (kind < 4) {
            const std::vector<float> values = draw(random, ids.size());
            const auto* const from = reinterpret_cast<const std::byte*>(values.data());
            kind == 0 ? memory->fill(ids, from) : memory->write(ids, from);
            plain->write(ids, from);
          } else if (rows_of(*memory, ids, kind == 4) != rows_of(*plain, ids, false)) {
            ++wrong;
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    done = true;
    hints.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_EQ(rows_of(*memory, every_row(), true), rows_of(*plain, every_row(), true));
  }
}

/// A table over `cached` over `watched`.
class OnePlace final : public RowPlaces {
 public:
  explicit OnePlace(CachedTier& tier) : tier_(tier) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override { return tier_.allocate(spec); }

 private:
  CachedTier& tier_;
};

std::vector<float> snapshot(const RowTable& table) {
  std::vector<float> all;
  graph::for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    table.scan(ids, rows);
    const auto values = rows.span<float>();
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

constexpr RowMemorySpec kTable{.table = "tiers", .last = kRows, .width = kWidth};

TEST(Cached, P13_ASnapshotHasTheNewestRowsAndLeavesTheCacheAsItWas) {
  CachedTier other_tier("load_factor = 0.032"),
      watched_tier("behind = {type = \"watched\"}\nload_factor = 0.032");
  OnePlace other_place(other_tier), watched_place(watched_tier);
  const auto table = graph::make_row_table(kTable, kRows, &watched_place);
  const WatchedRows& behind = *watched_rows.front();
  const auto undisturbed = graph::make_row_table(kTable, kRows, &other_place);
  const auto plain = graph::make_row_table(kTable, kRows);
  const auto counts = [](RowTable& of) {
    TierCount count;
    static_cast<TierCounts*>(of.query(TierCounts::kId))->counts([&](const TierCount& level) {
      count = level;
    });
    return std::vector<std::int64_t>{count.reads,     count.writes,      count.hits,     count.misses,
                                     count.evictions, count.write_backs, count.bytes_in, count.bytes_out};
  };
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 100; ++i) {
      const std::int64_t id = static_cast<std::int64_t>(random() % 2 == 0 ? random() % kRows : random() % 40);
      std::vector<float> values(kWidth, static_cast<float>(random() % 1000));
      for (RowTable* each : {table.get(), undisturbed.get(), plain.get()})
        each->write({&id, 1}, {values.data(), {1, kWidth}});
    }
    std::vector<float> stale(kRows * kWidth);
    std::vector<std::int64_t> ids(kRows);
    std::iota(ids.begin(), ids.end(), std::int64_t{0});
    behind.scan(ids, reinterpret_cast<std::byte*>(stale.data()));
    EXPECT_NE(stale, snapshot(*plain)) << "rows that only the cache has";
    EXPECT_EQ(snapshot(*table), snapshot(*plain));
    EXPECT_EQ(counts(*table), counts(*undisturbed))
        << "the snapshots of earlier rounds changed which rows have lines";
  }
}

TEST(Cached, P13_ARestoreIsSeenAndLeavesTheCacheAsItWas) {
  for (const char* write : {"back", "through"}) {
    CachedTier tier(std::string("behind = {type = \"watched\"}\nload_factor = 0.032\nwrite = \"") + write +
                    "\"");
    OnePlace place(tier);
    const auto table = graph::make_row_table(kTable, kRows, &place);
    std::vector<float> values(kRows * kWidth);
    std::iota(values.begin(), values.end(), 0.0F);
    std::vector<float> old(kWidth, -1);
    for (std::int64_t id = 0; id < 64; ++id) table->write({&id, 1}, {old.data(), {1, kWidth}});
    const auto misses = [&] {
      std::int64_t count = 0;
      static_cast<TierCounts*>(table->query(TierCounts::kId))->counts([&](const TierCount& level) {
        count = level.misses;
      });
      return count;
    };
    const std::int64_t before = misses();
    graph::for_each_chunk(*table, [&](std::span<const std::int64_t> ids, TensorView rows) {
      std::memcpy(rows.data, values.data() + ids.front() * kWidth, rows.bytes());
      table->fill(ids, rows);
    });
    EXPECT_EQ(misses(), before);
    EXPECT_EQ(snapshot(*table), values);
    // The last 32 rows written still have lines, and give them up without bringing old values back.
    std::vector<float> row(kWidth);
    for (std::int64_t id = 32; id < 64; ++id) table->read({&id, 1}, {row.data(), {1, kWidth}});
    EXPECT_EQ(misses(), before);
    for (std::int64_t id = 100; id < 200; ++id) table->read({&id, 1}, {row.data(), {1, kWidth}});
    EXPECT_EQ(snapshot(*table), values);
    std::vector<std::uint64_t> versions(1);
    const std::int64_t last = kRows - 1;
    table->versions({&last, 1}, versions);
    EXPECT_GT(versions[0], 0U) << "a restore counts as a write";
  }
}

/// Adagrad with one sum per row.
void update(RowTable& weights, RowTable& sums, const RowGradient& gradient) {
  RowTable* state[] = {&sums};
  for_each_row_block(weights, state, gradient, [](const RowBlock& block) {
    for (std::int64_t r = 0; r < block.weights.shape[0]; ++r) {
      float* w = block.weights.as<float>() + r * kWidth;
      const float* g = block.gradients.as<float>() + r * kWidth;
      float& sum = block.state[0].as<float>()[r];
      for (std::int64_t j = 0; j < kWidth; ++j) sum += g[j] * g[j];
      for (std::int64_t j = 0; j < kWidth; ++j) w[j] -= 0.1F * g[j] / std::sqrt(sum + 1e-6F);
    }
  });
}

TEST(Cached, T1_UpdatesOfRowsThroughATable) {
  const RowMemorySpec weights{.table = "w", .first = kFirst, .last = kFirst + kRows, .width = kWidth};
  const RowMemorySpec sums{.table = "w", .state = "s", .first = kFirst, .last = kFirst + kRows, .width = 1};
  constexpr std::int64_t kAll = kFirst + kRows + 100;
  CachedTier tier("load_factor = 0.05\nways = 4");
  OnePlace place(tier);
  const auto plain = graph::make_row_table(weights, kAll), plain_sums = graph::make_row_table(sums, kAll);
  const auto cached = graph::make_row_table(weights, kAll, &place);
  const auto cached_sums = graph::make_row_table(sums, kAll, &place);
  std::mt19937 random(3);
  for (int slot = 0; slot < 30; ++slot) {
    std::vector<std::int64_t> ids = once_each(some_rows(random, 200), random);
    std::sort(ids.begin(), ids.end());
    std::vector<float> values(ids.size() * kWidth);
    for (float& value : values) value = static_cast<float>(random() % 1000) / 500 - 1;
    const RowGradient gradient{0, ids, {values.data(), Shape{static_cast<std::int64_t>(ids.size()), kWidth}}};
    std::vector<std::uint64_t> before(ids.size()), after(ids.size());
    cached->versions(ids, before);
    update(*plain, *plain_sums, gradient);
    update(*cached, *cached_sums, gradient);
    cached->versions(ids, after);
    for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_GT(after[i], before[i]) << "row " << ids[i];
  }
  EXPECT_EQ(snapshot(*cached), snapshot(*plain));
  EXPECT_EQ(snapshot(*cached_sums), snapshot(*plain_sums));
  EXPECT_NE(snapshot(*cached), std::vector<float>(kRows * kWidth, 0));

  // The tier never sees an id of another rank.
  std::vector<float> row(kWidth);
  const std::int64_t beyond = kFirst + kRows;
  const auto refused = [&](const RowTable& table) {
    try {
      table.read({&beyond, 1}, {row.data(), Shape{1, kWidth}});
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused(*cached), ::testing::HasSubstr("row 1300 is not one of this rank's rows [300, 1300)"));
  EXPECT_EQ(refused(*cached), refused(*plain));
}

constexpr RowMemorySpec kNarrow{.table = "narrow", .last = 100, .width = 1};

TEST(Cached, APrefetchThatMeetsAWriteKeepsTheNewerValue) {
  CachedTier tier("behind = {type = \"watched\"}\nload_factor = 0.1");
  const auto memory = tier.allocate(kNarrow);
  WatchedRows& behind = *watched_rows.front();
  put(*memory, 7, 1);
  std::promise<void> fetched, go_on;
  // The prefetch has the old value of row 8 in hand, and a writer comes.
  behind.on_read = [&](std::span<const std::int64_t>) {
    behind.on_read = {};
    fetched.set_value();
    go_on.get_future().wait();
  };
  std::thread prefetch([&] { ahead_of(*memory).ahead(1, std::vector<std::int64_t>{8}); });
  fetched.get_future().wait();
  std::future<void> writer = std::async(std::launch::async, [&] { put(*memory, 8, 2); });
  writer.wait_for(100ms);
  go_on.set_value();
  prefetch.join();
  writer.get();
  EXPECT_EQ(get(*memory, 8), 2);
  EXPECT_EQ(peek(*memory, 8), 2);
  EXPECT_EQ(get(*memory, 7), 1);
}

TEST(Cached, ARestoreThatMeetsAPrefetchKeepsTheNewerValue) {
  CachedTier tier("behind = {type = \"watched\"}\nload_factor = 0.1");
  const auto memory = tier.allocate(kNarrow);
  WatchedRows& behind = *watched_rows.front();
  std::promise<void> filling, go_on;
  // The restore is about to write row 8 to the next level, and the prefetch asks for the row.
  behind.on_fill = [&](std::span<const std::int64_t>) {
    filling.set_value();
    go_on.get_future().wait();
  };
  std::thread restore([&] {
    const std::int64_t id = 8;
    const float value = 2;
    memory->fill({&id, 1}, reinterpret_cast<const std::byte*>(&value));
  });
  filling.get_future().wait();
  std::future<void> prefetch =
      std::async(std::launch::async, [&] { ahead_of(*memory).ahead(1, std::vector<std::int64_t>{8}); });
  prefetch.wait_for(100ms);
  go_on.set_value();
  restore.join();
  prefetch.get();
  EXPECT_EQ(get(*memory, 8), 2);
}

TEST(Cached, ARowOnItsWayToTheNextLevelIsNotReadThere) {
  CachedTier tier("behind = {type = \"watched\"}\nload_factor = 0.02\nways = 2");
  const auto memory = tier.allocate(kNarrow);
  WatchedRows& behind = *watched_rows.front();
  put(*memory, 1, 10);
  put(*memory, 2, 20);
  std::promise<void> leaving, go_on;
  behind.on_write = [&](std::span<const std::int64_t>) {
    behind.on_write = {};
    leaving.set_value();
    go_on.get_future().wait();
  };
  std::thread evicts([&] { get(*memory, 3); });
  leaving.get_future().wait();
  std::future<float> reader = std::async(std::launch::async, [&] { return get(*memory, 1); });
  std::future<float> passing = std::async(std::launch::async, [&] { return peek(*memory, 1); });
  reader.wait_for(100ms);
  go_on.set_value();
  evicts.join();
  EXPECT_EQ(reader.get(), 10);
  EXPECT_EQ(passing.get(), 10);
}

TEST(Cached, AFailureOfTheNextLevelLosesNoRow) {
  for (const bool in_write : {true, false}) {
    CachedTier tier("behind = {type = \"watched\"}\nload_factor = 0.04\nways = 4");
    const auto memory = tier.allocate(kNarrow);
    WatchedRows& behind = *watched_rows.front();
    for (std::int64_t id = 0; id < 4; ++id) put(*memory, id, static_cast<float>(id + 1));
    (in_write ? behind.on_write : behind.on_read) = [](std::span<const std::int64_t>) {
      fail_run("the disk is gone");
    };
    const std::vector<std::int64_t> ids{3, 50, 51};
    std::vector<float> out(ids.size());
    for (int tries = 0; tries < 3; ++tries) {
      EXPECT_THROW(memory->read(ids, reinterpret_cast<std::byte*>(out.data())), Error);
    }
    behind.on_write = behind.on_read = {};
    for (std::int64_t id = 0; id < 4; ++id) {
      EXPECT_EQ(peek(*memory, id), static_cast<float>(id + 1));
      EXPECT_EQ(get(*memory, id), static_cast<float>(id + 1));
    }
    EXPECT_EQ(get(*memory, 50), 0);
    for (std::int64_t id = 60; id < 70; ++id) get(*memory, id);
    for (std::int64_t id = 0; id < 4; ++id) EXPECT_EQ(get(*memory, id), static_cast<float>(id + 1));
  }
}

TEST(Cached, RowsThatASlotWasToldOfStay) {
  CachedTier tier("behind = {type = \"watched\"}\nload_factor = 0.04\nways = 4");
  const auto memory = tier.allocate(kNarrow);
  WatchedRows& behind = *watched_rows.front();
  RowsAhead& ahead = ahead_of(*memory);
  const auto fetches = [&](const std::vector<std::int64_t>& ids) {
    const std::int64_t before = count_of(*memory).misses;
    for (const std::int64_t id : ids) get(*memory, id);
    return count_of(*memory).misses - before;
  };
  put(*memory, 90, 1);
  ahead.ahead(105, std::vector<std::int64_t>{1, 2, 90});
  EXPECT_EQ(count_of(*memory).ahead, 2) << "row 90 is there";
  EXPECT_EQ(count_of(*memory).misses, 1) << "a hint is no access";
  ahead.ahead(106, std::vector<std::int64_t>{1, 3, 4});
  EXPECT_EQ(count_of(*memory).ahead, 3) << "there is room for one of 3 and 4";
  EXPECT_EQ(fetches({1, 2, 3, 90}), 0);
  // Other rows of a slot take lines that nobody was told of where there are any.
  put(*memory, 2, 7);
  EXPECT_EQ(fetches({60, 61, 62}), 3);
  EXPECT_EQ(fetches({1, 3, 90}), 0) << "row 2 was written, so it went";
  EXPECT_EQ(get(*memory, 2), 7);
  // Row 90 was told of for slot 105, rows 1 and 3 for slot 106.
  ahead.ahead(107, std::vector<std::int64_t>{70, 71, 72});
  EXPECT_EQ(count_of(*memory).ahead, 5) << "lines of rows 2 and 90";
  EXPECT_EQ(fetches({1, 3, 70, 71}), 0);
  ahead.ahead(108, std::vector<std::int64_t>{80, 81, 82});
  EXPECT_EQ(count_of(*memory).ahead, 7) << "lines of rows 1 and 3";
  ahead.ahead(107, std::vector<std::int64_t>{85});
  EXPECT_EQ(count_of(*memory).ahead, 7) << "a late hint frees no line";
  ahead.ahead(2, std::vector<std::int64_t>{20, 21, 22, 23, 24});
  EXPECT_EQ(count_of(*memory).ahead, 11) << "the run went back: all lines are free";

  using Hint = std::pair<std::int64_t, std::vector<std::int64_t>>;
  EXPECT_EQ(behind.hints, (std::vector<Hint>{{105, {1, 2}},
                                             {106, {3, 4}},
                                             {107, {70, 71, 72}},
                                             {108, {80, 81, 82}},
                                             {107, {85}},
                                             {2, {20, 21, 22, 23, 24}}}));
}

TEST(Cached, CountsAreThoseOfEveryLevel) {
  CachedTier tier(
      "load_factor = 0.02\nways = 2\nbehind = {type = \"cached\", load_factor = 0.1}\n"
      "front = {type = \"cached\", load_factor = 1.0}");
  const auto memory = tier.allocate(kNarrow);
  for (std::int64_t id = 0; id < 5; ++id) put(*memory, id, 1);
  get(*memory, 4);
  const std::vector<TierCount> levels = levels_of(*memory);
  ASSERT_EQ(levels.size(), 3U);
  EXPECT_EQ(levels[0].tier, "cached");
  EXPECT_EQ(levels[1].tier, "cached.front/cached");
  EXPECT_EQ(levels[2].tier, "cached/cached");
  EXPECT_EQ(levels[0].reads, 1);
  EXPECT_EQ(levels[0].writes, 5);
  EXPECT_EQ(levels[0].hits, 1);
  EXPECT_EQ(levels[0].misses, 5);
  EXPECT_EQ(levels[0].evictions, 3);
  EXPECT_EQ(levels[0].write_backs, 3);
  EXPECT_EQ(levels[0].bytes_in, 0) << "a row that is written whole is not fetched";
  EXPECT_EQ(levels[0].bytes_out, 12);
  EXPECT_EQ(levels[2].writes, 3);

  CachedTier through("load_factor = 0.02\nways = 2\nwrite = \"through\"");
  const auto other = through.allocate(kNarrow);
  for (std::int64_t id = 0; id < 5; ++id) put(*other, id, 1);
  get(*other, 0);
  EXPECT_EQ(count_of(*other).write_backs, 0);
  EXPECT_EQ(count_of(*other).evictions, 4);
  EXPECT_EQ(count_of(*other).bytes_out, 20);
  EXPECT_EQ(count_of(*other).bytes_in, 4);
}

TEST(Cached, OtherTiersLearnWhichRowsAreTheirs) {
  const RowMemorySpec spec{.table = "t", .first = 10, .last = 110, .width = 1, .run = "/run"};
  for (const bool back : {true, false}) {
    CachedTier tier(std::string("front = {type = \"watched\"}\nbehind = {type = \"watched\"}\nwrite = ") +
                    (back ? "\"back\"" : "\"through\""));
    const auto memory = tier.allocate(spec);
    ASSERT_EQ(watched_rows.size(), 2U);
    EXPECT_EQ(watched_rows[0]->table, "t");
    EXPECT_EQ(watched_rows[0]->run, back ? "" : "/run") << "what outlives the process has the newest rows";
    EXPECT_EQ(watched_rows[1]->table, "t.front");
    EXPECT_EQ(watched_rows[1]->run, "");
    const std::int64_t bytes = (*tier).host_bytes(spec);
    EXPECT_GE(bytes, 120 * 1000000) << "all rows and 20 lines";
    EXPECT_LE(bytes, 120 * 1000000 + 1000);
  }
  CachedTier plain("");
  const std::int64_t rows = 2000000;
  const RowMemorySpec wide{.table = "t", .last = rows, .width = 64};
  EXPECT_GT((*plain).host_bytes(wide), rows * 256 * 120 / 100);
  EXPECT_LT((*plain).host_bytes(wide), rows * 256 * 121 / 100);
  const auto none = plain.allocate({.table = "t", .first = 5, .last = 5, .width = 1});
  EXPECT_EQ(count_of(*none).reads, 0) << "a rank that owns no row";
}

std::string refusal(const std::string& options) {
  try {
    CachedTier tier(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Cached, OtherSizesAreRefused) {
  using ::testing::HasSubstr;
  EXPECT_THAT(refusal("load_factor = 1.5"),
              HasSubstr("load_factor = 1.5: a cache larger than what it fronts"));
  EXPECT_THAT(refusal("load_factor = 0"), HasSubstr("load_factor = 0: a cache without lines"));
  EXPECT_THAT(refusal("load_factor = -0.1"), HasSubstr("expected above 0 and at most 1"));
  EXPECT_THAT(refusal("load_factor = nan"), HasSubstr("expected a number"));
  EXPECT_THAT(refusal("policy = \"random\""), HasSubstr("policy"));
  EXPECT_THAT(refusal("write = \"never\""), HasSubstr("write"));
  EXPECT_THAT(refusal("ways = 0"), HasSubstr("ways"));
  EXPECT_THAT(refusal("front = {type = \"cached\", load_factor = 2.0}"),
              HasSubstr("larger than what it fronts"));
}

}  // namespace
}  // namespace tenon::tier_cached::values_test
