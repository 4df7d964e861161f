// Layer `conv_transpose`: the adjoint of a convolution as a layer, over 1 to 3 dimensions, any of which may
// be sharded over the mesh, and so may the batch. Input i adds its product with the weight to the
// outputs stride i - padding + dilation m, m = 0 ... kernel - 1; all outputs get the bias.
#pragma once

#include "conv.hpp"

namespace tenon::distdl {

/// A convolution's option of this name; in a constant, another name does not compile.
constexpr OptionSpec as_in_conv(std::string_view name) {
  for (const OptionSpec& spec : Conv::kOptions)
    if (name == spec.name) return spec;
  throw "no such option";
}

class ConvTranspose final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      as_in_conv("features"),
      as_in_conv("kernel"),
      as_in_conv("stride").doc_text("distance of the windows that neighbouring inputs add to"),
      as_in_conv("padding").doc_text("outputs left out on both sides of each dimension"),
      as_in_conv("dilation"),
      option::integers("output_padding", "[0]")
          .between(0, 32767)
          .doc_text("outputs after the last window, smaller than stride or dilation: which of the extents is "
                    "meant that a convolution brings to the one of x"),
      as_in_conv("groups"),
      as_in_conv("bias"),
      as_in_conv("init_scale")
          .doc_text("standard deviation of the normal initial weights; absent: uniform within 1 / sqrt(n) of "
                    "zero, n = features of a group x kernel"),
      as_in_conv("module"),
      as_in_conv("weight"),
      as_in_conv("chunk"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "conv_transpose",
      .summary = "transposed convolution in 1 to 3 dimensions that may be sharded over a mesh",
      .options = kOptions,
      .ports = kPorts};

  explicit ConvTranspose(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Infers the exchange, and the window over this rank's outputs to which each input that it reads adds.
  void infer_windows(InferContext& context, const ValueSpec& x);
  void declare_parameters(InferContext& context);
  void declare_sites(InferContext& context);
  /// Inputs of one group of some samples, channels last, and their windows.
  TensorView rows(RunContext& context, std::int64_t samples) const;
  TensorView columns(RunContext& context, std::int64_t samples) const;

  const Options& options_;  // outlives the layer
  Halo halo_;
  WindowSpec window_;  ///< its places are the inputs; pads are negative where outputs are beyond all windows
  WindowSpec point_;   ///< of one element: converts planes of inputs to rows and back
  std::int64_t features_ = 0, channels_ = 0, groups_ = 1, places_ = 0, chunk_ = 1;
  std::int64_t n_ = 0, k_ = 0;  ///< of one group
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  bool has_bias_ = false;
  ParameterRef weight_, bias_;
  GradientSum weight_sum_, bias_sum_;
  std::vector<SiteRef> sites_;
  SavedRef inputs_;
  WorkspaceRef columns_, rows_, gradient_;
};

}  // namespace tenon::distdl
