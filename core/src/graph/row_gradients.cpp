// Duplicates are summed in the order in which they were added, so the sum does not depend on sorting. Tables
// are independent of each other and share the threads.
#include "graph/row_gradients.hpp"

#include <tenon/error.hpp>
#include <tenon/parallel.hpp>
#include <tenon/tensor_values.hpp>

#include <algorithm>
#include <array>
#include <cstring>

namespace tenon::graph {

void RowGradients::clear() {
  for (Table& table : tables_) {
    table.ids.clear();
    table.values.clear();
  }
}

void RowGradients::add(int parameter, std::span<const std::int64_t> ids, TensorView values) {
  if (values.dtype != DType::kF32 && values.dtype != DType::kF64) {
    fail_plugin("row gradients must be f32 or f64, found " + std::string(dtype_name(values.dtype)));
  }
  auto found =
      std::find_if(tables_.begin(), tables_.end(), [&](const Table& t) { return t.parameter == parameter; });
  if (found == tables_.end()) {
    tables_.push_back({});
    found = std::prev(tables_.end());
    found->parameter = parameter;
  }
  found->dtype = values.dtype;
  found->width = ids.empty() ? found->width : values.elements() / static_cast<std::int64_t>(ids.size());
  const std::span<std::byte> raw = values.raw();
  make_room(found->ids, found->ids.size() + ids.size(), 0);
  make_room(found->values, found->values.size() + raw.size(), 0);
  found->ids.insert(found->ids.end(), ids.begin(), ids.end());
  found->values.insert(found->values.end(), raw.begin(), raw.end());
}

void RowGradients::scale(double factor) {
  for (Table& table : tables_) {
    if (table.dtype == DType::kF64) {
      auto* values = reinterpret_cast<double*>(table.values.data());
      for (std::size_t i = 0; i < table.values.size() / sizeof(double); ++i) values[i] *= factor;
    } else {
      auto* values = reinterpret_cast<float*>(table.values.data());
      for (std::size_t i = 0; i < table.values.size() / sizeof(float); ++i)
        values[i] = static_cast<float>(values[i] * factor);
    }
  }
}

/// Stable counting sort by id, least significant digit first: it keeps equal ids in the order of arrival, and
/// ids are as many as rows of a batch while digits are two or three.
void RowGradients::sort(Table& table) {
  constexpr int kDigitBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kDigitBits;
  const std::size_t count = table.ids.size();
  make_room(table.order, count, 0);
  make_room(table.sorted, count, 0);
  table.order.resize(count);
  table.sorted.resize(count);
  std::uint64_t largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    table.order[i] = {table.ids[i], static_cast<std::int64_t>(i)};
    largest = std::max(largest, static_cast<std::uint64_t>(table.ids[i]));
  }
  for (int shift = 0; shift < 64 && largest >> shift != 0; shift += kDigitBits) {
    std::array<std::uint32_t, kDigits + 1> begin{};
    const auto digit = [shift](std::int64_t id) {
      return static_cast<std::size_t>(static_cast<std::uint64_t>(id) >> shift) & (kDigits - 1);
    };
    for (const auto& entry : table.order) ++begin[digit(entry.first) + 1];
    for (std::size_t d = 0; d < kDigits; ++d) begin[d + 1] += begin[d];
    for (const auto& entry : table.order) table.sorted[begin[digit(entry.first)]++] = entry;
    std::swap(table.order, table.sorted);
  }
}

template <typename Real>
void RowGradients::sum(Table& table) {
  sort(table);
  const std::size_t width = table.width;
  table.unique.clear();
  table.counts.clear();
  make_room(table.unique, table.ids.size(), 0);
  make_room(table.counts, table.ids.size(), 0);
  make_room(table.sums, table.values.size(), 0);
  table.sums.resize(table.values.size());
  const auto* values = reinterpret_cast<const Real*>(table.values.data());
  auto* sums = reinterpret_cast<Real*>(table.sums.data());
  for (const auto& [id, index] : table.order) {
    const Real* row = values + static_cast<std::size_t>(index) * width;
    if (!table.unique.empty() && table.unique.back() == id) {
      ++table.counts.back();
      Real* out = sums + (table.unique.size() - 1) * width;
      for (std::size_t i = 0; i < width; ++i) out[i] += row[i];
    } else {
      table.unique.push_back(id);
      table.counts.push_back(1);
      std::memcpy(sums + (table.unique.size() - 1) * width, row, width * sizeof(Real));
    }
  }
}

std::span<const RowGradient> RowGradients::summed() {
  result_.resize(tables_.size());
  parallel_for(static_cast<std::int64_t>(tables_.size()), 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t t = begin; t < end; ++t) {
      Table& table = tables_[t];
      if (table.dtype == DType::kF64) {
        sum<double>(table);
      } else {
        sum<float>(table);
      }
      TensorView values;
      values.data = table.sums.data();
      values.dtype = table.dtype;
      values.shape = Shape{static_cast<std::int64_t>(table.unique.size()), table.width};
      result_[t] = {table.parameter, table.unique, values, table.counts};
    }
  });
  return result_;
}

}  // namespace tenon::graph
