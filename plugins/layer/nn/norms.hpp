// Normalisations: per channel over the batch, and per row with or without a mean; each also over elements on
// several ranks.
#pragma once

#include "common.hpp"

#include <tenon/ops/elementwise.hpp>
#include <tenon/ops/norm.hpp>
#include <tenon/sdk/linear_map.hpp>

#include <memory>
#include <optional>
#include <string_view>

namespace tenon::nn {

// Normalisation over elements on several ranks of a mesh. The ranks add up sums of values, then of
// squared distances from the mean of all of them: shards may be uneven and empty, so means of means would be
// wrong, and a mean that is far from zero costs no digits. All ranks get the same bits.

/// Dimensions [first, end) of x, whose indices count the sets: the elements of one are normalised together.
struct NormSets {
  int first = 0, end = 0;
};
/// Whether elements of one set are on several ranks.
bool lie_apart(const Layout& x, const NormSets& sets);

/// A vector along dimension `dim` of x, as vector_parameter, sharded like that dimension.
ParameterSpec vector_along(const InferContext& context, std::string_view member, const Layout& x, int dim,
                           Initializer init);

/// Vectors of a normalisation; empty ones as PartNormOps has them.
struct NormVectors {
  TensorView gain = {}, bias = {}, mean = {}, rstd = {}, running_mean = {}, running_variance = {};
};

/// Normalises input 0 into output 0. forward and backward are collective.
class NormParts {
 public:
  /// Collective. Fills in the count of `spec`; without `centred` there are no means.
  NormParts(InferContext& context, const Layout& x, const NormSets& sets, const PartNormSpec& spec,
            bool centred);

  /// Writes mean, rstd and running values.
  void forward(ForwardContext& context, const NormVectors& vectors);
  /// Writes the gradient of x. Returns the totals of PartNormOps::backward_sums, which are valid during this
  /// call of the layer.
  TensorView backward(BackwardContext& context, const NormVectors& vectors);

 private:
  TensorView sets_of(TensorView view) const { return view.reshaped(x_); }
  /// `count` vectors of sums after the first `skipped` ones.
  TensorView sums(RunContext& context, std::int64_t skipped, std::int64_t count) const;

  PartNormSpec spec_;
  bool centred_;
  Shape x_;  ///< [outer, sets, inner] of this rank
  PartNormOps* ops_ = nullptr;
  std::unique_ptr<LinearMap> total_, totals_;  ///< of one vector of sums, and of two
  WorkspaceRef sums_;
};

/// Layer `batch_norm`: normalises each channel of x [batch, channels, ...] over the batch (Ioffe, Szegedy
/// 2015), as PyTorch defines it: the biased variance normalises, the unbiased one goes into the running
/// value. Running values are buffers, staged until the slot is applied; evaluation normalises by them. Over a
/// mesh x may be sharded in any way; statistics are those of all shards, and sharded channels shard
/// their vectors.
class BatchNorm final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance"),
      option::real("momentum", "0.1")
          .between(0, 1)
          .doc_text("weight of a batch in the running mean and variance"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "batch_norm",
      .summary = "zero mean and unit variance per channel over the batch, gain and bias",
      .options = kOptions,
      .ports = kPorts};

  explicit BatchNorm(const Options& options)
      : spec_{.eps = options.real("eps"), .momentum = options.real("momentum")} {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  /// Writes totals of a gradient into its sink.
  void write(BackwardContext& context, TensorView totals, const GradientSink& sink);

  BatchNormSpec spec_;
  Device* device_ = nullptr;
  NormalisationOps* ops_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a channel is on several ranks
  ParameterRef gain_, bias_, running_mean_, running_variance_;
  SavedRef mean_, rstd_;
  WorkspaceRef narrow_;
};

/// Layer `layer_norm`: normalises the last dimension and applies a learned gain and bias (Ba, Kiros, Hinton
/// 2016). Over a mesh rows may be sharded, and columns too, which then shard gain and bias.
class LayerNorm final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-5").at_least(0).doc_text("added to the variance"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "layer_norm",
      .summary = "zero mean and unit variance over the last dimension, gain and bias",
      .options = kOptions,
      .ports = kPorts};

  explicit LayerNorm(const Options& options) : eps_(options.real("eps")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return positionwise(this, interface_id, positionwise_);
  }

 private:
  double eps_;
  NeuralOps* nn_ = nullptr;
  bool positionwise_ = false;  ///< rows of x are positions
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a row is on several ranks
  ParameterRef gain_, bias_;
  GradientSum gain_sum_, bias_sum_;
  SavedRef mean_, rstd_;
  WorkspaceRef scratch_;
};

/// Layer `rms_norm`: divides the last dimension by its root mean square and applies a learned gain (Zhang,
/// Sennrich 2019). Over a mesh rows may be sharded, and columns too, which then shard the gain. With
/// `columns` it does so to each group of columns, e.g. each head; then they are whole on every rank.
class RmsNorm final : public Layer, public PositionwiseLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("eps", "1e-6").at_least(0).doc_text("added to the mean square"),
      option::integer("columns", nullptr)
          .between(1, 2147483647)
          .doc_text("columns that are normalised together, with one gain for all such groups; absent: all"),
  };
  static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("activations"),
                                        port::output("y", "[..., width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "rms_norm",
                                       .summary = "unit root mean square over the last dimension, gain",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit RmsNorm(const Options& options)
      : eps_(options.real("eps")), columns_(options.has("columns") ? options.integer("columns") : 0) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override {
    return positionwise(this, interface_id, positionwise_);
  }

 private:
  /// A row of the result is what is normalised together.
  TensorView rows(TensorView view) const;

  double eps_;
  std::int64_t columns_;       ///< of a group; 0: all columns
  bool positionwise_ = false;  ///< rows of x are positions
  NormalisationOps* ops_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  std::optional<NormParts> parts_;  ///< where a row is on several ranks
  ParameterRef gain_;
  GradientSum gain_sum_;
  SavedRef rstd_;
};

}  // namespace tenon::nn
