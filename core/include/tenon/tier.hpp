// Contract `tier/1`: where the rows of tables live: host memory, a device, files, memory that outlives the
// process. The core keeps what a RowTable is (ids, owned rows, versions) and asks a tier for memory alone.
#pragma once

#include <tenon/parameter.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class Device;

/// The rows of one table, or of one state of the optimizer beside it, that a rank owns. Views are valid
/// during the call that gets this.
struct RowMemorySpec {
  std::string_view table;            ///< name of the parameter
  std::string_view state = {};       ///< "optimizer.sum"; empty: the weights
  std::int64_t first = 0, last = 0;  ///< owned rows are [first, last)
  std::int64_t width = 0;            ///< elements of a row
  DType dtype = DType::kF32;
  // Of the run; empty where a table is made without one.
  Device* device = nullptr;
  std::string_view run =
      {};  ///< its folder, absolute: the name of what outlives the process; empty: nothing may
  int rank = 0;
  std::uint64_t seed = 0;  ///< of random rounding
  bool resumes = false;    ///< the run goes on from a checkpoint: rows that an earlier process left may serve

  std::size_t row_bytes() const { return dtype_bytes(dtype, width); }
  std::int64_t rows() const { return last - first; }
  /// "emb.0.weight", "optimizer.sum of emb.0.weight": for messages.
  std::string name() const;
};

/// Memory of rows. Ids are global and among the owned ones. Threads as for RowTable: reads at once, writes of
/// different rows at once, and of one row only under Hogwild. Values are in host memory. read() and write()
/// are called in every slot and allocate nothing.
class RowMemory {
 public:
  virtual ~RowMemory();
  /// Copies rows to `out`, one after another: the newest values, wherever they are.
  virtual void read(std::span<const std::int64_t> ids, std::byte* out) const = 0;
  virtual void write(std::span<const std::int64_t> ids, const std::byte* values) = 0;
  /// As read() and write(); caches and their counts stay as they were: a save, a hash, a restore or an
  /// evaluation passes by once.
  virtual void scan(std::span<const std::int64_t> ids, std::byte* out) const = 0;
  virtual void fill(std::span<const std::int64_t> ids, const std::byte* values) = 0;
  /// RowsAhead, TierCounts, DeviceRows, KeptRows; null for others.
  virtual void* query(std::string_view interface_id) = 0;
};

class Tier {
 public:
  using Interface = Tier;
  static constexpr const char* kKind = "tier/1";
  virtual ~Tier();
  /// Zero everywhere. Throws Error(kConfig) where this tier cannot hold such rows, and Error(kRun) that says
  /// what was asked for where there is no room. The tier outlives it.
  virtual std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) = 0;
  /// Bytes of host memory that these rows will take once all are written.
  virtual std::int64_t host_bytes(const RowMemorySpec& spec) const = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Offered by RowTable::query and RowMemory::query where something is gained by knowing rows early.
class RowsAhead {
 public:
  static constexpr const char* kId = "tenon.row_table.ahead/1";
  virtual ~RowsAhead();
  /// Slot `slot` will read these rows: a hint, at most one call at a time, beside reads and writes, and not
  /// while evaluations, saves or restores go on. Owned rows, unique and ascending. Returns when the rows are
  /// near or there is no room for them. What a slot was told of is kept until its rows have been written or a
  /// hint for a slot after the next one comes. Where replicas read rows on request, each replica's part of a
  /// slot is a call of its own, and slots need not ascend from call to call. Never changes a value.
  virtual void ahead(std::int64_t slot, std::span<const std::int64_t> ids) = 0;
};

/// What one level of a tier did since it was made. A level without a cache has neither hits nor misses.
struct TierCount {
  std::string tier;                    ///< "cached/dram": the components from the outermost on
  std::int64_t reads = 0, writes = 0;  ///< rows that were asked of this level
  std::int64_t hits = 0, misses = 0;   ///< of both, in a cache
  std::int64_t ahead = 0;              ///< rows fetched ahead of their slot
  std::int64_t evictions = 0, write_backs = 0;
  std::int64_t bytes_in = 0, bytes_out = 0;  ///< moved from and to the next level
  double stall_seconds = 0;                  ///< in which a read or a write waited for the next level
};

/// Offered by RowTable::query and RowMemory::query. Any thread.
class TierCounts {
 public:
  static constexpr const char* kId = "tenon.row_table.counts/1";
  virtual ~TierCounts();
  /// From the outermost level on.
  virtual void counts(const std::function<void(const TierCount&)>& visit) const = 0;
};

/// Service of the host, for observers: what the tiers of this rank's tables counted.
/// host.query(TableCounts::kId), from RowObserver::on_tables on; null before, and outside runs. Any thread.
class TableCounts {
 public:
  static constexpr const char* kId = "tenon.table_counts/1";
  virtual ~TableCounts();
  /// The levels of one table after another, its weights before the state beside them, each from the outermost
  /// on; what a tier that counts nothing holds is left out. `state`: "optimizer.sum"; empty: the weights.
  virtual void visit(const std::function<void(int parameter, std::string_view state, const TierCount& level)>&
                         each) const = 0;
};

/// Offered by RowTable::query and RowMemory::query where all owned rows lie in memory of the run's device, so
/// that operators reach them without the host.
class DeviceRows {
 public:
  static constexpr const char* kId = "tenon.row_table.device/1";
  virtual ~DeviceRows();
  /// [owned rows, width], the same for the table's life.
  virtual TensorView rows_on_device() = 0;
  /// Operators wrote these rows: versions grow.
  virtual void wrote(std::span<const std::int64_t> ids) = 0;
};

/// Offered by RowTable::query and RowMemory::query where rows outlive the process. Called between slots,
/// while nothing writes; committed() at any time. A checkpoint is named by its slot and by a number of its
/// attempt.
class KeptRows {
 public:
  static constexpr const char* kId = "tenon.row_memory.kept/1";
  virtual ~KeptRows();
  /// The rows are those of an earlier process, and go_back() was not called yet.
  virtual bool kept() const = 0;
  /// A checkpoint takes the rows as they are now.
  virtual void mark(std::int64_t slot, std::uint64_t attempt) = 0;
  /// The checkpoint of `slot` is complete: nothing goes back to earlier ones.
  virtual void committed(std::int64_t slot) = 0;
  /// Brings the rows back to what they were at this mark, from where writes count again. `lost`: rows that a
  /// write left torn, in ascending order, to be filled by the caller. False: that is not possible, and all
  /// rows are to be filled.
  virtual bool go_back(std::int64_t slot, std::uint64_t attempt, std::vector<std::int64_t>& lost) = 0;
  /// The run is complete: the rows end with the process.
  virtual void end() = 0;
};

/// Where the rows of a run's tables live; outlives the tables.
class RowPlaces {
 public:
  virtual ~RowPlaces();
  /// Memory for these rows; null: host memory of the core's own. What the spec says of the run is still
  /// empty.
  virtual std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) = 0;
};

/// How the core's own rows lie in host memory.
struct HostPages {
  bool huge = true;  ///< in huge pages where the system has them
  /// Called once with the pages before any is touched: says to the system where they shall lie.
  std::function<void(std::span<std::byte>)> prepare = {};
};
/// Zeroed pages that take no memory before they are written. Throws Error(kRun) where there is no room.
std::unique_ptr<RowMemory> make_host_rows(const RowMemorySpec& spec, const HostPages& pages);

TENON_ABI_END
