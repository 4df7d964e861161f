// Sums over declared shapes. A table that is sharded over the replicas counts once, all else once per
// replica.
#include "run/memory_need.hpp"

#include "graph/memory_budget.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tenon::train {
namespace {

using graph::saturating_product;
using graph::saturating_sum;

constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

std::int64_t table_bytes(const ParameterSpec& spec, RowOptimizer* rows) {
  std::int64_t width = spec.shape[1];
  if (rows != nullptr && spec.trainable) {
    for (const RowStateSlot& slot : rows->row_slots()) width += slot.width == 0 ? spec.shape[1] : slot.width;
  }
  return dtype_bytes(spec.dtype, saturating_product(spec.shape[0], width));
}

std::int64_t parameter_bytes(const ParameterInfo& info, Optimizer& optimizer, int replicas) {
  const ParameterSpec& spec = info.spec;
  if (spec.role == Role::kRowTable) {
    auto* rows = static_cast<RowOptimizer*>(optimizer.query(RowOptimizer::kId));
    return saturating_product(table_bytes(spec, rows), is_cut(spec, kReplicaAxis) ? 1 : replicas);
  }
  const bool trained = spec.role == Role::kParameter && spec.trainable;
  const auto copies = trained ? 2 + static_cast<std::int64_t>(optimizer.slots().size()) : 1;
  return saturating_product(dtype_bytes(spec.dtype, info.local.elements()), copies * replicas);
}

}  // namespace

std::int64_t model_bytes(std::span<const ParameterInfo> parameters, Optimizer& optimizer, int replicas) {
  std::int64_t sum = 0;
  for (const ParameterInfo& info : parameters)
    sum = saturating_sum(sum, parameter_bytes(info, optimizer, replicas));
  return sum;
}

void require_memory(std::span<const ParameterInfo> parameters, Optimizer& optimizer, int replicas,
                    std::int64_t available) {
  const std::int64_t needed = model_bytes(parameters, optimizer, replicas);
  if (available <= 0 || needed <= available) return;
  std::vector<std::pair<std::int64_t, std::string>> terms;
  for (const ParameterInfo& info : parameters)
    terms.emplace_back(parameter_bytes(info, optimizer, replicas), info.spec.name);
  std::sort(terms.rbegin(), terms.rend());
  std::vector<std::string> largest;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, terms.size()); ++i) {
    largest.push_back(
        fmt::format("'{}' {:.2f} GiB", terms[i].second, static_cast<double>(terms[i].first) / kGiB));
  }
  fail_config(fmt::format(
      "the model needs {:.2f} GiB for weights, gradients and optimizer state in this process, and the "
      "machine "
      "has {:.2f} GiB; the largest: {}. Make the model smaller (for tables: a row cap), choose an optimizer "
      "with less state, or keep one copy of the tables over the replicas",
      static_cast<double>(needed) / kGiB, static_cast<double>(available) / kGiB, fmt::join(largest, ", ")));
}

}  // namespace tenon::train
