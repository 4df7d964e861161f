// Parameters in memory: backward-finish order, arenas, and the shard of a rank of the mesh. Tables by rows:
// the plain row table, with all owned rows in host memory, walking a table that is too large to copy whole,
// and row-sparse gradients.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/tensor.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::graph {

/// A declaration together with what the graph knows about it.
struct Declared {
  ParameterSpec spec;
  int users = 0;         ///< layers that add to its gradient
  int finish_order = 0;  ///< position in backward-finish order; never finished ones come last
};

/// Kind of the parameters of an arena; only trained ones have gradients.
enum class ArenaUse : std::uint8_t { kTrained, kFrozen, kBuffer };
ArenaUse arena_use(const ParameterSpec& spec);

/// Assigns arenas and offsets. Arenas are keyed by (use, dtype), each parameter starts on 64
/// bytes, and within an arena parameters follow the order of backward-finish.
std::vector<ParameterInfo> lay_out(const std::vector<Declared>& declared, const MeshPlace& place);

/// Elements of an arena, padding included.
std::int64_t arena_elements(const std::vector<ParameterInfo>& parameters, int arena);
DType arena_dtype(const std::vector<ParameterInfo>& parameters, int arena);
ArenaUse arena_use(const std::vector<ParameterInfo>& parameters, int arena);
int arena_count(const std::vector<ParameterInfo>& parameters);

/// Owned rows [first, last) of `rows`; zero at first.
std::unique_ptr<RowTable> make_row_table(std::string name, DType dtype, std::int64_t rows, std::int64_t width,
                                         std::int64_t first, std::int64_t last);

/// Consecutive owned rows and host memory of their size, whose content the body reads or writes.
using RowChunk = std::function<void(std::span<const std::int64_t> ids, TensorView rows)>;
/// Calls body for all owned rows in ascending order, a few MiB at a time.
void for_each_chunk(const RowTable& table, const RowChunk& body);

/// The same memory as a flat tensor of f32 or f64; other types as they are. Updates, norms and scales treat
/// complex numbers as pairs of reals.
inline TensorView as_reals(TensorView view) {
  if (!dtype_is_complex(view.dtype)) return view;
  view.dtype = view.dtype == DType::kC64 ? DType::kF32 : DType::kF64;
  view.shape = Shape{view.elements() * 2};
  return view;
}

/// One executor's, collected in the order of backward, duplicates summed in that order.
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
