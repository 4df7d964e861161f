// Layers over images [batch, channels, height, width]: convolution, pools, and the row per sample after them.
#pragma once

#include "common.hpp"
#include "layer_common/options.hpp"

#include <tenon/layer.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/reduce.hpp>

#include <vector>

namespace tenon::nn {

// The window of convolutions and pools over images [batch, channels, height, width], from their options.

/// Two extents from a list option of one number (both) or two (height, width).
void set_pair(const InferContext& context, const Options& options, std::string_view name,
              std::int64_t (&pair)[3]);
/// Window over x from the options kernel, stride (absent: kernel) and padding; refuses one that does not fit.
WindowSpec window_over(const InferContext& context, const Options& options, const Shape& x);
/// The same with the option dilation.
WindowSpec dilated_window_over(const InferContext& context, const Options& options, const Shape& x);
/// Shape of y where the window slides over images of these samples and channels.
Shape image_of(const WindowSpec& window, std::int64_t batch, std::int64_t channels);

/// Layer `conv2d`: y = w * x + b over images [batch, channels, height, width]. The windows of x become rows
/// of a matrix, so each group's product is a linear site with k = channels of the group x kernel, and its
/// number format is the precision policy's choice. Rows exist for a few samples at a time; backward
/// recomputes them. Where the policy keeps the site as it is and the device computes convolutions, there are
/// no rows.
class Conv2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::features("channels of the result"),
      layer_common::kernel("[height, width] of the window, or one number for both"),
      layer_common::stride(),
      layer_common::padding("rows and columns of zeros on each side"),
      layer_common::dilation(),
      layer_common::groups(),
      layer_common::bias(),
      layer_common::filter_init_scale(),
      layer_common::module_kind("\"conv\""),
      layer_common::weight_name(),
      layer_common::chunk(
          "samples whose windows are held as rows at a time, where there are rows; 0: as many as keep "
          "them below 1 Mi elements"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, channels, height, width]").of("activations"),
      port::output("y", "[batch, channels, height, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "conv2d",
                                       .summary = "convolution of images, as linear sites over their windows",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Conv2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  /// Windows of one group of some samples, as rows; and the rows of the product.
  TensorView columns(RunContext& context, std::int64_t samples) const;
  TensorView rows(RunContext& context, std::int64_t samples) const;
  std::int64_t groups() const { return static_cast<std::int64_t>(sites_.size()); }

  const Options& options_;  // outlives the layer
  WindowSpec window_;
  WindowSpec point_;  ///< of one element: converts rows of a product to planes and back
  std::int64_t batch_ = 0, places_ = 0, chunk_ = 0;
  std::int64_t n_ = 0, k_ = 0;  ///< of one group
  std::int64_t group_channels_ = 0;
  bool has_bias_ = false;
  DType dtype_ = DType::kF32;
  WindowOps* ops_ = nullptr;
  ReduceOps* reduce_ = nullptr;
  ParameterRef weight_, bias_;
  std::vector<SiteRef> sites_;
  WorkspaceRef columns_, rows_, bias_scratch_;
};

/// Layers `max_pool2d` and `average_pool2d`: the greatest element, or the mean, of each window of an image
/// [batch, channels, height, width]. The maximum keeps the index of its element, and nothing of x.
class MaxPool2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::kernel("[height, width] of the window, or one number for both"),
      layer_common::stride_or_kernel(),
      layer_common::padding("on each side, at most half the kernel; never chosen"),
      layer_common::dilation(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, channels, height, width]").of("activations"),
      port::output("y", "[batch, channels, height, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "max_pool2d",
                                       .summary = "greatest element of each window of an image",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit MaxPool2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the layer
  WindowSpec window_;
  WindowOps* ops_ = nullptr;
  SavedRef index_;
};

class AveragePool2d final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::boolean("global", "false")
          .doc_text("one window over the whole image; kernel and stride are not read"),
      option::integers("kernel", "[2]")
          .between(1, 32767)
          .doc_text("[height, width] of the window, or one number for both"),
      layer_common::stride_or_kernel(),
      layer_common::padding("rows and columns of zeros on each side, at most half "
                            "the kernel"),
      option::boolean("count_padding", "true").doc_text("whether zeros of the padding count as elements"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("x", "[batch, channels, height, width]").of("activations"),
      port::output("y", "[batch, channels, height, width]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "average_pool2d",
                                       .summary = "mean of each window of an image, or of the whole image",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit AveragePool2d(const Options& options) : options_(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  const Options& options_;  // outlives the layer
  WindowSpec window_;
  bool count_padding_ = true;
  WindowOps* ops_ = nullptr;
};

/// Layer `flatten`: [batch, a, b, ...] as [batch, a b ...]. Over a mesh the batch may be sharded, and
/// of the other dimensions the first with more than one element, whose shards are then runs of the result's
/// columns.
class Flatten final : public Layer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, ...]").of("activations"),
                                        port::output("y", "[batch, features]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "flatten", .summary = "one row per sample", .ports = kPorts};

  explicit Flatten(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

}  // namespace tenon::nn
