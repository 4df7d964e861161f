// The layer of halo_conv_test.cpp: a convolution over a signal that is sharded over two ranks.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/transport.hpp>

#include <algorithm>

namespace rehearsal {

using namespace tenon;

inline TensorView f64(double* data, std::int64_t count) {
  return {data, Shape{count}, DType::kF64};
}

/// y[i] = w[0] x[i - 1] + w[1] x[i] + w[2] x[i + 1], zero outside the whole signal; w is held by all ranks.
class HaloConv final : public Layer {
 public:
  static constexpr ComponentInfo kInfo{.id = "halo_conv", .summary = "convolution over a cut signal"};
  explicit HaloConv(const Options&) {}
  void infer(InferContext& context) override {
    axis_ = context.grid().axes() > 0 ? context.grid().axis(0) : nullptr;
    ParameterSpec w;
    w.name = "w", w.dtype = DType::kF64, w.shape = Shape{3}, w.init_scale = 1;
    w_ = context.parameter(w);
    context.keep_input(0);
    context.output(context.input(0));
  }
  void forward(ForwardContext& context) override {
    const auto x = context.input(0).span<double>(), y = context.output(0).span<double>();
    const double* w = context.parameter(w_).as<double>();
    const auto n = x.size();
    double halo[2] = {0, 0};  // x[-1], x[n]
    swap_edges(x[0], x[n - 1], halo[0], halo[1]);
    for (std::size_t i = 0; i < n; ++i)
      y[i] = w[0] * (i == 0 ? halo[0] : x[i - 1]) + w[1] * x[i] + w[2] * (i + 1 == n ? halo[1] : x[i + 1]);
  }
  void backward(BackwardContext& context) override {
    const auto x = context.input(0).span<double>(), dy = context.output_gradient(0).span<double>();
    const double* w = context.parameter(w_).as<double>();
    const auto dx = context.input_gradient(0).view.span<double>();
    const auto n = x.size();
    double halo[2] = {0, 0}, back[2] = {0, 0}, dw[3] = {0, 0, 0};
    swap_edges(x[0], x[n - 1], halo[0], halo[1]);
    for (std::size_t i = 0; i < n; ++i) {
      dx[i] = (i + 1 == n ? 0 : w[0] * dy[i + 1]) + w[1] * dy[i] + (i == 0 ? 0 : w[2] * dy[i - 1]);
      dw[0] += dy[i] * (i == 0 ? halo[0] : x[i - 1]);
      dw[1] += dy[i] * x[i];
      dw[2] += dy[i] * (i + 1 == n ? halo[1] : x[i + 1]);
    }
    swap_edges(w[0] * dy[0], w[2] * dy[n - 1], back[0],
               back[1]);  // gradients of the neighbours' halos, which are this rank's edges
    dx[0] += back[0], dx[n - 1] += back[1];
    if (axis_ != nullptr) axis_->all_reduce(f64(dw, 3), ReduceOp::kSum);
    std::copy_n(dw, 3, context.gradient(w_).view.as<double>());
  }
  void* query(std::string_view) override { return nullptr; }

 private:
  /// Sends `low` to the previous rank and `high` to the next one, and receives theirs; without a neighbour
  /// the value stays.
  void swap_edges(double low, double high, double& from_before, double& from_behind) {
    if (axis_ == nullptr) return;
    const bool first = axis_->rank() == 0;
    double &mine = first ? high : low, &theirs = first ? from_behind : from_before;
    const Request sent = axis_->start_send(f64(&mine, 1), first ? 1 : 0, 0);
    axis_->receive(f64(&theirs, 1), first ? 1 : 0, 0);
    axis_->wait(sent);
  }
  Communicator* axis_ = nullptr;
  ParameterRef w_;
};

}  // namespace rehearsal
