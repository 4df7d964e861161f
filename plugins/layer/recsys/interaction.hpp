// Layers `dot_interaction`, `cat_interaction` and `sum_interaction`: they join the dense part z0 [batch,
// width] of a sample with the vectors z [batch, tables, width] of its tables. The device computes them.
#pragma once

#include "common.hpp"

#include <tenon/sdk/ops/interaction.hpp>

namespace tenon::recsys {

class InteractionLayer : public Layer {
 public:
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 protected:
  explicit InteractionLayer(Interaction kind) : kind_(kind) {}

 private:
  bool is_dot() const { return kind_ == Interaction::kDot || kind_ == Interaction::kDotItself; }

  Interaction kind_;
  InteractionOps* ops_ = nullptr;
  Shape z0_, z_;
};

class DotInteraction final : public InteractionLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("itself", "false").doc_text("also the product of each vector with itself"),
  };
  static constexpr PortSpec kPorts[] = {port::input("z0", "[batch, width]").of("activations"),
                                        port::input("z", "[batch, tables, width]").of("activations"),
                                        port::output("y", "[batch, features]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "dot_interaction",
                                       .summary = "z0 and the dot products of all pairs among z0 and z",
                                       .options = kOptions,
                                       .ports = kPorts};
  explicit DotInteraction(const Options& options)
      : InteractionLayer(options.boolean("itself") ? Interaction::kDotItself : Interaction::kDot) {}
};

class CatInteraction final : public InteractionLayer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("z0", "[batch, width]").of("activations"),
                                        port::input("z", "[batch, tables, width]").of("activations"),
                                        port::output("y", "[batch, features]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "cat_interaction", .summary = "z0 and all vectors of z, one after another", .ports = kPorts};
  explicit CatInteraction(const Options&) : InteractionLayer(Interaction::kConcatenate) {}
};

class SumInteraction final : public InteractionLayer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("z0", "[batch, width]").of("activations"),
                                        port::input("z", "[batch, tables, width]").of("activations"),
                                        port::output("y", "[batch, features]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "sum_interaction", .summary = "z0 plus the sum of the vectors of z", .ports = kPorts};
  explicit SumInteraction(const Options&) : InteractionLayer(Interaction::kSum) {}
};

}  // namespace tenon::recsys
