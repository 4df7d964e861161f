// Approximates the nearest semi-orthogonal matrix by Newton-Schulz iterations of an odd polynomial that
// drives all singular values towards 1, with products of the device. Used by muon.cpp; independent of
// weights.
#pragma once

#include <tenon/device.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

#include <map>
#include <memory>
#include <tuple>
#include <vector>

namespace tenon::muon {

struct NewtonSchulz {
  std::int64_t iterations = 5;
  double a = 3.4445, b = -4.7750, c = 2.0315;
};

/// Prepared products of one shape.
struct OrthogonalPlan {
  std::int64_t rows = 0, columns = 0;
  DType dtype = DType::kF32;
  std::unique_ptr<Gemm> gram, square, product;
};

class Orthogonalizer {
 public:
  explicit Orthogonalizer(Device& device);
  ~Orthogonalizer();
  Orthogonalizer(const Orthogonalizer&) = delete;
  Orthogonalizer& operator=(const Orthogonalizer&) = delete;

  /// Returns the plan of a shape; equal shapes share one. Call reserve() once all are known.
  const OrthogonalPlan* plan(std::int64_t rows, std::int64_t columns, DType dtype);
  /// Allocates scratch for the largest plan.
  void reserve();

  /// Returns scratch for a direction of this shape; orthogonal() overwrites it.
  TensorView input(const OrthogonalPlan& plan) const;
  /// Divides the direction in input(plan) by max(norm, eps) and runs the iterations. The result is in
  /// scratch, valid until the next call.
  TensorView orthogonal(const OrthogonalPlan& plan, const NewtonSchulz& rule, double eps);

 private:
  struct Buffer {
    void* memory = nullptr;
    std::int64_t bytes = 0;
  };
  TensorView view(const Buffer& buffer, DType dtype, std::int64_t rows, std::int64_t columns) const;
  TensorView scratch(const Gemm& gemm) const;

  Device& device_;
  Blas& blas_;
  Elementwise& elementwise_;
  ReduceOps& reduce_;
  std::map<std::tuple<std::int64_t, std::int64_t, DType>, std::unique_ptr<OrthogonalPlan>> plans_;
  Buffer x_, next_, gram_, square_, scratch_;
};

}  // namespace tenon::muon
