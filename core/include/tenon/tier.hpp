// Contract `tier/1`: where the rows of tables live: host memory, a device, files, another machine. The core
// keeps what a RowTable is (ids, owned rows, versions) and asks a tier for memory alone. No run names a tier
// yet.
#pragma once

#include <tenon/abi.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

/// Memory of the rows of one table that a rank owns. Ids are global and among them. Threads as for RowTable:
/// reads at once, writes of different rows at once, and of one row only under Hogwild. Values are in host
/// memory. read() and write() are called in every slot and allocate nothing.
class RowMemory {
 public:
  virtual ~RowMemory();
  /// Copies rows to `out`, one after another: the newest values, wherever they are.
  virtual void read(std::span<const std::int64_t> ids, std::byte* out) const = 0;
  virtual void write(std::span<const std::int64_t> ids, const std::byte* values) = 0;
};

struct RowMemorySpec {
  std::string_view table;            ///< for messages; valid during the call
  std::int64_t first = 0, last = 0;  ///< owned rows are [first, last)
  std::size_t row_bytes = 0;
};

class Tier {
 public:
  using Interface = Tier;
  static constexpr const char* kKind = "tier/1";
  virtual ~Tier();
  /// Zero everywhere. Throws Error(kRun) that says what was asked for where there is no room. The tier
  /// outlives it.
  virtual std::unique_ptr<RowMemory> allocate(const RowMemorySpec& spec) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

TENON_ABI_END
