// Layers that act on each element by itself: the maps, which are offered to the producing site as epilogue,
// the sum of two values, and dropout.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>

namespace tenon::nn {

/// Base of the layers y = map(x): the map is offered to the producing site as epilogue.
class Pointwise : public Layer, public PositionwiseLayer {
 public:
  void infer(InferContext& context) final;
  void forward(ForwardContext& context) final;
  void backward(BackwardContext& context) final;
  void* query(std::string_view interface_id) final { return positionwise(this, interface_id); }

 protected:
  /// Value that backward reads: x, or y where the derivative follows from it (x itself may then never exist).
  enum class Reads { kInput, kOutput };
  Pointwise(Epilogue map, Reads reads) : map_(map), reads_(reads) {}

 private:
  Epilogue map_;
  Reads reads_;
  NeuralOps* nn_ = nullptr;
};

/// Layer `gelu` (Hendrycks and Gimpel 2016): x Phi(x), exact or in the tanh form of GPT-2 and GPT-Neo.
class Gelu final : public Pointwise {
 public:
  static constexpr auto kForms =
      option::choice<Epilogue>({{"tanh", Epilogue::kGeluTanh}, {"none", Epilogue::kGeluExact}});
  static constexpr OptionSpec kOptions[] = {
      option::text("approximate", "\"tanh\"")
          .one_of(kForms)
          .doc_text("tanh: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))); none: x/2 (1 + erf(x / sqrt(2)))"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "gelu", .summary = "Gaussian error linear unit", .options = kOptions, .ports = kPorts};

  explicit Gelu(const Options& options) : Pointwise(options.choice("approximate", kForms), Reads::kInput) {}
};

/// Layer `relu`: max(x, 0). Its derivative follows from y, so x need not outlive the product that made it.
class Relu final : public Pointwise {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "relu", .summary = "max(x, 0)", .ports = kPorts};

  explicit Relu(const Options&) : Pointwise(Epilogue::kRelu, Reads::kOutput) {}
};

/// Layer `silu`: x / (1 + exp(-x)), also called swish (Elfwing, Uchibe, Doya 2018).
class Silu final : public Pointwise {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "silu", .summary = "x / (1 + exp(-x))", .ports = kPorts};

  explicit Silu(const Options&) : Pointwise(Epilogue::kSilu, Reads::kInput) {}
};

/// Layer `squared_relu`: max(x, 0)^2 (So et al. 2021). Backward reads x: y is 0 where a small square
/// underflows, and the slope is not.
class SquaredRelu final : public Pointwise {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "squared_relu", .summary = "max(x, 0) squared", .ports = kPorts};

  explicit SquaredRelu(const Options&) : Pointwise(Epilogue::kSquaredRelu, Reads::kInput) {}
};

/// Layer `residual`: the sum of two values of equal shape; both get the gradient of the sum.
class Residual final : public Layer, public PositionwiseLayer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("a", "[..., width]").of("activations"),
                                        port::input("b", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "residual", .summary = "sum of two values of equal shape", .ports = kPorts};

  explicit Residual(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return positionwise(this, interface_id); }

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

/// Layer `dropout`: zeroes elements with probability p while training and scales the others by 1 / (1 - p).
/// Element i of the global batch draws from (seed, node, slot, i), so the mask does not depend on how a batch
/// is split over replicas, micro-batches or a mesh.
class Dropout final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("p", "0.1").between(0, 0.999).doc_text("probability of a zero"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "dropout",
                                       .summary = "zeroes elements at random while training",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Dropout(const Options& options) : p_(options.real("p")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return positionwise(this, interface_id); }

 private:
  bool active(const RunContext& context) const { return p_ > 0 && context.training(); }
  void apply(RunContext& context, TensorView from, TensorView to, bool accumulate);

  /// Begin of run `run` of this rank's shard in the whole value.
  std::int64_t first_of(std::int64_t run) const;

  double p_;
  Shape whole_;
  Box part_;
  int outer_ = 0;         ///< dimensions before the last sharded one: a run has one index of each of them
  std::int64_t run_ = 0;  ///< elements
  Device* device_ = nullptr;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

}  // namespace tenon::nn
