// Weighted sums of lines (family SparseAxisOps): one pass over the result, a few terms at a time. Lines are
// shared among threads, and one thread computes each of them.
#include "common.hpp"
#include "device_common/lines.hpp"

namespace tenon::cpu {
namespace {

using device_lines::Table;

/// Terms that one pass over a line adds up.
constexpr std::int64_t kTermsPerPass = 4;

/// Terms of one row.
template <class T>
struct Row {
  const std::int32_t* columns;
  const T* weights;
  std::int64_t terms;
};

/// The sum of a row over lines of one element.
template <class T>
T sum_element(const Row<T>& row, const T* plane) {
  if (row.terms == 0) return 0;
  T sum = row.weights[0] * plane[row.columns[0]];
  for (std::int64_t e = 1; e < row.terms; ++e) sum += row.weights[e] * plane[row.columns[e]];
  return sum;
}

/// line (+)= kTerms terms from `first` on, one after the other.
template <int kTerms, class T>
void add_terms(const Row<T>& row, std::int64_t first, const T* plane, std::int64_t inner,
               T* __restrict line) {
  const T* from[kTerms];
  T weight[kTerms];
  for (int t = 0; t < kTerms; ++t) {
    from[t] = plane + row.columns[first + t] * inner;
    weight[t] = row.weights[first + t];
  }
  const auto sum = [&](T begun, int t, std::int64_t i) {
    for (; t < kTerms; ++t) begun += weight[t] * from[t][i];
    return begun;
  };
  if (first == 0) {
    for (std::int64_t i = 0; i < inner; ++i) line[i] = sum(weight[0] * from[0][i], 1, i);
  } else {
    for (std::int64_t i = 0; i < inner; ++i) line[i] = sum(line[i], 0, i);
  }
}

/// The sum of one or more terms.
template <class T>
void sum_terms(const Row<T>& row, const T* plane, std::int64_t inner, T* line) {
  for (std::int64_t first = 0; first < row.terms; first += kTermsPerPass) {
    const std::int64_t terms = row.terms - first;
    if (terms == 1) {
      add_terms<1>(row, first, plane, inner, line);
    } else if (terms == 2) {
      add_terms<2>(row, first, plane, inner, line);
    } else if (terms == 3) {
      add_terms<3>(row, first, plane, inner, line);
    } else {
      add_terms<4>(row, first, plane, inner, line);
    }
  }
}

/// The sum of a row over lines of several elements.
template <class T>
void sum_line(const Row<T>& row, const T* plane, std::int64_t inner, T* line) {
  if (row.terms == 2) {
    const T *const a = plane + row.columns[0] * inner, *const b = plane + row.columns[1] * inner;
    const T p = row.weights[0], q = row.weights[1];
    for (std::int64_t i = 0; i < inner; ++i) line[i] = p * a[i] + q * b[i];
  } else if (row.terms == 1 && row.weights[0] == 1) {
    std::copy_n(plane + row.columns[0] * inner, inner, line);
  } else if (row.terms == 0) {
    std::fill_n(line, inner, T{0});
  } else {
    sum_terms(row, plane, inner, line);
  }
}

template <class T>
void sum_lines(const Table<T>& table, const T* x, T* y, std::int64_t outer, std::int64_t inner) {
  parallel_for(outer * table.rows, row_block(inner), [&](std::int64_t begin, std::int64_t end) {
    const std::int32_t *const offsets = table.offsets.data(), *const columns = table.column_of.data();
    const T* const weights = table.weights.data();
    std::int64_t r = begin % table.rows;
    const T* plane = x + begin / table.rows * table.columns * inner;
    for (T* line = y + begin * inner; line != y + end * inner; line += inner) {
      const Row<T> row{columns + offsets[r], weights + offsets[r], offsets[r + 1] - offsets[r]};
      if (inner == 1) {
        *line = sum_element(row, plane);
      } else {
        sum_line(row, plane, inner, line);
      }
      if (++r == table.rows) r = 0, plane += table.columns * inner;
    }
  });
}

template <class T>
class CpuSparseAxisOp final : public SparseAxisOp {
 public:
  explicit CpuSparseAxisOp(const SparseAxisSpec& spec)
      : forward_(device_lines::table_of<T>(spec)), adjoint_(device_lines::transposed(forward_)) {}

  void forward(TensorView x, TensorView y, std::int64_t outer, std::int64_t inner) override {
    run(forward_, x, "x", y, "y", outer, inner);
  }
  void adjoint(TensorView y, TensorView x, std::int64_t outer, std::int64_t inner) override {
    run(adjoint_, y, "y", x, "x", outer, inner);
  }

 private:
  static void run(const Table<T>& table, const TensorView& from, const char* from_name, const TensorView& to,
                  const char* to_name, std::int64_t outer, std::int64_t inner) {
    constexpr const char* kWhere = device_lines::kSparseAxisOp;
    const T* in = checked<T>(from, outer * table.columns * inner, kWhere, from_name);
    T* out = checked<T>(to, outer * table.rows * inner, kWhere, to_name);
    if (!to.empty()) sum_lines(table, in, out, outer, inner);
  }

  Table<T> forward_, adjoint_;
};

class CpuSparseAxisOps final : public SparseAxisOps {
 public:
  std::unique_ptr<SparseAxisOp> prepare(const SparseAxisSpec& spec) override {
    device_lines::check(spec);
    return with_arithmetic(spec.dtype, device_lines::kSparseAxisOp,
                           [&](auto tag) -> std::unique_ptr<SparseAxisOp> {
                             return std::make_unique<CpuSparseAxisOp<typename decltype(tag)::type>>(spec);
                           });
  }
};

}  // namespace

std::unique_ptr<SparseAxisOps> make_sparse_axis_ops() {
  return std::make_unique<CpuSparseAxisOps>();
}

}  // namespace tenon::cpu
