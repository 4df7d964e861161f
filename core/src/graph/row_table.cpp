// Rows in one mapping of host memory, or in the memory that a tier gives.
// Rows are copied in words by relaxed loads and stores, which costs no more than memcpy for rows of usual
// width and is what lock-free workers need.
#include "graph/row_table.hpp"

#include <tenon/error.hpp>

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
constexpr std::size_t kPrefetchDistance = 8;

/// Zeroed memory that takes no physical page before it is written, in huge pages where the system has them:
/// random rows of a large table would otherwise miss the TLB each time.
class Mapping {
 public:
  Mapping(const std::string& name, std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      fail_run(fmt::format("row table '{}': the system gave no {:.1f} MiB of memory for its rows", name,
                           static_cast<double>(bytes) / (1024.0 * 1024.0)));
    }
    madvise(memory, bytes, MADV_HUGEPAGE);
    data_ = static_cast<std::byte*>(memory);
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

template <typename Word>
void load_words(const std::byte* row, std::byte* out, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    const Word word = __atomic_load_n(reinterpret_cast<const Word*>(row + at), __ATOMIC_RELAXED);
    std::memcpy(out + at, &word, sizeof word);
  }
}

template <typename Word>
void store_words(std::byte* row, const std::byte* in, std::size_t bytes) {
  for (std::size_t at = 0; at < bytes; at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, in + at, sizeof word);
    __atomic_store_n(reinterpret_cast<Word*>(row + at), word, __ATOMIC_RELAXED);
  }
}

/// Calls fn with a value of the widest word that divides a row.
template <typename Fn>
void with_word(std::size_t row_bytes, Fn&& fn) {
  if (row_bytes % 8 == 0) {
    fn(std::uint64_t{});
  } else if (row_bytes % 4 == 0) {
    fn(std::uint32_t{});
  } else {
    fn(std::uint8_t{});
  }
}

/// What a table is apart from its memory.
class OwnedRows : public RowTable {
 public:
  OwnedRows(std::string name, DType dtype, std::int64_t rows, std::int64_t width, std::int64_t first,
            std::int64_t last)
      : name_(std::move(name)),
        dtype_(dtype),
        rows_(rows),
        width_(width),
        first_(first),
        last_(last),
        row_bytes_(dtype_bytes(dtype, width)),
        versions_(
            std::make_unique<std::atomic<std::uint64_t>[]>((owned() + kVersionRows - 1) / kVersionRows)) {}

  std::int64_t rows() const override { return rows_; }
  std::int64_t width() const override { return width_; }
  DType dtype() const override { return dtype_; }
  std::int64_t owned_first() const override { return first_; }
  std::int64_t owned_last() const override { return last_; }

  void versions(std::span<const std::int64_t> ids, std::span<std::uint64_t> out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i)
      out[i] = versions_[slot(ids[i]) / kVersionRows].load(std::memory_order_relaxed);
  }

 protected:
  const std::string& name() const { return name_; }
  std::size_t owned() const { return last_ - first_; }
  std::size_t row_bytes() const { return row_bytes_; }

  std::size_t slot(std::int64_t id) const {
    if (id < first_ || id >= last_) {
      fail_run(fmt::format("row table '{}': row {} is not one of this rank's rows [{}, {})", name_, id,
                           first_, last_));
    }
    return id - first_;
  }

  void require_room(std::span<const std::int64_t> ids, const TensorView& view) const {
    if (view.dtype != dtype_ || view.elements() != static_cast<std::int64_t>(ids.size()) * width_) {
      fail_run(fmt::format("row table '{}': expected {} rows of {} {}, found a tensor {} of {}", name_,
                           ids.size(), width_, dtype_name(dtype_), view.shape.text(),
                           dtype_name(view.dtype)));
    }
  }

  /// Counts a write of the row at `slot`; `counted` is of one call, SIZE_MAX at first.
  void count_write(std::size_t slot, std::size_t& counted) {
    if (slot / kVersionRows == counted) return;
    counted = slot / kVersionRows;
    versions_[counted].fetch_add(1, std::memory_order_relaxed);
  }

 private:
  std::string name_;
  DType dtype_;
  std::int64_t rows_, width_, first_, last_;
  std::size_t row_bytes_;
  std::unique_ptr<std::atomic<std::uint64_t>[]> versions_;
};

class HostRowTable final : public OwnedRows {
 public:
  HostRowTable(std::string name, DType dtype, std::int64_t rows, std::int64_t width, std::int64_t first,
               std::int64_t last)
      : OwnedRows(std::move(name), dtype, rows, width, first, last),
        memory_(this->name(), row_bytes() * owned()) {}

  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    require_room(ids, out);
    const auto stride = static_cast<std::int64_t>(row_bytes());
    auto* to = static_cast<std::byte*>(out.data);
    with_word(row_bytes(), [&](auto word) {
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (i + kPrefetchDistance < ids.size())
          __builtin_prefetch(memory_.data() + (ids[i + kPrefetchDistance] - owned_first()) * stride);
        load_words<decltype(word)>(memory_.data() + slot(ids[i]) * row_bytes(), to + i * row_bytes(),
                                   row_bytes());
      }
    });
  }

  void write(std::span<const std::int64_t> ids, TensorView values) override {
    require_room(ids, values);
    const auto* from = static_cast<const std::byte*>(values.data);
    with_word(row_bytes(), [&](auto word) {
      std::size_t counted = SIZE_MAX;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const std::size_t at = slot(ids[i]);
        store_words<decltype(word)>(memory_.data() + at * row_bytes(), from + i * row_bytes(), row_bytes());
        count_write(at, counted);
      }
    });
  }

 private:
  Mapping memory_;
};

class TierRowTable final : public OwnedRows {
 public:
  TierRowTable(Tier& tier, std::string name, DType dtype, std::int64_t rows, std::int64_t width,
               std::int64_t first, std::int64_t last)
      : OwnedRows(std::move(name), dtype, rows, width, first, last),
        memory_(tier.allocate({this->name(), first, last, row_bytes()})) {}

  void read(std::span<const std::int64_t> ids, TensorView out) const override {
    require_room(ids, out);
    for (const std::int64_t id : ids) slot(id);
    memory_->read(ids, static_cast<std::byte*>(out.data));
  }

  void write(std::span<const std::int64_t> ids, TensorView values) override {
    require_room(ids, values);
    for (const std::int64_t id : ids) slot(id);
    memory_->write(ids, static_cast<const std::byte*>(values.data));
    std::size_t counted = SIZE_MAX;
    for (const std::int64_t id : ids) count_write(slot(id), counted);
  }

 private:
  std::unique_ptr<RowMemory> memory_;
};

}  // namespace

std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last) {
  return std::make_unique<HostRowTable>(std::move(name), dtype, rows, width, first, last);
}

std::unique_ptr<RowTable> make_row_table(Tier& tier, std::string name, DType dtype, std::int64_t rows,
                                         std::int64_t width, std::int64_t first, std::int64_t last) {
  return std::make_unique<TierRowTable>(tier, std::move(name), dtype, rows, width, first, last);
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
