// Rows that live in tiers: a small write-back cache in front of a table, as memory tiers will have it. Every
// read of rows through RowTable, also for saves and hashes, returns the newest values, also those that only
// the cache has.
#include "graph/row_table.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <list>
#include <map>
#include <random>
#include <vector>

namespace tenon::graph {
namespace {

constexpr std::int64_t kTableRows = 1000, kRowWidth = 5, kLines = 32;

/// Holds the rows used last; a written row reaches the underlying table when its line is needed.
class WriteBackCache final : public RowTable {
 public:
  explicit WriteBackCache(RowTable& behind) : behind_(behind) {}
  std::int64_t rows() const override { return behind_.rows(); }
  std::int64_t width() const override { return behind_.width(); }
  DType dtype() const override { return behind_.dtype(); }
  std::int64_t owned_first() const override { return behind_.owned_first(); }
  std::int64_t owned_last() const override { return behind_.owned_last(); }
  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    auto* to = static_cast<float*>(out.data);
    for (const std::int64_t id : ids) {
      std::memcpy(to, line(id).values.data(), kRowWidth * sizeof(float));
      to += kRowWidth;
    }
  }
  void write(std::span<const std::int64_t> ids, TensorView values) override {
    const auto* from = static_cast<const float*>(values.data);
    for (const std::int64_t id : ids) {
      Line& mine = line(id);
      std::memcpy(mine.values.data(), from, kRowWidth * sizeof(float));
      mine.dirty = true;
      from += kRowWidth;
    }
  }
  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    behind_.versions(ids, out);
  }
  int dirty_lines() const {
    int count = 0;
    for (const auto& [id, line] : lines_) count += line.dirty ? 1 : 0;
    return count;
  }

 private:
  struct Line {
    std::vector<float> values = std::vector<float>(kRowWidth);
    bool dirty = false;
  };
  Line& line(std::int64_t id) const {
    order_.remove(id);
    order_.push_front(id);
    const auto found = lines_.find(id);
    if (found != lines_.end()) return found->second;
    if (lines_.size() == kLines) evict();
    Line fresh;
    behind_.read({&id, 1}, {fresh.values.data(), {1, kRowWidth}});
    return lines_.emplace(id, std::move(fresh)).first->second;
  }
  void evict() const {
    const std::int64_t oldest = order_.back();
    order_.pop_back();
    Line& old = lines_.at(oldest);
    if (old.dirty) behind_.write({&oldest, 1}, {old.values.data(), {1, kRowWidth}});
    lines_.erase(oldest);
  }

  RowTable& behind_;
  mutable std::map<std::int64_t, Line> lines_;
  mutable std::list<std::int64_t> order_;  ///< newest first
};

std::vector<float> snapshot(const RowTable& table) {
  std::vector<float> all;
  for_each_chunk(table, [&](std::span<const std::int64_t> ids, TensorView rows) {
    table.read(ids, rows);
    const auto values = rows.span<float>();
    all.insert(all.end(), values.begin(), values.end());
  });
  return all;
}

TEST(RowTiers, P13_ASnapshotThroughATierHasTheNewestRows) {
  const auto behind = make_row_table({.table = "tiers", .last = kTableRows, .width = kRowWidth}, kTableRows);
  const auto plain = make_row_table({.table = "plain", .last = kTableRows, .width = kRowWidth}, kTableRows);
  WriteBackCache cache(*behind);
  std::mt19937 random(4);
  for (int round = 0; round < 20; ++round) {
    for (int i = 0; i < 100; ++i) {
      const std::int64_t id = static_cast<std::int64_t>(random() % kTableRows);
      std::vector<float> values(kRowWidth, static_cast<float>(random() % 1000));
      cache.write({&id, 1}, {values.data(), {1, kRowWidth}});
      plain->write({&id, 1}, {values.data(), {1, kRowWidth}});
    }
    ASSERT_GT(cache.dirty_lines(), 0);
    EXPECT_NE(snapshot(*behind), snapshot(*plain)) << "the tier behind is stale";
    EXPECT_EQ(snapshot(cache), snapshot(*plain));
  }
}

TEST(RowTiers, P13_RowsWrittenBackByARestoreAreSeenThroughATier) {
  const auto behind = make_row_table({.table = "tiers", .last = kTableRows, .width = kRowWidth}, kTableRows);
  WriteBackCache cache(*behind);
  std::vector<float> ones(kTableRows * kRowWidth, 1.0f);
  for_each_chunk(cache, [&](std::span<const std::int64_t> ids, TensorView rows) {
    std::memcpy(rows.data, ones.data() + ids.front() * kRowWidth, rows.bytes());
    cache.write(ids, rows);
  });
  EXPECT_EQ(snapshot(cache), ones);
}

}  // namespace
}  // namespace tenon::graph
