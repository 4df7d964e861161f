// Tier `hbm`: rows in the memory of the run's device. Operators reach them there (DeviceRows); the host reads
// and writes them through a buffer on the device: ids go there, rows are gathered, and one copy takes them
// away.
#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/sdk/ops/table_rows.hpp>
#include <tenon/sdk/row_update.hpp>
#include <tenon/tier.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>

namespace tenon::tier_hbm {
namespace {

/// Rows that travel at once, about: large enough that a copy costs more than its start, small beside tables.
constexpr std::int64_t kStagedBytes = std::int64_t{1} << 20;

/// Memory of a device. Bytes may be 0.
class DeviceBytes {
 public:
  DeviceBytes(Device& device, std::int64_t bytes)
      : device_(device), bytes_(bytes), data_(static_cast<std::byte*>(device.allocate(bytes))) {}
  ~DeviceBytes() { device_.release(data_, bytes_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  std::int64_t size() const { return bytes_; }
  TensorView view(const Shape& shape, DType dtype, std::int64_t at = 0) const {
    return {data_ + at, shape, dtype, device_.space()};
  }

 private:
  Device& device_;
  std::int64_t bytes_;
  std::byte* data_;
};

bool consecutive(std::span<const std::int64_t> ids) {
  for (std::size_t i = 1; i < ids.size(); ++i) {
    if (ids[i] != ids[i - 1] + 1) return false;
  }
  return !ids.empty();
}

TensorView on_host(const void* data, const TensorView& like) {
  return {const_cast<void*>(data), like.shape, like.dtype, MemorySpace::kHost};
}

class HbmRows final : public RowMemory, private DeviceRows, private DeviceRowRoom, private TierCounts {
 public:
  explicit HbmRows(const RowMemorySpec& spec)
      : device_(*spec.device),
        ops_(spec.device->family<TableRowOps>()),
        dtype_(spec.dtype),
        first_(spec.first),
        rows_(spec.rows()),
        width_(spec.width),
        row_bytes_(static_cast<std::int64_t>(spec.row_bytes())),
        staged_rows_(std::clamp<std::int64_t>(kStagedBytes / std::max<std::int64_t>(1, row_bytes_), 1,
                                              std::max<std::int64_t>(1, rows_))),
        table_(device_, rows_ * row_bytes_),
        staged_ids_(device_, staged_rows_ * static_cast<std::int64_t>(sizeof(std::int64_t))),
        staged_(device_, staged_rows_ * row_bytes_) {}

  void read(std::span<const std::int64_t> ids, std::byte* out) const override {
    reads_.fetch_add(static_cast<std::int64_t>(ids.size()), std::memory_order_relaxed);
    scan(ids, out);
  }
  void write(std::span<const std::int64_t> ids, const std::byte* values) override {
    writes_.fetch_add(static_cast<std::int64_t>(ids.size()), std::memory_order_relaxed);
    fill(ids, values);
  }

  void scan(std::span<const std::int64_t> ids, std::byte* out) const override {
    if (consecutive(ids)) {
      const TensorView rows = owned(ids.front(), static_cast<std::int64_t>(ids.size()));
      device_.copy(rows, on_host(out, rows));
      return device_.synchronize();
    }
    const std::lock_guard lock(mutex_);
    for_staged(ids, [&](std::int64_t at, const TensorView& there, const TensorView& rows) {
      ops_.gather(all(), first_, there, rows);
      device_.copy(rows, on_host(out + at * row_bytes_, rows));
      device_.synchronize();
    });
  }

  void fill(std::span<const std::int64_t> ids, const std::byte* values) override {
    if (consecutive(ids)) {
      const TensorView rows = owned(ids.front(), static_cast<std::int64_t>(ids.size()));
      device_.copy(on_host(values, rows), rows);
      return device_.synchronize();
    }
    const std::lock_guard lock(mutex_);
    for_staged(ids, [&](std::int64_t at, const TensorView& there, const TensorView& rows) {
      device_.copy(on_host(values + at * row_bytes_, rows), rows);
      ops_.scatter(rows, all(), first_, there);
    });
    device_.synchronize();
  }

  void* query(std::string_view interface_id) override {
    if (interface_id == DeviceRows::kId) return static_cast<DeviceRows*>(this);
    if (interface_id == DeviceRowRoom::kId) return static_cast<DeviceRowRoom*>(this);
    if (interface_id == TierCounts::kId) return static_cast<TierCounts*>(this);
    return nullptr;
  }

 private:
  TensorView rows_on_device() override { return all(); }
  void wrote(std::span<const std::int64_t>) override {}

  TensorView room(std::int64_t bytes) override {
    if (room_ == nullptr || room_->size() < bytes) {
      room_.reset();  // before the larger one takes its place
      // With a margin: the rows of batches differ in number.
      room_ = std::make_unique<DeviceBytes>(device_, bytes + bytes / 4);
    }
    return room_->view(Shape{bytes}, DType::kU8);
  }

  void counts(const std::function<void(const TierCount&)>& visit) const override {
    TierCount count;
    count.tier = "hbm";
    count.reads = reads_.load(std::memory_order_relaxed);
    count.writes = writes_.load(std::memory_order_relaxed);
    visit(count);
  }

  TensorView all() const { return table_.view(Shape{rows_, width_}, dtype_); }
  TensorView owned(std::int64_t id, std::int64_t count) const {
    return table_.view(Shape{count, width_}, dtype_, (id - first_) * row_bytes_);
  }

  /// Calls body(place of the first, ids, room for their rows) for ids that are on the device.
  template <class Body>
  void for_staged(std::span<const std::int64_t> ids, Body body) const {
    for (std::size_t at = 0; at < ids.size(); at += static_cast<std::size_t>(staged_rows_)) {
      const auto part = ids.subspan(at, std::min(ids.size() - at, static_cast<std::size_t>(staged_rows_)));
      const auto count = static_cast<std::int64_t>(part.size());
      const TensorView there = staged_ids_.view(Shape{count}, DType::kI64);
      device_.copy(on_host(part.data(), there), there);
      body(static_cast<std::int64_t>(at), there, staged_.view(Shape{count, width_}, dtype_));
    }
  }

  Device& device_;
  TableRowOps& ops_;
  DType dtype_;
  std::int64_t first_, rows_, width_, row_bytes_, staged_rows_;
  DeviceBytes table_;
  mutable std::mutex mutex_;  ///< of the buffers
  DeviceBytes staged_ids_, staged_;
  std::unique_ptr<DeviceBytes> room_;
  mutable std::atomic<std::int64_t> reads_ = 0;
  std::atomic<std::int64_t> writes_ = 0;
};

}  // namespace

class Hbm final : public Tier {
 public:
  static constexpr ComponentInfo kInfo{.id = "hbm", .summary = "rows in the memory of the device"};

  explicit Hbm(const Options&) {}

  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    if (spec.device == nullptr) {
      fail_config(fmt::format("tier hbm: row table '{}' is made without a device; place it in tier dram",
                              spec.name()));
    }
    require_own_memory(spec);
    try {
      return std::make_unique<HbmRows>(spec);
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("tier hbm: row table '{}', {} rows of {} bytes: {}", spec.name(),
                                            spec.rows(), spec.row_bytes(), error.what()));
    }
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    require_own_memory(spec);
    return 0;
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  static void require_own_memory(const RowMemorySpec& spec) {
    if (spec.device == nullptr || spec.device->space() != MemorySpace::kHost) return;
    fail_config(
        fmt::format("tier hbm: the run's device has no memory of its own, its tensors are in the host's; "
                    "place row table '{}' in tier dram, or set device.type to an accelerator",
                    spec.name()));
  }
};

}  // namespace tenon::tier_hbm

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.tier_hbm",
                               .version = "0.1.0",
                               .summary = "rows in the memory of the device"},
             tenon::tier_hbm::Hbm)
