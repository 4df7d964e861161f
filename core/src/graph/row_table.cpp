// Rows in one mapping of host memory, and tables over such or another memory.
#include "graph/row_table.hpp"

#include <tenon/error.hpp>
#include <tenon/row_words.hpp>

#include <fmt/format.h>

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

namespace tenon::graph {
namespace {

/// Neighbouring rows that share a version: one count per row would be an eighth of a narrow table.
constexpr std::size_t kVersionRows = 64;
/// Whole tables pass through buffers of this size.
constexpr std::int64_t kChunkBytes = std::int64_t{4} << 20;
/// Reads ask for the row this far ahead while they copy one: rows are anywhere in a table larger than caches.
constexpr std::size_t kPrefetchDistance = 32;

/// Zeroed memory that takes no physical page before it is written, in huge pages where the system has them:
/// random rows of a large table would otherwise miss the TLB each time.
class Mapping {
 public:
  Mapping(const std::string& name, std::size_t bytes, const HostPages& pages) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      fail_run(fmt::format("row table '{}': the system gave no {:.1f} MiB of memory for its rows", name,
                           static_cast<double>(bytes) / (1024.0 * 1024.0)));
    }
    madvise(memory, bytes, pages.huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
    if (pages.prepare) pages.prepare({data_, bytes_});
  }
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Rows in a mapping.
class HostRows final : public RowMemory {
 public:
  HostRows(const RowMemorySpec& spec, const HostPages& pages)
      : first_(spec.first),
        row_bytes_(spec.row_bytes()),
        memory_(spec.name(), row_bytes_ * static_cast<std::size_t>(spec.rows()), pages) {}

  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    const auto stride = static_cast<std::int64_t>(row_bytes_);
    const std::byte* const base = memory_.data() - first_ * stride;
    const auto ask = [&](std::size_t i) { __builtin_prefetch(base + ids[i] * stride); };
    for (std::size_t i = 0; i < std::min(kPrefetchDistance, ids.size()); ++i) ask(i);
    with_row_word(row_bytes_, [&](auto word) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i + kPrefetchDistance < ids.size()) ask(i + kPrefetchDistance);
        load_row_words<decltype(word)>(base + ids[i] * stride, out + i * row_bytes_, row_bytes_);
      }
    });
  }

  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    const auto stride = static_cast<std::int64_t>(row_bytes_);
    std::byte* const base = memory_.data() - first_ * stride;
    with_row_word(row_bytes_, [&](auto word) {
      for (std::size_t i = 0; i < ids.size(); ++i)
        store_row_words<decltype(word)>(base + ids[i] * stride, values + i * row_bytes_, row_bytes_);
    });
  }

  void scan(std::span<const std::int64_t> ids, std::byte* out) const override { read(ids, out); }
  void fill(std::span<const std::int64_t> ids, const std::byte* values) override { write(ids, values); }
  void* query(std::string_view) override { return nullptr; }

 private:
  std::int64_t first_;
  std::size_t row_bytes_;
  Mapping memory_;
};

/// Ids, owned rows and versions, over memory that has nothing but rows.
class OwnedRows final : public RowTable, private DeviceRows {
 public:
  OwnedRows(const RowMemorySpec& spec, std::int64_t rows, std::unique_ptr<RowMemory> memory)
      : name_(spec.name()),
        dtype_(spec.dtype),
        rows_(rows),
        width_(spec.width),
        first_(spec.first),
        last_(spec.last),
        memory_(std::move(memory)),
        on_device_(static_cast<DeviceRows*>(memory_->query(DeviceRows::kId))),
        versions_(
            std::make_unique<std::atomic<std::uint64_t>[]>((owned() + kVersionRows - 1) / kVersionRows)) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return dtype_; }
  std::int64_t owned_first() const override { return first_; }
  std::int64_t owned_last() const override { return last_; }

  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    require_own(ids, out);
    memory_->read(ids, static_cast<std::byte*>(out.data));
  }
  void scan(std::span<const std::int64_t> ids, TensorView out) const override {
    require_own(ids, out);
    memory_->scan(ids, static_cast<std::byte*>(out.data));
  }
  void write(std::span<const std::int64_t> ids, TensorView values) override {
    require_own(ids, values);
    memory_->write(ids, static_cast<const std::byte*>(values.data));
    count_writes(ids);
  }
  void fill(std::span<const std::int64_t> ids, TensorView values) override {
    require_own(ids, values);
    memory_->fill(ids, static_cast<const std::byte*>(values.data));
    count_writes(ids);
  }

  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      out[i] = versions_[slot(ids[i]) / kVersionRows].load(std::memory_order_relaxed);
  }

  void* query(std::string_view interface_id) override {
    if (interface_id != DeviceRows::kId) return memory_->query(interface_id);
    return on_device_ == nullptr ? nullptr : static_cast<DeviceRows*>(this);
  }

 private:
  TensorView rows_on_device() override { return on_device_->rows_on_device(); }
  void wrote(std::span<const std::int64_t> ids) override {
    on_device_->wrote(ids);
    count_writes(ids);
  }

  std::size_t owned() const { return last_ - first_; }

  std::size_t slot(std::int64_t id) const {
    if (id < first_ || id >= last_) {
      fail_run(fmt::format("row table '{}': row {} is not one of this rank's rows [{}, {})", name_, id,
                           first_, last_));
    }
    return id - first_;
  }

  void require_own(std::span<const std::int64_t> ids, const TensorView& view) const {
    if (view.dtype != dtype_ || view.elements() != static_cast<std::int64_t>(ids.size()) * width_) {
      fail_run(fmt::format("row table '{}': expected {} rows of {} {}, found a tensor {} of {}", name_,
                           ids.size(), width_, dtype_name(dtype_), view.shape.text(),
                           dtype_name(view.dtype)));
    }
    for (const std::int64_t id : ids) slot(id);
  }

  /// Raises the versions of owned rows.
  void count_writes(std::span<const std::int64_t> ids) {
    std::size_t counted = SIZE_MAX;
    for (const std::int64_t id : ids) {
      const std::size_t group = static_cast<std::size_t>(id - first_) / kVersionRows;
      if (group == counted) continue;
      counted = group;
      versions_[group].fetch_add(1, std::memory_order_relaxed);
    }
  }

  std::string name_;
  DType dtype_;
  std::int64_t rows_, width_, first_, last_;
  std::unique_ptr<RowMemory> memory_;
  DeviceRows* on_device_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> versions_;
};

}  // namespace

std::unique_ptr<RowTable> make_row_table(const RowMemorySpec& spec, std::int64_t rows, RowPlaces* places) {
  std::unique_ptr<RowMemory> memory = places != nullptr ? places->allocate(spec) : nullptr;
  if (memory == nullptr) memory = make_host_rows(spec, {});
  return std::make_unique<OwnedRows>(spec, rows, std::move(memory));
}

bool holds_kept_rows(RowTable& table) {
  const auto* const kept = static_cast<const KeptRows*>(table.query(KeptRows::kId));
  return kept != nullptr && kept->kept();
}

void for_each_chunk(const RowTable& table, const RowChunk& body) {
  const auto row_bytes = std::max<std::int64_t>(1, dtype_bytes(table.dtype(), table.width()));
  const std::int64_t rows = std::max<std::int64_t>(1, kChunkBytes / row_bytes);
  std::vector<std::int64_t> ids;
  std::vector<std::byte> memory;
  for (std::int64_t first = table.owned_first(); first < table.owned_last(); first += rows) {
    ids.resize(std::min(rows, table.owned_last() - first));
    std::iota(ids.begin(), ids.end(), first);
    TensorView view;
    view.dtype = table.dtype();
    view.shape = Shape{static_cast<std::int64_t>(ids.size()), table.width()};
    memory.resize(view.bytes());
    view.data = memory.data();
    body(ids, view);
  }
}

}  // namespace tenon::graph

TENON_ABI_BEGIN

std::string RowMemorySpec::name() const {
  return state.empty() ? std::string(table) : fmt::format("{} of {}", state, table);
}

std::unique_ptr<RowMemory> make_host_rows(const RowMemorySpec& spec, const HostPages& pages) {
  return std::make_unique<graph::HostRows>(spec, pages);
}

TENON_ABI_END
