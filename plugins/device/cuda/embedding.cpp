// Gather and scatter of rows (family EmbeddingOps). Ids are checked before any row is read or written, which
// waits for the device once per call.
#include "common.hpp"
#include "device_common/embeddings.hpp"
#include "sums.hpp"

#include <tenon/kernels/cuda/elementwise.hpp>
#include <tenon/kernels/cuda/embedding.hpp>
#include <tenon/kernels/cuda/sort.hpp>

#include <limits>
#include <string>
#include <utility>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Ids and positions before and after a pass, then the places of digits.
std::size_t sort_bytes(std::int64_t ids) {
  return (4 * ids + bodies::kDigits * bodies::sort_tiles(ids)) * sizeof(std::int32_t);
}

class CudaEmbeddingOps final : public EmbeddingOps {
 public:
  explicit CudaEmbeddingOps(Queue& queue) : queue_(queue) {}

  void gather(TensorView table, TensorView ids, TensorView out, bool accumulate) override {
    constexpr const char* kWhere = "gather";
    const device_arguments::RowIds of(table, ids, kWhere);
    check_indices(queue_, of.id, of.count, 0, of.rows, kWhere, "ids");
    with_storage(out.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      using Body = bodies::Gathered<S>;
      const auto* const source = of.in_table<Arith<S>>(table, "table");
      S* const target = of.in_order<S>(out, "out");
      const std::int64_t n = of.count * of.width;
      if (n == 0) return;
      queue_.launch(kWhere, grid_for(n),
                    bodies::MapElements<S, Body>{
                        target, n, Body{source, of.id, of.width, accumulate ? target : nullptr}});
    });
  }

  void scatter_add(TensorView dy, TensorView ids, TensorView gradient, TensorView scratch) override {
    constexpr const char* kWhere = "scatter_add";
    const device_arguments::RowIds of(gradient, ids, kWhere);
    check_indices(queue_, of.id, of.count, 0, of.rows, kWhere, "ids");
    with_storage(dy.dtype, kWhere, [&](auto tag) {
      using S = typename decltype(tag)::type;
      const S* const source = of.in_order<S>(dy, "dy");
      auto* const target = of.in_table<Arith<S>>(gradient, "gradient");
      if (of.count * of.width == 0) return;
      const auto [sorted, positions] = sort(of.id, of.count, of.rows, scratch);
      queue_.launch(kWhere, grid_for(of.count * of.width),
                    bodies::ScatterSorted<S>{of.count, of.width, sorted, positions, source, target});
    });
  }

  std::size_t scatter_scratch(std::int64_t ids, std::int64_t) const override { return sort_bytes(ids); }

 private:
  /// Ids in ascending order, equal ones by position, and their positions; in `scratch`.
  std::pair<const std::int32_t*, const std::int32_t*> sort(const std::int32_t* ids, std::int64_t n,
                                                           std::int64_t rows, const TensorView& scratch) {
    constexpr const char* kWhere = "scatter_add";
    if (n > std::numeric_limits<std::int32_t>::max()) {
      device_arguments::refuse(kWhere,
                               std::to_string(n) + " ids, expected less than 2^31; use a smaller data.batch");
    }
    device_arguments::check_scratch_as(scratch, sort_bytes(n), kWhere, "scatter_scratch");
    auto* const memory = static_cast<std::int32_t*>(scratch.data);
    std::int32_t* const keys[] = {memory, memory + n};
    std::int32_t* const positions[] = {memory + 2 * n, memory + 3 * n};
    std::int32_t* const places = memory + 4 * n;
    const int passes = bodies::sort_passes(rows);
    const Grid grid = bodies::SortPass::grid(n);
    for (int pass = 0; pass < passes; ++pass) {
      const int from = (pass + 1) % 2, to = pass % 2;
      const bodies::SortPass step{n,
                                  pass * bodies::kDigitBits,
                                  pass == 0 ? ids : keys[from],
                                  pass == 0 ? nullptr : positions[from],
                                  keys[to],
                                  positions[to],
                                  places};
      queue_.launch(kWhere, grid, bodies::CountDigits{step});
      queue_.launch(kWhere, bodies::SumPlaces::mesh(),
                    bodies::SumPlaces{bodies::kDigits * grid.blocks, places});
      queue_.launch(kWhere, grid, bodies::MoveIds{step});
    }
    return {keys[(passes - 1) % 2], positions[(passes - 1) % 2]};
  }

  Queue& queue_;
};

}  // namespace

std::unique_ptr<EmbeddingOps> make_embedding_ops(Queue& queue) {
  return std::make_unique<CudaEmbeddingOps>(queue);
}

}  // namespace tenon::cuda
