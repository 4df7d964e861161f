// Layer `gate`: a * map(b), the product of gated feed-forward blocks (SwiGLU with silu, GEGLU with gelu;
// Shazeer 2020). The two projections are linear layers of their own.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/sdk/ops/multiply.hpp>

namespace tenon::nn {

class Gate final : public Layer, public PositionwiseLayer {
 public:
  static constexpr auto kMaps = option::choice<Epilogue>(
      {{"silu", Epilogue::kSilu}, {"gelu", Epilogue::kGeluTanh}, {"none", Epilogue::kNone}});
  static constexpr OptionSpec kOptions[] = {
      option::text("map", "\"silu\"")
          .one_of(kMaps)
          .doc_text("of b: silu; gelu in the tanh form; none: b itself"),
  };
  static constexpr PortSpec kPorts[] = {port::input("a", "[..., width]").of("activations"),
                                        port::input("b", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "gate",
                                       .summary = "product of a value with a map of another: a * map(b)",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Gate(const Options& options) : map_(options.choice("map", kMaps)) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return positionwise(this, interface_id); }

 private:
  Epilogue map_;
  NeuralOps* nn_ = nullptr;
  MultiplyOps* multiply_ = nullptr;
  WorkspaceRef mapped_;
};

}  // namespace tenon::nn
