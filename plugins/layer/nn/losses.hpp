// Losses and metrics of predictions against targets, and the sum over shards that all losses share.
#pragma once

#include "common.hpp"
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

/// Layer `softmax_cross_entropy`: the loss of plain logits [..., classes] against class numbers [...]. For
/// language models use `head_cross_entropy`, which never holds the logits of a whole batch. Rows may be
/// sharded over a mesh, classes not.
class SoftmaxCrossEntropy final : public Layer, public LossLayer {
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
      : smoothing_(options.real("label_smoothing")), metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  double smoothing_;
  std::string metric_;
  double seed_ = 1;
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
class Mse final : public Layer, public LossLayer {
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

  explicit Mse(const Options& options) : metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double seed) override { seed_ = seed; }
  std::string_view metric() const override { return metric_; }

 private:
  /// x - t, in the workspace and in the dtype of statistics; 0 for targets that do not count.
  struct Error {
    TensorView values;
    std::int64_t counted = 0;
  };
  Error difference(RunContext& context) const;

  std::string metric_;
  double seed_ = 1;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  LossSum sum_;
  WorkspaceRef left_, right_, narrow_;
};

/// Layer `accuracy`: number of targets that are the greatest logit of their row (the first of equals). A
/// metric beside the trained loss: its gradient is zero.
class Accuracy final : public Layer, public LossLayer {
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

  explicit Accuracy(const Options& options) : metric_(options.text("metric")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return interface_id == LossLayer::kId ? static_cast<LossLayer*>(this) : nullptr;
  }
  void set_seed(double) override {}
  std::string_view metric() const override { return metric_; }

 private:
  std::string metric_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LossSum sum_;
  WorkspaceRef wide_;
  std::vector<double> logits_;  // on the host, where rows are compared
  std::vector<std::int32_t> targets_;
};

}  // namespace tenon::nn
