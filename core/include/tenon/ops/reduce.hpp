// Operator families of a device for sums: reductions of tensors, and sums of lines along one dimension of a
// tensor, each weighted as a table says (interpolations, and what else a sparse matrix does along a
// dimension). Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/tensor.hpp>

#include <initializer_list>
#include <memory>
#include <vector>

TENON_ABI_BEGIN

/// Reductions in a fixed tree that does not depend on the number of threads.
class ReduceOps {
 public:
  static constexpr const char* kId = "tenon.device.reduce/1";
  virtual ~ReduceOps();
  virtual double sum(TensorView x) = 0;
  virtual double sum_of_squares(TensorView x) = 0;
  virtual double absolute_max(TensorView x) = 0;
  /// Index of the first element that is not finite, -1 if all are.
  virtual std::int64_t first_non_finite(TensorView x) = 0;
  /// out[columns] (+)= sum over rows of x[rows, columns]. scratch: sum_rows_scratch().
  virtual void sum_rows(TensorView x, TensorView out, bool accumulate, TensorView scratch) = 0;
  virtual std::size_t sum_rows_scratch(std::int64_t rows, std::int64_t columns, DType dtype) const = 0;
};

/// A line of x, and its weight in a sum.
struct LineTerm {
  std::int64_t column = 0;
  double weight = 1;
};

/// The sparse matrix S [rows, columns], made row after row; it is in host memory and may be freed once it is
/// prepared.
struct SparseAxisSpec {
  DType dtype = DType::kF32;  ///< of x, y and the arithmetic; or f64
  std::int64_t columns = 0;
  std::vector<LineTerm> terms;           ///< of all rows; a row may name a column more than once
  std::vector<std::int64_t> offsets{0};  ///< row r has the terms offsets[r] ... offsets[r + 1] - 1

  std::int64_t rows() const { return static_cast<std::int64_t>(offsets.size()) - 1; }
  void add_row(std::initializer_list<LineTerm> row) {
    terms.insert(terms.end(), row);
    offsets.push_back(static_cast<std::int64_t>(terms.size()));
  }
  /// Rounds to the dtype: for weights that are computed from each other.
  double rounded(double number) const { return dtype == DType::kF32 ? static_cast<float>(number) : number; }
};

/// A prepared S; running it allocates nothing. x: [outer, columns, inner], y: [outer, rows, inner], two
/// tensors. Weights are rounded to the dtype once. A sum begins with its first term and adds the others one
/// by one in their order, each product and each sum rounded; a line alone with the weight 1 is copied, and a
/// sum of nothing is 0.
class SparseAxisOp {
 public:
  virtual ~SparseAxisOp();
  /// y[o, r, i] = sum over the terms of row r of weight * x[o, column, i]
  virtual void forward(TensorView x, TensorView y, std::int64_t outer, std::int64_t inner) = 0;
  /// x[o, c, i] = sum over the terms of column c, rows ascending, of weight * y[o, row, i]
  virtual void adjoint(TensorView y, TensorView x, std::int64_t outer, std::int64_t inner) = 0;
};

class SparseAxisOps {
 public:
  static constexpr const char* kId = "tenon.device.lines/1";
  virtual ~SparseAxisOps();
  /// Throws Error(kConfig) for other dtypes, and for a table that contradicts itself.
  virtual std::unique_ptr<SparseAxisOp> prepare(const SparseAxisSpec& spec) = 0;
};

TENON_ABI_END
