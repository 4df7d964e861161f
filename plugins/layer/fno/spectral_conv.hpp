// Layer `spectral_conv` (Li et al. 2021): y = F^-1(R F(x)) over 1 to 4 dimensions of points, where F keeps
// the k lowest modes of either sign, of the last dimension those of one, and R is a complex matrix over
// channels per mode. Only F depends on the resolution: the same weights serve any number of points. Over a
// mesh each rank transforms lines that are whole and holds the weights of some modes.
#pragma once

#include "layer_common/options.hpp"
#include "spectrum.hpp"

#include <tenon/sdk/gradient_sum.hpp>

namespace tenon::fno {

class SpectralConv final : public Layer {
 public:
  static constexpr auto kForms = option::choice<Form>({{"pencil", Form::kPencil}, {"slab", Form::kSlab}});
  static constexpr OptionSpec kOptions[] = {
      option::integers("modes", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("modes kept per dimension, or one number for all: k low and k high ones, at most half of "
                    "the points; of the last dimension k low ones, at most half of the points + 1"),
      option::integer("features", nullptr)
          .between(1, 2147483647)
          .doc_text("channels of the result; absent: those of x"),
      option::real("init_scale", nullptr)
          .at_least(0)
          .doc_text("initial weights are uniform in [0, this), real and imaginary part alike; absent: 1 / "
                    "(channels of x * features)"),
      option::text("form", "\"pencil\"")
          .one_of(kForms)
          .doc_text("over a mesh: pencil keeps the order, and with it the bits, of one rank; slab transforms "
                    "unsharded dimensions first and moves less, and needs the last dimension unsharded"),
      layer_common::weight_name(),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "spectral_conv",
      .summary = "products of channels per Fourier mode, of which a few are kept",
      .options = kOptions,
      .ports = kPorts};

  explicit SpectralConv(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  std::vector<std::int64_t> kept_modes(const InferContext& context, const Shape& x) const;
  void declare_weight(InferContext& context);
  Spectrum::Memory memory(RunContext& context) const;
  TensorView x_modes(TensorView bytes) const;
  TensorView y_modes(RunContext& context) const;

  const Options& options_;  // outlives the layer
  std::int64_t in_ = 0, out_ = 0;
  DType complex_ = DType::kC64;
  Spectrum x_, y_;
  std::unique_ptr<BatchedComplexGemm> product_;  ///< null on a rank without modes
  Elementwise* elementwise_ = nullptr;
  GradientSum weight_sum_;
  ParameterRef weight_;
  SavedRef saved_;
  WorkspaceRef between_[2], scratch_, product_scratch_, y_modes_, x_gradient_;
};

}  // namespace tenon::fno
