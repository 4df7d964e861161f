// For the suites of this folder: the tier made from TOML text, and a tier whose calls a test watches, holds
// or lets fail.
#pragma once

#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/registry.hpp>
#include <tenon/testing/components.hpp>
#include <tenon/tier.hpp>

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tenon::tier_cached::testing {

/// Host memory. Functions are called before its rows are read, written or filled.
class WatchedRows final : public RowMemory, public RowsAhead {
 public:
  using Call = std::function<void(std::span<const std::int64_t>)>;

  explicit WatchedRows(const RowMemorySpec& spec)
      : table(spec.table), run(spec.run), rows_(make_host_rows(spec, {})) {}
  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    // What a caller gets is what was there before the test let it go on.
    rows_->read(ids, out);
    call(on_read, ids);
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    call(on_write, ids);
    rows_->write(ids, values);
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override { rows_->scan(ids, out); }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override {
    call(on_fill, ids);
    rows_->fill(ids, values);
  }
  void* query(std::string_view interface_id) override {
    return interface_id == RowsAhead::kId ? static_cast<RowsAhead*>(this) : nullptr;
  }
  void ahead(std::int64_t slot, std::span<const std::int64_t> ids) override {
    hints.emplace_back(slot, std::vector<std::int64_t>(ids.begin(), ids.end()));
  }

  const std::string table, run;
  Call on_read, on_write, on_fill;
  std::vector<std::pair<std::int64_t, std::vector<std::int64_t>>> hints;

 private:
  /// A function may replace itself.
  static void call(const Call& function, std::span<const std::int64_t> ids) {
    if (const Call copy = function) copy(ids);
  }

  std::unique_ptr<RowMemory> rows_;
};

/// The memories that the tier `watched` made, in order.
inline std::vector<WatchedRows*> watched_rows;

class Watched final : public Tier {
 public:
  static constexpr ComponentInfo kInfo{.id = "watched", .summary = "rows in host memory that a test watches"};
  explicit Watched(const Options&) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    auto rows = std::make_unique<WatchedRows>(spec);
    watched_rows.push_back(rows.get());
    return rows;
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override { return 1000000 * spec.rows(); }
  void* query(std::string_view) override { return nullptr; }
};

TENON_STATIC_PLUGIN(watched_plugin,
                    PluginInfo{.id = "test.watched", .version = "1.0.0", .summary = "watched rows"}, Watched)

/// The tier `cached` with options as TOML lines.
class CachedTier {
 public:
  explicit CachedTier(const std::string& toml) {
    watched_rows.clear();
    registry_.discover({});
    registry_.add_builtin(watched_plugin);
    tier_ = tenon::testing::make<Tier>(registry_, host_, "cached", toml);
  }
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) { return tier_->allocate(spec); }
  Tier& operator*() { return *tier_; }

 private:
  tenon::testing::QuietHost host_;
  Registry registry_;
  tenon::testing::Made<Tier> tier_;
};

inline std::vector<TierCount> levels_of(RowMemory& memory) {
  std::vector<TierCount> levels;
  static_cast<TierCounts*>(memory.query(TierCounts::kId))->counts([&](const TierCount& level) {
    levels.push_back(level);
  });
  return levels;
}
inline TierCount count_of(RowMemory& memory) {
  return levels_of(memory).front();
}
inline RowsAhead& ahead_of(RowMemory& memory) {
  return *static_cast<RowsAhead*>(memory.query(RowsAhead::kId));
}

/// One f32 a row.
inline void put(RowMemory& memory, std::int64_t id, float value) {
  memory.write({&id, 1}, reinterpret_cast<const std::byte*>(&value));
}
inline float get(const RowMemory& memory, std::int64_t id) {
  float value = -1;
  memory.read({&id, 1}, reinterpret_cast<std::byte*>(&value));
  return value;
}
inline float peek(const RowMemory& memory, std::int64_t id) {
  float value = -1;
  memory.scan({&id, 1}, reinterpret_cast<std::byte*>(&value));
  return value;
}

}  // namespace tenon::tier_cached::testing
