// Convolutions from images by the kernels of this tree. Each share of the work has a workspace, as many as
// the team had threads when the plan was made; the split of the work does not change a bit.
#include "common.hpp"
#include "convolution.hpp"
#include "device_common/convolutions.hpp"

#include <tenon/kernels/convolution.hpp>

#include <algorithm>
#include <string_view>

namespace tenon::cpu {
namespace {

using device_arguments::ConvolutionShape;

constexpr std::int64_t kLineFloats = kCacheLine / sizeof(float);

std::int64_t whole_lines(std::int64_t floats) {
  return (floats + kLineFloats - 1) / kLineFloats * kLineFloats;
}

kernels::ConvolutionArgs arguments_of(const ConvolutionSpec& spec) {
  kernels::ConvolutionArgs args;
  const WindowSpec& window = spec.window;
  for (int d = 0; d < 2; ++d) {
    args.window.in[d + 1] = window.extent[d], args.window.out[d + 1] = window.places(d);
    args.window.kernel[d + 1] = window.kernel[d], args.window.stride[d + 1] = window.stride[d];
    args.window.dilation[d + 1] = window.dilation[d], args.window.pad[d + 1] = window.pad_low[d];
  }
  args.batch = spec.batch, args.channels = spec.channels, args.features = spec.features;
  return args;
}

class KernelConvolution final : public Convolution {
 public:
  KernelConvolution(const Kernels& kernels, const ConvolutionSpec& spec)
      : kernels_(kernels),
        ops_(kernels.table->convolution),
        spec_(spec),
        shape_(spec),
        args_(arguments_of(spec)),
        parts_(parallel_threads()) {}

  // Room to align the workspaces, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    const std::int64_t floats =
        std::max({needed(ops_.forward), needed(ops_.backward_input), needed(ops_.backward_weight)});
    return static_cast<std::size_t>(floats) * sizeof(float) + kCacheLine;
  }

  void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) override {
    const auto of = shape_.forward(x, w, bias, y);
    kernels::ConvolutionArgs args = args_;
    args.x = of.x, args.w = of.w, args.bias = of.bias, args.y = of.y;
    run(ops_.forward, args, room(scratch, ConvolutionShape::kForward));
    if (spec_.epilogue == Epilogue::kNone) return;
    parallel_for(shape_.y_elements(), kFlatBlock, [&](std::int64_t begin, std::int64_t end) {
      map_forward(kernels_, spec_.epilogue, of.y + begin, of.y + begin, end - begin);
    });
  }

  void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                      TensorView scratch) override {
    const auto of = shape_.backward_input(w, dy, dx);
    kernels::ConvolutionArgs args = args_;
    args.w = of.w, args.dy = of.y, args.dx = of.x, args.accumulate = accumulate;
    run(ops_.backward_input, args, room(scratch, ConvolutionShape::kBackwardInput));
  }

  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    const auto of = shape_.backward_weight(x, dy, dw);
    kernels::ConvolutionArgs args = args_;
    args.x = of.x, args.dy = of.y, args.dw = of.w, args.accumulate = accumulate;
    run(ops_.backward_weight, args, room(scratch, ConvolutionShape::kBackwardWeight));
  }

 private:
  std::int64_t needed(const kernels::ConvolutionPass& pass) const {
    kernels::ConvolutionArgs args = args_;
    args.accumulate = true;
    return whole_lines(pass.shared(args)) + parts_ * whole_lines(pass.workspace(args));
  }

  float* room(const TensorView& scratch, const char* where) const {
    return reinterpret_cast<float*>(
        device_arguments::convolution_room(scratch, scratch_bytes(), kCacheLine, where));
  }

  void run(const kernels::ConvolutionPass& pass, const kernels::ConvolutionArgs& args, float* shared) const {
    float* const workspaces = shared + whole_lines(pass.shared(args));
    const std::int64_t stride = whole_lines(pass.workspace(args));
    const auto block_of = [this](std::int64_t items) {
      return std::max<std::int64_t>(1, (items + parts_ - 1) / parts_);
    };
    const std::int64_t before = pass.prepare_items(args), items = pass.items(args),
                       after = pass.finish_items(args);
    parallel_for(before, block_of(before),
                 [&](std::int64_t begin, std::int64_t end) { pass.prepare(args, begin, end, shared); });
    const std::int64_t block = block_of(items);
    parallel_for(items, block, [&](std::int64_t begin, std::int64_t end) {
      pass.run(args, begin, end, shared, workspaces + begin / block * stride);
    });
    parallel_for(after, std::max(kFlatBlock, block_of(after)),
                 [&](std::int64_t begin, std::int64_t end) { pass.finish(args, begin, end, shared); });
  }

  Kernels kernels_;
  const kernels::ConvolutionOps& ops_;
  ConvolutionSpec spec_;
  ConvolutionShape shape_;
  kernels::ConvolutionArgs args_;
  std::int64_t parts_;
};

}  // namespace

std::unique_ptr<Convolution> make_kernel_convolution(const Kernels& kernels, const ConvolutionSpec& spec) {
  constexpr std::int64_t kFewestPlaces = 8;  // with fewer, most lanes would be empty
  const WindowSpec& window = spec.window;
  if (kernels.table->convolution.forward.run == nullptr || window.spatial != 2 ||
      window.offsets() > kernels::kConvolutionOffsets || window.stride[0] > kernels::kConvolutionStride ||
      window.stride[1] > kernels::kConvolutionStride || window.places() < kFewestPlaces)
    return nullptr;
  return std::make_unique<KernelConvolution>(kernels, spec);
}

}  // namespace tenon::cpu
