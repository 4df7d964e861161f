// Rows of one memory, with those used last or most in lines of another one. Serves RowMemory, RowsAhead and
// TierCounts of tier/1.
//
// A call works in chunks. It finds or makes a line for each id in order, as a cache that serves one access at
// a time would, and then moves the values of all lines at once; where the next access depends on values that
// have not moved yet, it moves them first. A thread waits for another one only while it holds no line.
#pragma once

#include "cache_sets.hpp"

#include <tenon/tier.hpp>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace tenon::tier_cached {

class CachedRows final : public RowMemory, private RowsAhead, private TierCounts {
 public:
  struct Setup {
    std::int64_t first = 0;  ///< owned row
    std::size_t row_bytes = 0;
    Geometry geometry;
    Policy policy = Policy::kLru;
    std::uint32_t aging = 0;
    bool write_through = false;
  };
  /// `front` has rows 0 ... lines - 1.
  CachedRows(const Setup& setup, std::unique_ptr<RowMemory> front, std::unique_ptr<RowMemory> behind);
  ~CachedRows() override;

  void read(std::span<const std::int64_t> ids, std::byte* out) const override;
  void write(std::span<const std::int64_t> ids, const std::byte* values) override;
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override;
  /// A row that has a line changes in both places.
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override;
  void* query(std::string_view interface_id) override;

 private:
  class Chunk;
  class Accesses;
  class Passage;
  struct Totals {
    std::atomic<std::int64_t> reads{0}, writes{0}, hits{0}, misses{0}, ahead{0}, evictions{0}, write_backs{0},
        bytes_in{0}, bytes_out{0}, stall_nanoseconds{0};
  };
  /// Rows that a slot was told of.
  struct Told {
    std::int64_t slot = -1;  ///< -1: of none
    std::vector<std::size_t> lines;
  };

  void ahead(std::int64_t slot, std::span<const std::int64_t> ids) override;
  void counts(const std::function<void(const TierCount&)>& visit) const override;

  void release(int parity);
  std::unique_ptr<Chunk> borrow() const;
  void give_back(std::unique_ptr<Chunk> chunk) const;

  Setup setup_;
  std::size_t chunk_ids_;
  std::unique_ptr<RowMemory> front_, behind_;
  RowsAhead* behind_ahead_;
  mutable CacheSets sets_;
  mutable Totals totals_;
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Chunk>> spare_;
  // One call of ahead() at a time.
  std::array<Told, 2> told_;
  std::vector<std::int64_t> absent_;
  std::atomic<int> older_{0};  ///< parity of the slot whose rows are released next
};

}  // namespace tenon::tier_cached
