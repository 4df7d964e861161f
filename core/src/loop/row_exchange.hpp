// Sends row gradients to the replicas that update the rows. Layers produce them where the samples are, for
// any row; a table that is sharded over the replicas is updated at each row's owner, a replicated one on
// every replica. Sums run over the replicas in ascending order, so all placements of a table give the same
// bits.
#pragma once

#include "loop/replica.hpp"

#include <tenon/parameter.hpp>
#include <tenon/transport.hpp>

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

namespace tenon::train {

class RowExchange {
 public:
  /// `shared`: replicas hold equal weights. `on_request`: rows travel elsewhere (row_client.hpp). Throws
  /// Error(kConfig) for tables that no replica could keep right: replicated ones in replicas that update
  /// alone.
  RowExchange(RankReplica& replica, bool shared, bool on_request);

  /// Whether rows travel at all.
  bool active() const { return !tables_.empty(); }
  /// Whether some table exists once, its rows on the replicas.
  bool sharded() const { return sharded_; }
  /// Replaces this replica's gradients (unique ascending ids of any rows) by the mean over the replicas of
  /// the rows that this rank updates; counts are summed. Collective over the replicas. Valid until the next
  /// call.
  std::span<const RowGradient> run(std::span<const RowGradient> mine);

 private:
  struct Table {
    int parameter = 0;
    std::int64_t width = 0;
    DType dtype = DType::kF32;
    std::vector<std::int64_t> offsets;  ///< first row of each replica; empty = replicated
    std::vector<std::int64_t> ids;
    std::vector<std::uint32_t> counts;
    std::vector<std::byte> values;
    std::vector<std::int64_t> next;  ///< of each replica's rows, the first that is not merged
    std::size_t row_bytes() const { return dtype_bytes(dtype, width); }
  };
  /// Rows of one table in a message: ids, counts and values, one after another.
  struct Packed {
    const std::byte *ids = nullptr, *counts = nullptr, *values = nullptr;
    std::int64_t rows = 0;
  };

  void pack(std::span<const RowGradient> mine);
  void transfer();
  void merge(Table& table, std::span<const Packed> parts);
  template <typename Real>
  void sum(Table& table, std::span<const Packed> parts);

  int replicas_;
  bool sharded_ = false;
  std::unique_ptr<Communicator> group_;
  std::vector<Table> tables_;
  std::vector<std::int64_t> rows_out_, rows_in_;    ///< [replicas, tables]
  std::vector<std::int64_t> tables_each_;           ///< per replica: the number of tables
  std::vector<std::int64_t> bytes_out_, bytes_in_;  ///< per replica
  std::vector<std::byte> out_, in_;
  std::vector<Packed> parts_;  ///< [tables, replicas]
  std::vector<RowGradient> result_;
};

}  // namespace tenon::train
