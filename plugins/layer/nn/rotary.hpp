// Layer `rotary`: rotary positions (Su et al. 2021) on x [batch, time, heads * d]. The pair (i, i + d / 2) of
// every head at position p is turned by the angle p base^(-2i / d): halves, as Hugging Face stores the
// weights of Llama and Phi-3, not neighbours. Queries and keys each have a layer of their own. Over a mesh
// samples and heads may be sharded.
#pragma once

#include "common.hpp"

#include <tenon/sdk/ops/multiply.hpp>

namespace tenon::nn {

/// Cosines and sines of the positions 0 ... lines - 1, in memory of the device: [lines, 2, half].
class RotationTable {
 public:
  RotationTable() = default;
  ~RotationTable();
  RotationTable(const RotationTable&) = delete;
  RotationTable& operator=(const RotationTable&) = delete;

  /// half: angles of a position, base^(-i / half); type: f32 or f64.
  void infer(Device& device, double base, std::int64_t half, DType type);
  /// Returns a table of at least so many lines, computed in f64; makes it where it has fewer.
  TensorView lines(std::int64_t wanted);

 private:
  Device* device_ = nullptr;
  double base_ = 0;
  TensorView table_;
};

class Rotary final : public Layer, public StepwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("heads", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("heads; the width must be a multiple, and the width of a head even"),
      option::real("base", "10000")
          .at_least(1)
          .doc_text("a pair i of d / 2 turns by base^(-2i / d) radians per position"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, time, width]").of("activations"),
      port::input("positions", "[batch, time]").of("i32").optional().doc_text("absent: 0 ... time - 1"),
      port::output("y", "[batch, time, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "rotary",
                                       .summary = "rotary positions: turns the pairs of halves of every head",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Rotary(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  std::int64_t infer_step(InferContext& context, std::int64_t positions) override;
  void step(ForwardContext& context, const Steps& steps) override;
  void* query(std::string_view interface_id) override {
    return interface_id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

 private:
  /// Refuse shards of x that are not whole heads of whole sequences, and positions that are not sharded
  /// with it.
  static void expect_whole_heads(InferContext& context, const Layout& x, std::int64_t head_width);
  static void expect_positions(InferContext& context, const Layout& x);
  /// The positions of a pass, flat; empty where the layer has no such input.
  TensorView positions(RunContext& context) const;

  const Options& options_;
  MultiplyOps* multiply_ = nullptr;
  Device* device_ = nullptr;
  std::int64_t time_ = 0;  ///< of a sample, or of a sequence of a stepwise graph
  bool named_ = false;     ///< positions are an input
  RotationTable table_;
  HostStage stage_;  ///< of positions
};

}  // namespace tenon::nn
