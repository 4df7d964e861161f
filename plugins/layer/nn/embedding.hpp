// Rows of learned tables: by number, and by position.
#pragma once

#include "common.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/reduce.hpp>

#include <string>

namespace tenon::nn {

/// Layer `embedding`: the rows of a table by number. The table is a dense parameter; another layer has row
/// tables that may be larger than memory. Over a mesh ids may be sharded in any dimension, and the
/// width of the table over other axes.
class Embedding final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("rows", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("rows of the table; ids lie in [0, rows)"),
      option::integer("width", nullptr).mandatory().between(1, 2147483647).doc_text("elements of a row"),
      option::real("init_scale", "0.02")
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights"),
      option::text("weight", nullptr)
          .doc_text("name of the table, to tie it to another layer's; absent: NODE.weight"),
      option::integers("axes", "[]")
          .between(0, 63)
          .doc_text(
              "axes of the mesh that shard the width, together and evenly; none: every rank has whole rows"),
  };
  static constexpr PortSpec kPorts[] = {port::input("ids", "[...]").of("i32"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "embedding",
                                       .summary = "rows of a learned table by number",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Embedding(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return positionwise(this, interface_id); }

 private:
  const Options& options_;
  EmbeddingOps* rows_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ParameterRef table_;
  GradientSum table_sum_;
  WorkspaceRef scratch_;
};

/// Layer `positions`: adds a learned row per position to x [batch, time, width]: those of 0 ... time - 1, or
/// of the positions that are given. Over a mesh x may be sharded in any dimension, positions as its batch and
/// time are; the table is sharded like the width.
class Positions final : public Layer, public StepwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("context", nullptr)
          .mandatory()
          .between(1, 2147483647)
          .doc_text("positions that have a row")
          .in_unit("tokens"),
      option::real("init_scale", "0.02")
          .at_least(0)
          .doc_text("standard deviation of the normal initial weights"),
      option::text("weight", nullptr)
          .doc_text("name of the table, to tie it to another layer's; absent: NODE.weight"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, time, width]").of("activations"),
      port::input("positions", "[batch, time]").of("i32").optional().doc_text("absent: 0 ... time - 1"),
      port::output("y", "[batch, time, width]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "positions", .summary = "adds a learned row per position", .options = kOptions, .ports = kPorts};

  explicit Positions(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  std::int64_t infer_step(InferContext& context, std::int64_t positions) override;
  void step(ForwardContext& context, const Steps& steps) override;
  void* query(std::string_view interface_id) override {
    return interface_id == StepwiseLayer::kId ? static_cast<StepwiseLayer*>(this) : nullptr;
  }

 private:
  void check_positions(const TensorView& positions);

  const Options& options_;
  std::string name_;
  bool given_ = false;  ///< positions are an input
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  EmbeddingOps* rows_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  ParameterRef table_;
  GradientSum table_sum_;
  std::int64_t first_ = 0;  ///< position of this rank's shard
  WorkspaceRef scratch_;
  HostStage stage_;  ///< of positions
};

}  // namespace tenon::nn
