// Factors of powersgd.hpp. The products run on the device; a thin factor is orthogonalised on the host.
#include "powersgd.hpp"

#include <algorithm>
#include <cmath>
#include <string>

namespace tenon::sync_compress {
namespace {

TensorView shaped(TensorView view, std::int64_t rows, std::int64_t columns) {
  view.shape = Shape{rows, columns};
  return view;
}

GemmSpec product_spec(DType dtype, std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmSpec spec;
  spec.m = m, spec.n = n, spec.k = k;
  spec.a = spec.b = spec.c = dtype;
  return spec;
}

}  // namespace

void Powersgd::prepare_part(std::size_t index) {
  if (index == 0) key_ = random_key(replica().seed(), "sync.powersgd");
  const Part& part = parts()[index];
  Factors factors;
  std::int64_t whole = 0, p = 0, q = 0;
  for (const Piece& piece : part.pieces) {
    const double thin = static_cast<double>((piece.rows + piece.columns) * rank_) * min_compression_;
    if (thin < static_cast<double>(piece.elements)) {
      add_matrix(factors, piece, part.data.dtype);
      p += piece.rows * rank_;
      q += piece.columns * rank_;
    } else {
      factors.whole.push_back(piece);
      whole += piece.elements;
    }
  }
  factors.first = allocate(part.data.dtype, whole + p);
  factors.second = allocate(part.data.dtype, q);
  factors.starts = allocate(part.data.dtype, q);
  std::int64_t at_p = whole, at_q = 0;
  for (Matrix& matrix : factors.matrices) {
    const std::int64_t rows = matrix.rows, columns = matrix.columns;
    matrix.p = shaped(slice(factors.first, at_p, rows * rank_), rows, rank_);
    matrix.q = shaped(slice(factors.second, at_q, columns * rank_), columns, rank_);
    matrix.start = shaped(slice(factors.starts, at_q, columns * rank_), columns, rank_);
    at_p += rows * rank_;
    at_q += columns * rank_;
    const std::size_t longest = std::max(rows, columns) * rank_;
    columns_.resize(std::max(columns_.size(), longest));
    host_.resize(std::max(host_.size(), longest * sizeof(double)));
    draw(matrix, 0, false);
  }
  factors_.push_back(std::move(factors));
}

void Powersgd::add_matrix(Factors& factors, const Piece& piece, DType dtype) {
  Matrix matrix;
  matrix.begin = piece.begin;
  matrix.rows = piece.rows;
  matrix.columns = piece.columns;
  matrix.first_draw = draws_;
  draws_ += static_cast<std::uint64_t>(piece.columns * rank_);
  matrix.spent.assign(rank_, 0);
  Blas& blas = device().family<Blas>();
  matrix.to_p = blas.gemm(product_spec(dtype, piece.rows, rank_, piece.columns));
  GemmSpec to_q = product_spec(dtype, piece.columns, rank_, piece.rows);
  to_q.transpose_a = true;
  matrix.to_q = blas.gemm(to_q);
  GemmSpec product = product_spec(dtype, piece.rows, piece.columns, rank_);
  product.transpose_b = true;
  matrix.product = blas.gemm(product);
  product.accumulate = product.alpha = true;
  matrix.residual = blas.gemm(product);
  std::size_t scratch = 0;
  for (const Gemm* gemm : {matrix.to_p.get(), matrix.to_q.get(), matrix.product.get(), matrix.residual.get()})
    scratch = std::max(scratch, gemm->scratch_bytes());
  matrix.scratch = allocate(DType::kU8, static_cast<std::int64_t>(scratch));
  factors.matrices.push_back(std::move(matrix));
}

namespace {

/// A device tensor as host memory, written back at the end.
class OnHost {
 public:
  OnHost(Device& device, TensorView view, std::vector<std::byte>& memory) : device_(device), view_(view) {
    host_ = view;
    if (view.space == MemorySpace::kHost) return;
    host_.space = MemorySpace::kHost;
    host_.data = memory.data();
    device.copy(view, host_);
  }
  OnHost(const OnHost&) = delete;
  OnHost& operator=(const OnHost&) = delete;
  ~OnHost() {
    if (view_.space != MemorySpace::kHost) device_.copy(host_, view_);
  }
  double get(std::int64_t i) const {
    return host_.dtype == DType::kF64 ? host_.as<double>()[i] : host_.as<float>()[i];
  }
  void set(std::int64_t i, double value) const {
    if (host_.dtype == DType::kF64)
      host_.as<double>()[i] = value;
    else
      host_.as<float>()[i] = static_cast<float>(value);
  }

 private:
  Device& device_;
  TensorView view_, host_;
};

}  // namespace

// Draws the same numbers on all replicas. A spent column gets new ones; otherwise it would stay zero for
// ever.
void Powersgd::draw(Matrix& matrix, std::uint64_t step, bool spent_only) {
  const OnHost start(device(), matrix.start, host_);
  for (std::int64_t i = 0; i < matrix.columns * rank_; ++i) {
    if (spent_only && matrix.spent[i % rank_] == 0) continue;
    start.set(i, random_normal(key_, step, matrix.first_draw + static_cast<std::uint64_t>(i)));
  }
}

// Gram-Schmidt, each column twice, in f64. A column in the span of the earlier ones up to rounding becomes
// zero. NaN stays NaN, so that the update is refused.
void Powersgd::orthogonalise(Matrix& matrix) {
  const OnHost p(device(), matrix.p, host_);
  const std::int64_t rows = matrix.rows;
  const double nothing = matrix.p.dtype == DType::kF64 ? 1e-13 : 1e-6;
  const auto norm = [rows](const double* column) {
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += column[i] * column[i];
    return std::sqrt(sum);
  };
  for (std::int64_t c = 0; c < rank_; ++c) {
    double* column = columns_.data() + c * rows;
    for (std::int64_t i = 0; i < rows; ++i) column[i] = p.get(i * rank_ + c);
    const double before = norm(column);
    for (int pass = 0; pass < 2; ++pass) {
      for (std::int64_t other = 0; other < c; ++other) {
        const double* done = columns_.data() + other * rows;
        double along = 0;
        for (std::int64_t i = 0; i < rows; ++i) along += done[i] * column[i];
        for (std::int64_t i = 0; i < rows; ++i) column[i] -= along * done[i];
      }
    }
    const double left = norm(column);
    const bool spent = left <= nothing * before;
    matrix.spent[c] = spent ? 1 : 0;
    for (std::int64_t i = 0; i < rows; ++i) {
      column[i] = spent ? 0 : column[i] / left;
      p.set(i * rank_ + c, column[i]);
    }
  }
}

void Powersgd::begin(std::size_t index) {
  Factors& factors = factors_[index];
  const TensorView data = parts()[index].data;
  std::int64_t at = 0;
  for (const Piece& piece : factors.whole) {
    device().copy(slice(data, piece.begin, piece.elements), slice(factors.first, at, piece.elements));
    at += piece.elements;
  }
  for (Matrix& matrix : factors.matrices) {
    if (!warm_start_) draw(matrix, static_cast<std::uint64_t>(replica().slot()) + 1, false);
    const TensorView m =
        shaped(slice(data, matrix.begin, matrix.rows * matrix.columns), matrix.rows, matrix.columns);
    matrix.to_p->run(m, matrix.start, matrix.p, {}, 1, matrix.scratch);
  }
  if (!factors.first.empty()) factors.request = group().start_all_reduce(factors.first, ReduceOp::kSum);
}

void Powersgd::end(std::span<const std::size_t> indices) {
  for (const std::size_t index : indices) {
    Factors& factors = factors_[index];
    Part& part = parts()[index];
    if (!factors.first.empty()) group().wait(factors.request);
    std::int64_t at = 0;
    for (const Piece& piece : factors.whole) {
      const TensorView mean = slice(part.data, piece.begin, piece.elements);
      device().copy(slice(factors.first, at, piece.elements), mean);
      elementwise().scale(mean, 1.0 / members());
      at += piece.elements;
    }
    if (feeds_back()) elementwise().fill(part.pending, 0);
    for (Matrix& matrix : factors.matrices) {
      const std::int64_t n = matrix.rows * matrix.columns;
      const TensorView m = shaped(slice(part.data, matrix.begin, n), matrix.rows, matrix.columns);
      orthogonalise(matrix);
      matrix.to_q->run(m, matrix.p, matrix.q, {}, 1, matrix.scratch);
      if (!feeds_back()) continue;
      // This replica's own share that the mean leaves out: (1 - P P^T) M.
      const TensorView lost = shaped(slice(part.pending, matrix.begin, n), matrix.rows, matrix.columns);
      device().copy(m, lost);
      matrix.residual->run(matrix.p, matrix.q, lost, {}, -1, matrix.scratch);
    }
    if (!factors.second.empty()) factors.request = group().start_all_reduce(factors.second, ReduceOp::kSum);
  }
  for (const std::size_t index : indices) {
    Factors& factors = factors_[index];
    if (factors.second.empty()) continue;
    group().wait(factors.request);
    elementwise().scale(factors.second, 1.0 / members());
    for (Matrix& matrix : factors.matrices) {
      const std::int64_t n = matrix.rows * matrix.columns;
      const TensorView mean =
          shaped(slice(parts()[index].data, matrix.begin, n), matrix.rows, matrix.columns);
      matrix.product->run(matrix.p, matrix.q, mean, {}, 1, matrix.scratch);
    }
  }
}

void Powersgd::commit(std::size_t index) {
  if (!warm_start_) return;
  for (Matrix& matrix : factors_[index].matrices) {
    device().copy(matrix.q, matrix.start);
    const bool some =
        std::any_of(matrix.spent.begin(), matrix.spent.end(), [](auto spent) { return spent != 0; });
    if (some) draw(matrix, static_cast<std::uint64_t>(replica().slot()) + 1, true);
  }
}

void Powersgd::state(StateVisitor& visitor) {
  Compressor::state(visitor);
  for (std::size_t i = 0; i < factors_.size(); ++i) {
    if (!factors_[i].starts.empty()) visitor.tensor("factors" + std::to_string(i), factors_[i].starts);
  }
}

}  // namespace tenon::sync_compress
