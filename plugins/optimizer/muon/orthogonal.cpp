// The Gram matrix contracts the longer side, so it is as small as possible: X X^T of a wide matrix, X^T X of
// a tall one.
#include "orthogonal.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tenon::muon {

Orthogonalizer::Orthogonalizer(Device& device)
    : device_(device),
      blas_(device.family<Blas>()),
      elementwise_(device.family<Elementwise>()),
      reduce_(device.family<ReduceOps>()) {}

Orthogonalizer::~Orthogonalizer() {
  for (const Buffer& buffer : {x_, next_, gram_, square_, scratch_}) {
    if (buffer.memory != nullptr) device_.release(buffer.memory, buffer.bytes);
  }
}

const OrthogonalPlan* Orthogonalizer::plan(std::int64_t rows, std::int64_t columns, DType dtype) {
  std::unique_ptr<OrthogonalPlan>& made = plans_[{rows, columns, dtype}];
  if (made != nullptr) return made.get();
  const bool tall = rows > columns;
  const std::int64_t side = std::min(rows, columns);
  GemmSpec spec;
  spec.a = spec.b = spec.c = dtype;
  GemmSpec gram = spec, square = spec, product = spec;
  gram.m = gram.n = side, gram.k = std::max(rows, columns);
  gram.transpose_a = tall, gram.transpose_b = !tall;
  square.m = square.n = square.k = side;
  product.m = rows, product.n = columns, product.k = side;
  made = std::make_unique<OrthogonalPlan>(
      OrthogonalPlan{rows, columns, dtype, blas_.gemm(gram), blas_.gemm(square), blas_.gemm(product)});
  return made.get();
}

void Orthogonalizer::reserve() {
  for (const auto& [key, plan] : plans_) {
    const std::int64_t side = std::min(plan->rows, plan->columns);
    const std::int64_t whole = dtype_bytes(plan->dtype, plan->rows * plan->columns);
    const std::int64_t small = dtype_bytes(plan->dtype, side * side);
    x_.bytes = std::max(x_.bytes, whole);
    gram_.bytes = std::max(gram_.bytes, small);
    for (const Gemm* gemm : {plan->gram.get(), plan->square.get(), plan->product.get()})
      scratch_.bytes = std::max(scratch_.bytes, static_cast<std::int64_t>(gemm->scratch_bytes()));
  }
  next_.bytes = x_.bytes;
  square_.bytes = gram_.bytes;
  for (Buffer* buffer : {&x_, &next_, &gram_, &square_, &scratch_}) {
    if (buffer->bytes > 0) buffer->memory = device_.allocate(buffer->bytes);
  }
}

TensorView Orthogonalizer::view(const Buffer& buffer, DType dtype, std::int64_t rows,
                                std::int64_t columns) const {
  return {buffer.memory, {rows, columns}, dtype, device_.space()};
}

TensorView Orthogonalizer::scratch(const Gemm& gemm) const {
  return {scratch_.memory, {static_cast<std::int64_t>(gemm.scratch_bytes())}, DType::kU8, device_.space()};
}

TensorView Orthogonalizer::input(const OrthogonalPlan& plan) const {
  return view(x_, plan.dtype, plan.rows, plan.columns);
}

TensorView Orthogonalizer::orthogonal(const OrthogonalPlan& plan, const NewtonSchulz& rule, double eps) {
  const bool tall = plan.rows > plan.columns;
  const std::int64_t side = std::min(plan.rows, plan.columns);
  TensorView x = input(plan), next = view(next_, plan.dtype, plan.rows, plan.columns);
  const TensorView gram = view(gram_, plan.dtype, side, side), square = view(square_, plan.dtype, side, side);

  elementwise_.scale(x, 1 / std::max(std::sqrt(reduce_.sum_of_squares(x)), eps));
  for (std::int64_t i = 0; i < rule.iterations; ++i) {
    plan.gram->run(x, x, gram, {}, 1, scratch(*plan.gram));
    plan.square->run(gram, gram, square, {}, 1, scratch(*plan.square));
    elementwise_.scale(square, rule.c);
    elementwise_.axpy(rule.b, gram, square);
    plan.product->run(tall ? x : square, tall ? square : x, next, {}, 1, scratch(*plan.product));
    elementwise_.axpy(rule.a, x, next);
    std::swap(x, next);
  }
  return x;
}

}  // namespace tenon::muon
