// Layers that copy boxes of points: padding and cropping on the far sides, and coordinates as channels.
#pragma once

#include "common.hpp"

#include <tenon/ops/copy.hpp>
#include <tenon/ops/elementwise.hpp>

#include <vector>

namespace tenon::fno {

/// Copies of boxes between row-major tensors, for padding, cropping and additional channels. A device with
/// memory of its own has operators for them.
class BoxCopier {
 public:
  void infer(InferContext& context);
  /// Copies the elements with indices below `box` along every dimension from `from` to the same place in
  /// `to`. Elements of `to` outside stay as they are.
  void copy(TensorView from, TensorView to, const Shape& box);
  /// sink (+)= the box of `gradient`, zero outside; `room` is a workspace for a tensor of the sink's size.
  void add(TensorView gradient, const Shape& box, const GradientSink& sink, TensorView room);

 private:
  Elementwise* elementwise_ = nullptr;
  StridedCopyOps* ops_ = nullptr;  ///< null where the device's memory is the host's
};

/// Layers `pad_far` and `crop_far`: points of zeros after the last one of each dimension, and their removal.
/// A transform treats its points as one period; padding separates the far side from the near one. Padding
/// only the far sides keeps the place of the point with index 0.
class Margin : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integers("widths", nullptr)
          .mandatory()
          .between(0, 2147483647)
          .in_unit("points")
          .doc_text("points per dimension after the last, or one number for all"),
  };

  void infer(InferContext& context) final;
  void forward(ForwardContext& context) final;
  void backward(BackwardContext& context) final;
  void* query(std::string_view) final { return nullptr; }

 protected:
  Margin(const Options& options, bool pads) : options_(options), pads_(pads) {}

 private:
  const Options& options_;  // outlives the layer
  bool pads_;
  Shape box_;  ///< of the points that both have
  Elementwise* elementwise_ = nullptr;
  BoxCopier boxes_;
  WorkspaceRef room_;
};

class PadFar final : public Margin {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "pad_far",
                                       .summary = "zeros after the last point of each dimension",
                                       .options = kOptions,
                                       .ports = kPorts};
  explicit PadFar(const Options& options) : Margin(options, true) {}
};

class CropFar final : public Margin {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{.id = "crop_far",
                                       .summary = "removes the last points of each dimension",
                                       .options = kOptions,
                                       .ports = kPorts};
  explicit CropFar(const Options& options) : Margin(options, false) {}
};

/// Layer `coordinates`: x [batch, channels, points...] with one more channel per dimension, which holds i / n
/// at point i of n. Index 0 is on the boundary and the end of the last interval is not, as in periodic grids.
class Coordinates final : public Layer {
 public:
  static constexpr PortSpec kPorts[] = {port::input("x", "[batch, channels, ...]").of("activations"),
                                        port::output("y", "[batch, channels, ...]").of("activations")};
  static constexpr ComponentInfo kInfo{
      .id = "coordinates", .summary = "the place of every point as further channels", .ports = kPorts};

  explicit Coordinates(const Options&) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  Shape x_;
  std::vector<double> grid_;  ///< [dims, points...]
  BoxCopier boxes_;
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  WorkspaceRef room_, grid_room_;  ///< the second for the grid, where the device has memory of its own
};

}  // namespace tenon::fno
