// Losses and metrics of predictions against targets, and the sum over shards that all losses share.
#pragma once

#include "common.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"

#include <tenon/ops/norm.hpp>
#include <tenon/ops/reduce.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <string_view>
#include <vector>

namespace tenon::nn {

// Shared by all loss layers: inputs with the same layout on the mesh, and the final step, output 0 =
// {sum of the rows' losses, number of targets that count}, f64 [2], of all shards on every rank.

/// Option of the losses that compare with class numbers, as PyTorch defines it.
inline constexpr OptionSpec kLabelSmoothing =
    option::real("label_smoothing", "0")
        .between(0, 1)
        .doc_text("share of the wanted distribution that is spread evenly over all classes");

/// Input 0 holds rows [..., columns], called `rows` in refusals, and input 1 one class number for each. Rows
/// may be sharded over the mesh, their columns not, and a row is on the rank of its number. Returns the
/// layout of the numbers; this rank's rows are those of its shard of input 0.
Layout expect_targets(const InferContext& context, std::string_view rows);

class LossSum {
 public:
  /// Collective. Declares output 0 of the layer. `counted`: the layout of what the ranks count, whose shards
  /// are added up; `rows`: class numbers of this rank at most, 0 for losses without them.
  void infer(InferContext& context, const Layout& counted, std::int64_t rows);
  /// losses: [rows] in f32 or f64, 0 where ignored; targets: i32 [rows], ignored where negative. Collective,
  /// as the other overload.
  void write(TensorView losses, TensorView targets, TensorView output);
  /// The same from the sum and count of this rank's shard.
  void write(double sum, double count, TensorView output);

 private:
  Device* device_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  std::vector<std::int32_t> staging_;     // targets from an accelerator, for the host to count
  std::unique_ptr<LinearMap> all_parts_;  // null where nothing is sharded
};

/// Terms of a loss that the host computes in f64, one for each element of input 0. They are rounded once to
/// the dtype of statistics and added as those of other losses are.
class HostTerms {
 public:
  /// `places`: the layout of input 0. Declares output 0 of the layer, and workspaces.
  void infer(InferContext& context, const Layout& places);
  /// On this rank.
  std::int64_t count() const { return elements_; }
  /// A real input.
  void read(RunContext& context, int input, std::vector<double>& to);
  /// Collective. Output 0: the sum of the terms, and how many `counted`.
  void write(ForwardContext& context, const std::vector<double>& terms, double counted);
  /// Hands a gradient on; an empty sink is none.
  void pass(BackwardContext& context, const std::vector<double>& gradient, const GradientSink& sink);

 private:
  TensorView rounded(RunContext& context, const std::vector<double>& values);

  std::int64_t elements_ = 0;
  DType type_ = DType::kF32;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  LossSum sum_;
  WorkspaceRef wide_, rounded_, narrow_;
  HostStage wide_stage_, rounded_stage_;
};

/// Layer `softmax_cross_entropy`: the loss of plain logits [..., classes] against class numbers [...]. For
/// language models use `head_cross_entropy`, which never holds the logits of a whole batch. Rows may be
/// sharded over a mesh, classes not.
class SoftmaxCrossEntropy final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      kLabelSmoothing,
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("logits", "[batch, ..., classes]").of("activations"),
      port::input("targets", "[...]").of("i32").doc_text("one per row; negative ones do not count"),
      port::output("loss", "[2]").of("f64").doc_text("sum over targets, and their number")};
  static constexpr ComponentInfo kInfo{.id = "softmax_cross_entropy",
                                       .summary = "cross-entropy of logits against class numbers, in nats",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit SoftmaxCrossEntropy(const Options& options)
      : Loss(options), smoothing_(options.real("label_smoothing")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  double smoothing_;
  Device* device_ = nullptr;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LossSum sum_;
  SavedRef lse_;
  WorkspaceRef losses_, spare_;
};

/// Layer `mse`: the loss sum((x - t)^2) of predictions x against targets t of equal shape; the count is the
/// number of elements, so the mean is PyTorch's MSELoss. A target that is not a number does not count: data
/// sets use it for padding. Both may be sharded over a mesh in any way, alike.
class Mse final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("predictions", "[batch, ...]").of("activations"),
      port::input("targets", "[batch, ...]").of("activations"),
      port::output("loss", "[2]").of("f64").doc_text("sum over targets, and their number")};
  static constexpr ComponentInfo kInfo{.id = "mse",
                                       .summary = "squared error of predictions against targets, per element",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Mse(const Options& options) : Loss(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  /// x - t, in the workspace and in the dtype of statistics; 0 for targets that do not count.
  struct Error {
    TensorView values;
    std::int64_t counted = 0;
  };
  Error difference(RunContext& context) const;

  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  LossSum sum_;
  WorkspaceRef left_, right_, narrow_;
};

/// Layer `accuracy`: number of targets that are the greatest logit of their row (the first of equals). A
/// metric beside the trained loss: its gradient is zero.
class Accuracy final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("metric", "\"accuracy\"").doc_text("name of the metric"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("logits", "[batch, ..., classes]").of("activations"),
      port::input("targets", "[...]").of("i32").doc_text("one per row; negative ones do not count"),
      port::output("counts", "[2]").of("f64").doc_text("right ones, and all")};
  static constexpr ComponentInfo kInfo{.id = "accuracy",
                                       .summary = "share of targets that have the greatest logit",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Accuracy(const Options& options) : Loss(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LossSum sum_;
  WorkspaceRef wide_;
  std::vector<double> logits_;  // on the host, where rows are compared
  std::vector<std::int32_t> targets_;
};

}  // namespace tenon::nn
