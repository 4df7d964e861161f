// Tiers that are wrong in one way each.
#include <tenon/error.hpp>
#include <tenon/plugin.hpp>
#include <tenon/tier.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace tenon;
using Ids = std::span<const std::int64_t>;

/// Rows in host memory, which the broken ones get wrong.
class Rows : public RowMemory {
 public:
  explicit Rows(const RowMemorySpec& spec)
      : spec_(spec), bytes_(spec.row_bytes()), host_(make_host_rows(spec, {})) {}
  void read(Ids ids, std::byte* out) const override { host_->read(ids, out); }
  void write(Ids ids, const std::byte* values) override { host_->write(ids, values); }
  void scan(Ids ids, std::byte* out) const override { host_->scan(ids, out); }
  void fill(Ids ids, const std::byte* values) override { host_->fill(ids, values); }
  void* query(std::string_view) override { return nullptr; }

 protected:
  RowMemorySpec spec_;
  std::size_t bytes_;
  std::unique_ptr<RowMemory> host_;
};

template <typename Memory>
class Base : public Tier {
 public:
  explicit Base(const Options&) {}
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    return std::make_unique<Memory>(spec);
  }
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    return static_cast<std::int64_t>(spec.row_bytes()) * spec.rows();
  }
  void* query(std::string_view) override { return nullptr; }
};

struct OnceUsed final : Rows {
  explicit OnceUsed(const RowMemorySpec& spec) : Rows(spec) {
    if (spec.rows() == 0) return;
    const std::vector<std::byte> left(bytes_, std::byte{1});
    host_->write({&spec.first, 1}, left.data());
  }
};
class UsesOldPages final : public Base<OnceUsed> {
 public:
  static constexpr ComponentInfo kInfo{.id = "uses_old_pages", .summary = "what was there before"};
  using Base::Base;
};

/// The row that was read last, at hand.
struct LastRow final : Rows {
  using Rows::Rows;
  void read(Ids ids, std::byte* out) const override {
    host_->read(ids, out);
    if (ids.size() != 1) return;
    if (ids[0] == id_) std::memcpy(out, row_.data(), bytes_);
    id_ = ids[0];
    row_.assign(out, out + bytes_);
  }
  void write(Ids ids, const std::byte* values) override {
    host_->write(ids, values);
    if (ids.size() == 1 && ids[0] == id_) row_.assign(values, values + bytes_);
  }
  mutable std::int64_t id_ = -1;
  mutable std::vector<std::byte> row_;
};
class ForgetsFills final : public Base<LastRow> {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_fills", .summary = "a copy that a fill passes by"};
  using Base::Base;
};

struct ShortIds final : Rows {
  using Rows::Rows;
  std::vector<std::int64_t> places(Ids ids) const {
    std::vector<std::int64_t> all;
    for (const std::int64_t id : ids)
      all.push_back(spec_.first + static_cast<std::uint32_t>(id) % spec_.rows());
    return all;
  }
  void read(Ids ids, std::byte* out) const override { host_->read(places(ids), out); }
  void write(Ids ids, const std::byte* values) override { host_->write(places(ids), values); }
  void scan(Ids ids, std::byte* out) const override { host_->read(places(ids), out); }
  void fill(Ids ids, const std::byte* values) override { host_->write(places(ids), values); }
};
class CutsIds final : public Base<ShortIds> {
 public:
  static constexpr ComponentInfo kInfo{.id = "cuts_ids", .summary = "ids of 32 bits"};
  using Base::Base;
};

class WantsRows final : public Base<Rows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "wants_rows", .summary = "refuses a rank without rows"};
  using Base::Base;
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    if (spec.rows() == 0) fail_config("a table without rows");
    return Base::allocate(spec);
  }
};

/// Lines of a write-back cache; `Counted` shows what each did.
struct Line {
  std::int64_t id = -1;
  bool dirty = false;
  std::vector<std::byte> row;
};
struct Faults {
  bool reads_clean = false;  ///< a read of a dirty row makes it clean
  bool scans_enter = false;  ///< whole passes go through the lines
  bool forgets_misses = false;
};
template <Faults kFaults>
struct Cache final : Rows, TierCounts {
  explicit Cache(const RowMemorySpec& spec) : Rows(spec), lines_(64) {}
  Line& line(std::int64_t id) const {
    Line& at = lines_[(id - spec_.first) % 64];
    at.id == id ? ++count_.hits : ++count_.misses;
    if (kFaults.forgets_misses && at.id != id) --count_.misses;
    if (at.id == id) return at;
    if (at.dirty) host_->write({&at.id, 1}, at.row.data());
    at.id = id;
    at.dirty = false;
    at.row.resize(bytes_);
    host_->read({&id, 1}, at.row.data());
    return at;
  }
  void read(Ids ids, std::byte* out) const override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Line& at = line(ids[i]);
      if (kFaults.reads_clean && ids.size() > 20) at.dirty = false;
      std::memcpy(out + i * bytes_, at.row.data(), bytes_);
      ++count_.reads;
    }
  }
  void write(Ids ids, const std::byte* values) override {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Line& at = line(ids[i]);
      at.dirty = true;
      std::memcpy(at.row.data(), values + i * bytes_, bytes_);
      ++count_.writes;
    }
  }
  void scan(Ids ids, std::byte* out) const override {
    if (kFaults.scans_enter) {
      const TierCount before = count_;
      read(ids, out);
      count_ = before;
      return;
    }
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const Line& at = lines_[(ids[i] - spec_.first) % 64];
      if (at.id == ids[i]) std::memcpy(out + i * bytes_, at.row.data(), bytes_);
      if (at.id != ids[i]) host_->read(ids.subspan(i, 1), out + i * bytes_);
    }
  }
  void fill(Ids ids, const std::byte* values) override {
    host_->write(ids, values);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      Line& at = lines_[(ids[i] - spec_.first) % 64];
      if (at.id == ids[i]) std::memcpy(at.row.data(), values + i * bytes_, bytes_);
    }
  }
  void* query(std::string_view id) override {
    return id == TierCounts::kId ? static_cast<TierCounts*>(this) : nullptr;
  }
  void counts(const std::function<void(const TierCount&)>& visit) const override {
    TierCount count = count_;
    count.tier = "cache";
    visit(count);
  }
  mutable TierCount count_;
  mutable std::vector<Line> lines_;
};
class LosesDirtyRows final : public Base<Cache<Faults{.reads_clean = true}>> {
 public:
  static constexpr ComponentInfo kInfo{.id = "loses_dirty_rows", .summary = "forgets that a row is newer"};
  using Base::Base;
};
class SavesEnter final : public Base<Cache<Faults{.scans_enter = true}>> {
 public:
  static constexpr ComponentInfo kInfo{.id = "saves_enter", .summary = "a scan fills the cache"};
  using Base::Base;
};
class CountsHitsAlone final : public Base<Cache<Faults{.forgets_misses = true}>> {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_hits_alone", .summary = "misses are not counted"};
  using Base::Base;
};

struct CountedScans final : Rows, TierCounts {
  using Rows::Rows;
  void read(Ids ids, std::byte* out) const override {
    host_->read(ids, out);
    reads_ += static_cast<std::int64_t>(ids.size());
  }
  void scan(Ids ids, std::byte* out) const override { read(ids, out); }
  void* query(std::string_view id) override {
    return id == TierCounts::kId ? static_cast<TierCounts*>(this) : nullptr;
  }
  void counts(const std::function<void(const TierCount&)>& visit) const override {
    TierCount count;
    count.tier = "counted";
    count.reads = reads_;
    visit(count);
  }
  mutable std::int64_t reads_ = 0;
};
class CountsSaves final : public Base<CountedScans> {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_saves",
                                       .summary = "a scan is a read; writes are not counted"};
  using Base::Base;
};

struct CutRows final : Rows {
  using Rows::Rows;
  void write(Ids ids, const std::byte* values) override {
    std::vector<std::byte> cut(values, values + ids.size() * bytes_);
    for (std::size_t at = 0; at < cut.size(); at += 4) cut[at] = std::byte{0};
    host_->write(ids, cut.data());
  }
};
class RoundsRows final : public Base<CutRows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "rounds_rows", .summary = "drops the low bits"};
  using Base::Base;
};

struct OneScratch final : Rows {
  using Rows::Rows;
  void write(Ids ids, const std::byte* values) override {
    std::vector<std::byte> row(bytes_);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      id_ = ids[i];
      std::memcpy(row.data(), values + i * bytes_, bytes_);
      if (i % 16 == 0) std::this_thread::yield();  // lets the others in, on one core too
      const std::int64_t id = id_;
      host_->write({&id, 1}, row.data());
    }
  }
  std::atomic<std::int64_t> id_ = 0;
};
class SharesItsScratch final : public Base<OneScratch> {
 public:
  static constexpr ComponentInfo kInfo{.id = "shares_its_scratch", .summary = "one row for all threads"};
  using Base::Base;
};

struct CopiedIds final : Rows {
  using Rows::Rows;
  void read(Ids ids, std::byte* out) const override {
    const std::vector<std::int64_t> own(ids.begin(), ids.end());
    host_->read(own, out);
  }
};
class CopiesIds final : public Base<CopiedIds> {
 public:
  static constexpr ComponentInfo kInfo{.id = "copies_ids", .summary = "allocates in every read"};
  using Base::Base;
};

struct Shared final : RowMemory {
  explicit Shared(std::shared_ptr<RowMemory> memory) : memory_(std::move(memory)) {}
  void read(Ids ids, std::byte* out) const override { memory_->read(ids, out); }
  void write(Ids ids, const std::byte* values) override { memory_->write(ids, values); }
  void scan(Ids ids, std::byte* out) const override { memory_->read(ids, out); }
  void fill(Ids ids, const std::byte* values) override { memory_->write(ids, values); }
  void* query(std::string_view) override { return nullptr; }
  std::shared_ptr<RowMemory> memory_;
};
/// By the table's name and the size of a row.
class ForgetsStates final : public Base<Rows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "forgets_states", .summary = "weights and state in one place"};
  using Base::Base;
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    std::shared_ptr<RowMemory>& memory = memories_[{std::string(spec.table), spec.width}];
    if (memory == nullptr) memory = make_host_rows(spec, {});
    return std::make_unique<Shared>(memory);
  }

 private:
  std::map<std::pair<std::string, std::int64_t>, std::shared_ptr<RowMemory>> memories_;
};

class CountsOnRoom final : public Base<Rows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "counts_on_room", .summary = "expects that memory is there"};
  using Base::Base;
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    if (spec.rows() > std::int64_t{1} << 40) throw std::length_error("vector::reserve");
    return Base::allocate(spec);
  }
};
class SaysNoTable final : public Base<Rows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "says_no_table", .summary = "an error without the table"};
  using Base::Base;
  std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) override {
    if (spec.rows() > std::int64_t{1} << 40) fail_run("out of memory");
    return Base::allocate(spec);
  }
};

/// Serves what a hint fetched, also after a write.
struct Fetched final : Rows, RowsAhead {
  using Rows::Rows;
  void ahead(std::int64_t, Ids ids) override {
    const std::lock_guard lock(mutex_);
    for (const std::int64_t id : ids.first(std::min<std::size_t>(ids.size(), 1))) {
      rows_[id].resize(bytes_);
      host_->read({&id, 1}, rows_[id].data());
    }
  }
  void read(Ids ids, std::byte* out) const override {
    const std::lock_guard lock(mutex_);
    host_->read(ids, out);
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto found = rows_.find(ids[i]);
      if (found != rows_.end()) std::memcpy(out + i * bytes_, found->second.data(), bytes_);
    }
  }
  void* query(std::string_view id) override {
    return id == RowsAhead::kId ? static_cast<RowsAhead*>(this) : nullptr;
  }
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::vector<std::byte>> rows_;
};
class BelievesHints final : public Base<Fetched> {
 public:
  static constexpr ComponentInfo kInfo{.id = "believes_hints", .summary = "keeps what it fetched ahead"};
  using Base::Base;
};

class TakesLessThanNothing final : public Base<Rows> {
 public:
  static constexpr ComponentInfo kInfo{.id = "takes_less_than_nothing", .summary = "bytes in 32 bits"};
  using Base::Base;
  std::int64_t host_bytes(const RowMemorySpec& spec) const override {
    return static_cast<std::int32_t>(static_cast<std::int64_t>(spec.row_bytes()) * spec.rows() * 5 / 8);
  }
};

/// Host memory is the device's, too, but not this copy of it.
struct Copied final : Rows, DeviceRows {
  explicit Copied(const RowMemorySpec& spec)
      : Rows(spec), copy_(static_cast<std::size_t>(spec.rows()) * bytes_) {}
  void* query(std::string_view id) override {
    return id == DeviceRows::kId ? static_cast<DeviceRows*>(this) : nullptr;
  }
  TensorView rows_on_device() override {
    return {copy_.data(), Shape{spec_.rows(), spec_.width}, spec_.dtype};
  }
  void wrote(Ids) override {}
  std::vector<std::byte> copy_;
};
class ShowsACopy final : public Base<Copied> {
 public:
  static constexpr ComponentInfo kInfo{.id = "shows_a_copy", .summary = "rows that nobody writes"};
  using Base::Base;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "broken.tier", .version = "1.0.0", .summary = "wrong tiers"}, UsesOldPages,
             ForgetsFills, CutsIds, WantsRows, LosesDirtyRows, SavesEnter, CountsHitsAlone, CountsSaves,
             RoundsRows, SharesItsScratch, CopiesIds, ForgetsStates, CountsOnRoom, SaysNoTable, BelievesHints,
             TakesLessThanNothing, ShowsACopy)
