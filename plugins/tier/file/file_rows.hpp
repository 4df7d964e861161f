// The memory of a table over pages of a file, as the core asks for it; PageCache does the work.
#pragma once

#include "page_cache.hpp"

#include <tenon/tier.hpp>

#include <memory>
#include <string>
#include <utility>

namespace tenon::tier_file {

class FileRows final : public RowMemory, private RowsAhead, private TierCounts {
 public:
  /// As PageCache.
  FileRows(const RowMemorySpec& spec, std::int64_t resident, std::unique_ptr<PageFile> file,
           std::string folder)
      : cache_(std::make_unique<PageCache>(spec, resident, std::move(file), std::move(folder))) {}

  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    cache_->pass(PageCache::Use::kRead, ids, out, nullptr);
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    cache_->pass(PageCache::Use::kWrite, ids, nullptr, values);
  }
  void scan(std::span<const std::int64_t> ids, std::byte* out) const override {
    cache_->pass(PageCache::Use::kScan, ids, out, nullptr);
  }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override {
    cache_->pass(PageCache::Use::kFill, ids, nullptr, values);
  }
  void* query(std::string_view interface_id) override {
    if (interface_id == RowsAhead::kId) return static_cast<RowsAhead*>(this);
    if (interface_id == TierCounts::kId) return static_cast<TierCounts*>(this);
    return nullptr;
  }
  const PageCache& cache() const { return *cache_; }

 private:
  void ahead(std::int64_t slot, std::span<const std::int64_t> ids) override { cache_->ahead(slot, ids); }
  void counts(const std::function<void(const TierCount&)>& visit) const override { visit(cache_->count()); }

  std::unique_ptr<PageCache> cache_;
};

}  // namespace tenon::tier_file
