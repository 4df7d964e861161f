// The gated norm of a `mamba2` layer where ranks of a mesh share its groups: sums of squares are added over
// the ranks, so all of them divide by the root mean square of the whole group. Made of operators that every
// device has for other layers; the device's own gated norm sees whole groups alone.
#pragma once

#include "head_share.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/sdk/gradient_sum.hpp>
#include <tenon/sdk/ops/multiply.hpp>

#include <memory>

namespace tenon::ssm {

/// Copies columns [first, first + part's columns) of the matrix `whole` to `part`, or back.
class ColumnCopy {
 public:
  ColumnCopy() = default;
  explicit ColumnCopy(Device& device);
  void take(TensorView whole, std::int64_t first, TensorView part) const;
  void put(TensorView part, TensorView whole, std::int64_t first) const;

 private:
  StridedCopyOps* boxes_ = nullptr;  ///< null in host memory
};

/// forward and backward are collective, also on ranks without rows.
class SharedNorm {
 public:
  /// Collective. `x`: layout of the layer's input, samples of which may be sharded.
  SharedNorm(InferContext& context, const Layout& x, const HeadShare& share, const HeadSizes& sizes,
             double eps);

  /// y, out: [rows, share.columns()], not the same memory; projected: [rows, columns].
  void forward(ForwardContext& context, TensorView y, TensorView projected, TensorView weight,
               TensorView out);
  /// The normed values of forward() once more.
  void repeat(BackwardContext& context, TensorView y, TensorView projected, TensorView weight,
              TensorView out);
  /// Writes dy, which may be dout, and the gates of dprojected; dweight, unless empty, (+)=.
  void backward(BackwardContext& context, TensorView y, TensorView projected, TensorView weight,
                TensorView dout, TensorView dy, TensorView dprojected, TensorView dweight, bool accumulate);

 private:
  /// A matrix [rows, share.columns()] in the workspace.
  TensorView spare(RunContext& context, int number) const;
  /// Writes z, silu(z) and y silu(z).
  void gate(RunContext& context, TensorView y, TensorView projected);
  /// Adds the numbers of rows, f64, over the ranks of this rank's group.
  void add_up(RunContext& context, TensorView numbers);

  PartNormSpec spec_;
  std::int64_t rows_ = 0, width_ = 0, first_ = 0;
  std::int64_t groups_ = 1, group_ = 0;
  DType dtype_ = DType::kF32;
  ColumnCopy copy_;
  PartNormOps* parts_ = nullptr;
  NormalisationOps* norms_ = nullptr;
  NeuralOps* nn_ = nullptr;
  MultiplyOps* multiply_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  Device* device_ = nullptr;
  std::unique_ptr<LinearMap> total_;  ///< of a number per group of the shard and row
  SavedRef rstd_;
  WorkspaceRef spare_, sums_;
};

}  // namespace tenon::ssm
