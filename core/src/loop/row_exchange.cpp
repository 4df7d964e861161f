// Two all-to-alls per slot: how many rows of each table, then the rows. Buffers only grow, to twice what a
// slot needs: rows differ from slot to slot, and a steady one must not ask the heap.
#include "loop/row_exchange.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/tensor_values.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenon::train {
namespace {

std::vector<std::int64_t> replica_offsets(const ParameterSpec& spec) {
  for (const DimSharding& sharding : spec.sharding) {
    if (sharding.axes != std::vector{kReplicaAxis}) continue;
    if (sharding.dim != 0 || spec.sharding.size() > 1) {
      fail_config(fmt::format(
          "row table '{}' must be sharded over the replicas by rows, and along no other axis", spec.name));
    }
    return sharding.offsets;
  }
  return {};
}

template <typename T>
T load(const std::byte* from, std::int64_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  return value;
}

/// Rows of a table that there is room for from the beginning: a few rows may become several times as many.
constexpr std::size_t kLeastRows = 64;

}  // namespace

RowExchange::RowExchange(RankReplica& replica, bool shared, bool on_request) : replicas_(replica.replicas()) {
  if (replicas_ == 1) return;
  for (const ParameterInfo& info : replica.live().parameters()) {
    if (info.spec.role != Role::kRowTable) continue;
    Table table;
    table.parameter = info.index;
    table.width = info.spec.shape[1];
    table.dtype = info.spec.dtype;
    table.offsets = replica_offsets(info.spec);
    sharded_ |= !table.offsets.empty();
    if (!info.spec.trainable) continue;
    if (table.offsets.empty() && !shared) {
      fail_config(fmt::format(
          "row table '{}' is replicated, but under this sync strategy replicas update alone and rows are "
          "never "
          "averaged, so the copies would drift apart. Keep one copy over the replicas (for embedding_bag: "
          "placement = \"rows\" or \"tables\"), or use a strategy that shares gradients in every step",
          info.spec.name));
    }
    if (!on_request) tables_.push_back(std::move(table));
  }
  if (tables_.empty()) return;
  group_ =
      replica.open("rows", Purpose::kGradient);  // its own: a strategy may leave transfers on the group's
  const std::size_t replicas = replicas_;
  rows_out_.resize(replicas * tables_.size());
  rows_in_.resize(rows_out_.size());
  tables_each_.assign(replicas, static_cast<std::int64_t>(tables_.size()));
  bytes_out_.resize(replicas);
  bytes_in_.resize(replicas);
  parts_.resize(rows_out_.size());
}

void RowExchange::pack(std::span<const RowGradient> mine) {
  out_.clear();
  std::fill(rows_out_.begin(), rows_out_.end(), 0);
  for (int to = 0; to < replicas_; ++to) {
    const std::size_t begin = out_.size();
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      const Table& table = tables_[t];
      const auto found = std::find_if(mine.begin(), mine.end(), [&](const RowGradient& rows) {
        return rows.parameter == table.parameter;
      });
      if (found == mine.end() || found->ids.empty()) continue;
      auto first = found->ids.begin(), last = found->ids.end();
      if (!table.offsets.empty()) {
        const std::size_t owner = to;
        first = std::lower_bound(found->ids.begin(), found->ids.end(), table.offsets[owner]);
        last = std::lower_bound(first, found->ids.end(), table.offsets[owner + 1]);
      }
      const std::size_t at = first - found->ids.begin();
      const std::size_t rows = last - first;
      rows_out_[static_cast<std::size_t>(to) * tables_.size() + t] = static_cast<std::int64_t>(rows);
      const auto append = [&](const void* data, std::size_t bytes) {
        const auto* from = static_cast<const std::byte*>(data);
        out_.insert(out_.end(), from, from + bytes);
      };
      append(found->ids.data() + at, rows * sizeof(std::int64_t));
      append(found->counts.data() + at, rows * sizeof(std::uint32_t));
      append(static_cast<const std::byte*>(found->values.data) + at * table.row_bytes(),
             rows * table.row_bytes());
    }
    bytes_out_[to] = static_cast<std::int64_t>(out_.size() - begin);
  }
  if (out_.capacity() < out_.size() + out_.size() / 2) out_.reserve(2 * out_.size());
}

void RowExchange::transfer() {
  group_->wait(group_->start_all_to_all(flat_view(rows_out_, DType::kI64), tables_each_,
                                        flat_view(rows_in_, DType::kI64), tables_each_));
  std::size_t total = 0;
  for (std::size_t from = 0; from < bytes_in_.size(); ++from) {
    std::size_t bytes = 0;
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      bytes += static_cast<std::size_t>(rows_in_[from * tables_.size() + t]) *
               (sizeof(std::int64_t) + sizeof(std::uint32_t) + tables_[t].row_bytes());
    }
    bytes_in_[from] = static_cast<std::int64_t>(bytes);
    total += bytes;
  }
  resize_with_room(in_, total, 0);
  group_->wait(group_->start_all_to_all(flat_view(out_, DType::kU8), bytes_out_, flat_view(in_, DType::kU8),
                                        bytes_in_));
  const std::byte* at = in_.data();
  for (std::size_t from = 0; from < bytes_in_.size(); ++from) {
    for (std::size_t t = 0; t < tables_.size(); ++t) {
      Packed part;
      part.rows = rows_in_[from * tables_.size() + t];
      const std::size_t rows = part.rows;
      part.ids = at;
      part.counts = part.ids + rows * sizeof(std::int64_t);
      part.values = part.counts + rows * sizeof(std::uint32_t);
      at = part.values + rows * tables_[t].row_bytes();
      parts_[t * bytes_in_.size() + from] = part;
    }
  }
}

template <typename Real>
void RowExchange::sum(Table& table, std::span<const Packed> parts) {
  const std::size_t width = table.width;
  std::int64_t room = 0;
  for (const Packed& part : parts) room += part.rows;
  resize_with_room(table.ids, static_cast<std::size_t>(room), kLeastRows);
  resize_with_room(table.counts, table.ids.size(), kLeastRows);
  std::fill(table.counts.begin(), table.counts.end(), 0);
  resize_with_room(table.values, table.ids.size() * table.row_bytes(), kLeastRows * table.row_bytes());
  auto* values = reinterpret_cast<Real*>(table.values.data());
  const Real mean = Real{1} / static_cast<Real>(replicas_);
  std::vector<std::int64_t>& next = table.next;
  next.assign(parts.size(), 0);
  std::size_t rows = 0;
  while (true) {
    std::int64_t id = INT64_MAX;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (next[p] < parts[p].rows) id = std::min(id, load<std::int64_t>(parts[p].ids, next[p]));
    }
    if (id == INT64_MAX) break;
    table.ids[rows] = id;
    Real* out = values + rows * width;
    bool first = true;
    for (std::size_t p = 0; p < parts.size(); ++p) {
      if (next[p] >= parts[p].rows || load<std::int64_t>(parts[p].ids, next[p]) != id) continue;
      table.counts[rows] += load<std::uint32_t>(parts[p].counts, next[p]);
      for (std::size_t i = 0; i < width; ++i) {
        const Real value = load<Real>(parts[p].values, next[p] * table.width + static_cast<std::int64_t>(i));
        out[i] = first ? value : out[i] + value;
      }
      first = false;
      ++next[p];
    }
    for (std::size_t i = 0; i < width; ++i) out[i] *= mean;
    ++rows;
  }
  table.ids.resize(rows);
  table.counts.resize(rows);
}

void RowExchange::merge(Table& table, std::span<const Packed> parts) {
  if (table.dtype == DType::kF64) {
    sum<double>(table, parts);
  } else {
    sum<float>(table, parts);
  }
}

std::span<const RowGradient> RowExchange::run(std::span<const RowGradient> mine) {
  pack(mine);
  transfer();
  const std::size_t replicas = replicas_;
  result_.resize(tables_.size());
  parallel_for(static_cast<std::int64_t>(tables_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t t = begin; t < static_cast<std::size_t>(end); ++t) {
      Table& table = tables_[t];
      merge(table, std::span<const Packed>(parts_).subspan(t * replicas, replicas));
      TensorView values;
      values.data = table.values.data();
      values.dtype = table.dtype;
      values.shape = Shape{static_cast<std::int64_t>(table.ids.size()), table.width};
      result_[t] = {table.parameter, table.ids, values, table.counts};
    }
  });
  return result_;
}

}  // namespace tenon::train
