// Row-sparse gradients of one executor: collected in the order of backward, duplicates summed in that order.
#pragma once

#include <tenon/parameter.hpp>

#include <span>
#include <utility>
#include <vector>

namespace tenon::graph {

class RowGradients {
 public:
  /// Forgets the last slot's rows; memory is kept.
  void clear();
  /// Copies `values` [ids.size(), width], f32 or f64 in host memory.
  void add(int parameter, std::span<const std::int64_t> ids, TensorView values);
  /// Multiplies everything added since clear().
  void scale(double factor);
  /// Unique ascending rows per parameter. Valid until clear() or add().
  std::span<const RowGradient> summed();

 private:
  struct Table {
    int parameter = 0;
    DType dtype = DType::kF32;
    std::int64_t width = 0;
    std::vector<std::int64_t> ids;
    std::vector<std::byte> values;
    std::vector<std::pair<std::int64_t, std::int64_t>> order, sorted;  ///< (id, place), ascending; scratch
    std::vector<std::int64_t> unique;
    std::vector<std::byte> sums;
    std::vector<std::uint32_t> counts;
  };
  static void sort(Table& table);
  template <typename Real>
  static void sum(Table& table);

  std::vector<Table> tables_;
  std::vector<RowGradient> result_;
};

}  // namespace tenon::graph
