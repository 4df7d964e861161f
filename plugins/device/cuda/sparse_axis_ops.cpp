// Weighted sums of lines (family SparseAxisOps): both tables, forward and adjoint, are in the device's
// memory.
#include "common.hpp"
#include "device_common/lines.hpp"
#include "queue.hpp"

#include <tenon/kernels/cuda/sparse_axis.hpp>

#include <string>

namespace tenon::cuda {
namespace {

using device_lines::kSparseAxisOp;

template <class T>
class DeviceTable {
 public:
  DeviceTable(Queue& queue, const device_lines::Table<T>& table)
      : rows(table.rows), columns(table.columns), offsets_(queue), column_of_(queue), weights_(queue) {
    offsets_.set(table.offsets);
    column_of_.set(table.column_of);
    weights_.set(table.weights);
  }
  kernels::cuda::SumLines<T> sum(const T* x, T* y, std::int64_t outer, std::int64_t inner) const {
    return {offsets_.template at<std::int32_t>(),
            column_of_.template at<std::int32_t>(),
            weights_.template at<T>(),
            x,
            y,
            outer,
            columns,
            rows,
            inner};
  }

  const std::int64_t rows, columns;

 private:
  DeviceNumbers offsets_, column_of_, weights_;
};

template <class T>
class CudaSparseAxisOp final : public SparseAxisOp {
 public:
  CudaSparseAxisOp(Queue& queue, const device_lines::Table<T>& table)
      : queue_(queue), forward_(queue, table), adjoint_(queue, device_lines::transposed(table)) {}

  void forward(TensorView x, TensorView y, std::int64_t outer, std::int64_t inner) override {
    run(forward_, x, "x", y, "y", outer, inner);
  }
  void adjoint(TensorView y, TensorView x, std::int64_t outer, std::int64_t inner) override {
    run(adjoint_, y, "y", x, "x", outer, inner);
  }

 private:
  void run(const DeviceTable<T>& table, const TensorView& from, const char* from_name, const TensorView& to,
           const char* to_name, std::int64_t outer, std::int64_t inner) {
    const T* in = checked<T>(from, outer * table.columns * inner, kSparseAxisOp, from_name);
    T* out = checked<T>(to, outer * table.rows * inner, kSparseAxisOp, to_name);
    if (!to.empty()) queue_.launch(kSparseAxisOp, grid_for(to.elements()), table.sum(in, out, outer, inner));
  }

  Queue& queue_;
  DeviceTable<T> forward_, adjoint_;
};

class CudaSparseAxisOps final : public SparseAxisOps {
 public:
  explicit CudaSparseAxisOps(Queue& queue) : queue_(queue) {}

  std::unique_ptr<SparseAxisOp> prepare(const SparseAxisSpec& spec) override {
    device_lines::check(spec);
    return with_arithmetic(spec.dtype, kSparseAxisOp, [&](auto tag) -> std::unique_ptr<SparseAxisOp> {
      using T = typename decltype(tag)::type;
      return std::make_unique<CudaSparseAxisOp<T>>(queue_, device_lines::table_of<T>(spec));
    });
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<SparseAxisOps> make_sparse_axis_ops(Queue& queue) {
  return std::make_unique<CudaSparseAxisOps>(queue);
}

}  // namespace tenon::cuda
