// Layer `refine`: values between points, so that there are `factor` times as many along every dimension.
// Point i of n is at i / n, as everywhere in this plugin, so new point j is between the old ones floor(j /
// factor) and the next, and has their linear interpolation (bilinear over two dimensions). Linear, and its
// backward is its adjoint.
#pragma once

#include "common.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>

#include <array>
#include <memory>
#include <vector>

namespace tenon::fno {

class Refine final : public Layer {
 public:
  enum class Behind { kLast, kZero, kFirst };
  static constexpr auto kBehind =
      option::choice<Behind>({{"last", Behind::kLast}, {"zero", Behind::kZero}, {"first", Behind::kFirst}});
  static constexpr OptionSpec kOptions[] = {
      option::integer("factor", nullptr)
          .mandatory()
          .between(1, 64)
          .doc_text("new points per point along every dimension"),
      option::text("behind", "\"last\"")
          .one_of(kBehind)
          .doc_text("the value after the last point: its own, 0, or the first point of a periodic field"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "refine",
                                       .summary = "linear interpolation onto a finer grid",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Refine(const Options& options);
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Step from a value [outer, points, inner] to [outer, factor * points, inner] along one dimension.
  struct Stage {
    std::int64_t outer = 1, inner = 1;
    std::unique_ptr<SparseAxisOp> sum;
  };
  /// From n points to factor * n.
  SparseAxisSpec table(std::int64_t n) const;
  /// The workspaces in which stages take turns.
  std::array<TensorView, 2> rooms(RunContext& context) const;

  std::int64_t factor_;
  Behind behind_;
  std::vector<Stage> stages_;           ///< from the last dimension to the first
  std::int64_t coarse_ = 0, fine_ = 0;  ///< elements of this rank
  DType dtype_ = DType::kF32;
  Elementwise* elementwise_ = nullptr;
  WorkspaceRef values_, other_, narrow_;
};

}  // namespace tenon::fno
