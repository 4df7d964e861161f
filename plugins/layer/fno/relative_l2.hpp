// Layer `relative_l2`: the loss ||x - t|| / ||t|| of each sample, of predictions x against targets t of equal
// shape [batch, ...], and the number of samples. A sample whose target is zero everywhere has no relative
// error, and one with a target that is no finite number is padding: neither counts. Inputs may be sharded
// over a mesh in any way, both alike: sums are over all shards, and every rank has the loss of the
// whole.
#pragma once

#include "common.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <vector>

namespace tenon::fno {

/// Sums over the points of one sample. Sums over shards of a sample add up; an empty shard adds nothing.
struct SampleSums {
  double error = 0;    ///< of (x - t)^2
  double squares = 0;  ///< of t^2
  double values = 0;   ///< of t
  double points = 0;

  SampleSums& operator+=(const SampleSums& other) {
    error += other.error, squares += other.squares, values += other.values, points += other.points;
    return *this;
  }
};

/// The relative error of a whole sample whose values v stand for offset + scale * v.
struct RelativeError {
  RelativeError(const SampleSums& sums, double offset, double scale);

  bool counts = false;
  double loss = 0;         ///< 0 where it does not count
  double error_norm = 0;   ///< of x - t
  double target_norm = 0;  ///< of offset + scale t
};

class RelativeL2 final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::metric_name(),
      option::real("offset", "0").doc_text("a value v of either input stands for offset + scale * v"),
      option::real("scale", "1").doc_text("see offset"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("predictions", "[batch, ...]").of("activations"),
      port::input("targets", "[batch, ...]").of("activations"),
      port::output("loss", "[2]").of("f64").doc_text("sum over samples, and their number")};
  static constexpr ComponentInfo kInfo{.id = "relative_l2",
                                       .summary = "norm of the error over norm of the target, per sample",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit RelativeL2(const Options& options);
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  /// Sums over each sample of the batch; leaves x - t and t of this rank's points in the workspaces.
  void sum(RunContext& context);
  SampleSums& sums_of(std::int64_t local_sample);
  TensorView error(RunContext& context, std::int64_t sample) const;
  TensorView target(RunContext& context, std::int64_t sample) const;
  void write_gradient(BackwardContext& context, int input);

  double offset_, scale_;
  std::int64_t batch_ = 0, points_ = 0;  ///< of this rank
  std::int64_t first_sample_ = 0;
  DType dtype_ = DType::kF32;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  std::vector<SampleSums> sums_;          ///< of the whole batch
  std::unique_ptr<LinearMap> all_parts_;  ///< null where nothing is sharded
  WorkspaceRef error_, target_, gradient_, narrow_;
};

}  // namespace tenon::fno
