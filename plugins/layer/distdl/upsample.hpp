// Layer `upsample`: x [batch, channels, extent...] with `scale` times as many elements along 1 to 3
// dimensions, the nearest ones or linear between neighbours. All of its dimensions may be sharded over the
// mesh.
#pragma once

#include "halo.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

namespace tenon::distdl {

class Upsample final : public Layer {
 public:
  static constexpr auto kModes =
      option::choice<Interpolation>({{"nearest", Interpolation::kNearest},
                                     {"linear", Interpolation::kLinear},
                                     {"linear_aligned", Interpolation::kLinearAligned}});
  static constexpr OptionSpec kOptions[] = {
      option::integers("scale", nullptr)
          .mandatory()
          .between(1, 32767)
          .doc_text("outputs per input along each dimension, or one number for all"),
      option::text("mode", "\"nearest\"")
          .one_of(kModes)
          .doc_text(
              "nearest: each element repeated; linear: between the centres of elements, the outermost "
              "repeated beyond theirs; linear_aligned: the first and the last element keep their places"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "upsample",
                                       .summary = "nearest or linear interpolation, over a mesh too",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Upsample(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Step from a value [outer, from, inner] to [outer, to, inner] along one dimension: earlier dimensions are
  /// as they are read, later ones already interpolated.
  struct Step {
    std::int64_t outer = 1, inner = 1;
    std::unique_ptr<SparseAxisOp> sum;
  };
  int spatial() const { return static_cast<int>(steps_.size()); }
  Step& step(int d) { return steps_[d]; }
  /// Shape of this rank's value when the dimensions after the first `d` have been interpolated.
  Shape stage_shape(int d) const;
  /// That value, in the arithmetic type; `tensor` where it has no workspace of its own: the window, or y.
  TensorView stage(RunContext& context, int d, TensorView tensor) const;
  TensorView window(RunContext& context) const;

  const Options& options_;  // outlives the layer
  Halo halo_;
  std::vector<Step> steps_;  ///< one for each dimension
  DType dtype_ = DType::kF32, arithmetic_ = DType::kF32;
  Elementwise* elementwise_ = nullptr;
  std::vector<WorkspaceRef> stages_;  ///< 0 ... spatial
  WorkspaceRef window_;
};

}  // namespace tenon::distdl
