// Tier `row_cache` of tests: a small write-back cache of sets over host memory, or over another tier. Rows
// that were written last are in the cache alone, so a read that goes around it finds old ones.
#pragma once

#include <tenon/config.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tier.hpp>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tenon::integration {

class CachedRows;

/// The caches of this process, and how often those that ended were asked, by the names of their rows.
struct LiveCaches {
  std::mutex mutex;
  std::set<CachedRows*> all;
  std::map<std::string, std::int64_t> ended;
};
inline LiveCaches live_caches;

class CachedRows final : public RowMemory, public TierCounts {
 public:
  CachedRows(const RowMemorySpec& spec, std::int64_t sets, std::int64_t ways,
             std::unique_ptr<RowMemory> behind)
      : name_(spec.name()),
        row_bytes_(spec.row_bytes()),
        ways_(static_cast<std::size_t>(ways)),
        lines_(static_cast<std::size_t>(sets * ways)),
        rows_(lines_.size() * row_bytes_),
        behind_(std::move(behind)) {
    const std::lock_guard lock(live_caches.mutex);
    live_caches.all.insert(this);
  }
  ~CachedRows() override {
    const std::lock_guard lock(live_caches.mutex);
    live_caches.all.erase(this);
    live_caches.ended[name_] += asked();
  }

  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ++count_.reads;
      const std::size_t line = take(ids[i], true);
      std::memcpy(out + i * row_bytes_, row(line), row_bytes_);
    }
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      ++count_.writes;
      const std::size_t line = take(ids[i], false);
      std::memcpy(row(line), values + i * row_bytes_, row_bytes_);
      lines_[line].dirty = true;
    }
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const std::size_t line = find(ids[i]);
      if (line < lines_.size()) {
        std::memcpy(out + i * row_bytes_, row(line), row_bytes_);
      } else {
        behind_->scan(ids.subspan(i, 1), out + i * row_bytes_);
      }
    }
  }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      behind_->fill(ids.subspan(i, 1), values + i * row_bytes_);
      const std::size_t line = find(ids[i]);
      if (line == lines_.size()) continue;
      std::memcpy(row(line), values + i * row_bytes_, row_bytes_);
      lines_[line].dirty = false;
    }
  }
  void* query(std::string_view id) override {
    return id == TierCounts::kId ? static_cast<TierCounts*>(this) : nullptr;
  }

  void counts(const std::function<void(const TierCount&)>& visit) const override {
    const std::lock_guard lock(mutex_);
    visit(count_);
  }
  const std::string& name() const { return name_; }
  std::int64_t asked() const {
    const std::lock_guard lock(mutex_);
    return count_.reads + count_.writes;
  }
  std::int64_t dirty() const {
    const std::lock_guard lock(mutex_);
    std::int64_t sum = 0;
    for (const Line& line : lines_) sum += line.dirty ? 1 : 0;
    return sum;
  }

 private:
  struct Line {
    std::int64_t id = -1, used = 0;
    bool dirty = false;
  };

  std::byte* row(std::size_t line) const { return rows_.data() + line * row_bytes_; }
  std::size_t first_of(std::int64_t id) const {
    return static_cast<std::size_t>(id) % (lines_.size() / ways_) * ways_;
  }
  /// The line of a row, or the number of lines.
  std::size_t find(std::int64_t id) const {
    const std::size_t first = first_of(id);
    for (std::size_t line = first; line < first + ways_; ++line) {
      if (lines_[line].id == id) return line;
    }
    return lines_.size();
  }
  /// The line of a row, which it gets if it has none: the one that was used longest ago.
  std::size_t take(std::int64_t id, bool fetch) const {
    std::size_t line = find(id);
    if (line < lines_.size()) {
      ++count_.hits;
    } else {
      ++count_.misses;
      line = first_of(id);
      for (std::size_t other = line + 1; other < first_of(id) + ways_; ++other) {
        if (lines_[other].used < lines_[line].used) line = other;
      }
      evict(line);
      if (fetch) behind_->read({&id, 1}, row(line));
      lines_[line].id = id;
    }
    lines_[line].used = ++clock_;
    return line;
  }
  void evict(std::size_t line) const {
    Line& old = lines_[line];
    if (old.id >= 0) ++count_.evictions;
    if (old.dirty) {
      ++count_.write_backs;
      behind_->write({&old.id, 1}, row(line));
    }
    old = {};
  }

  std::string name_;
  std::size_t row_bytes_, ways_;
  mutable std::mutex mutex_;
  mutable std::vector<Line> lines_;
  mutable std::vector<std::byte> rows_;
  mutable std::int64_t clock_ = 0;
  mutable TierCount count_;
  std::unique_ptr<RowMemory> behind_;
};

/// `HogWild`: whether it says that several workers may write at once.
template <bool HogWild>
class RowCache final : public Tier {
 public:
  static constexpr OptionSpec kOptions[] = {option::integer("sets", "4").at_least(1),
                                            option::integer("ways", "2").at_least(1),
                                            option::component("behind", "tier/1")};
  static constexpr ComponentInfo kInfo{.id = HogWild ? "row_cache" : "lone_row_cache",
                                       .summary = "a small cache of rows",
                                       .options = kOptions,
                                       .capabilities = HogWild ? TENON_CAP_HOGWILD : 0};
  explicit RowCache(const Options& options)
      : sets_(options.integer("sets")),
        ways_(options.integer("ways")),
        behind_(options.has("behind") ? options.component<Tier>("behind") : nullptr) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    auto behind = behind_ != nullptr ? behind_->allocate(spec) : make_host_rows(spec, {});
    return std::make_unique<CachedRows>(spec, sets_, ways_, std::move(behind));
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    const auto row = static_cast<std::int64_t>(spec.row_bytes());
    return sets_ * ways_ * row + (behind_ != nullptr ? behind_->host_bytes(spec) : spec.rows() * row);
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t sets_, ways_;
  Tier* behind_;
};

}  // namespace tenon::integration
