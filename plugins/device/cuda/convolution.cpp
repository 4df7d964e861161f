// Convolutions from images (family Convolutions), in f32, by a library where there is one; a kernel applies
// bias and map afterwards.
#include "common.hpp"
#include "convolution_library.hpp"
#include "device_common/convolutions.hpp"
#include "sums.hpp"

#include <tenon/kernels/cuda/part_norm.hpp>

#include <mutex>
#include <string>
#include <utility>

namespace tenon::cuda {
namespace {

using device_arguments::ConvolutionShape;

constexpr std::size_t kPassAlignment = 256;

class CudaConvolution final : public Convolution {
 public:
  CudaConvolution(Queue& queue, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPasses> passes)
      : queue_(queue), spec_(spec), shape_(spec), passes_(std::move(passes)) {}

  // Room to align the library's memory, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    const std::size_t bytes = passes_->scratch_bytes();
    return bytes == 0 ? 0 : bytes + kPassAlignment;
  }

  void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) override {
    constexpr const char* kWhere = ConvolutionShape::kForward;
    const auto of = shape_.forward(x, w, bias, y);
    passes_->forward(of.x, of.w, of.y, room(scratch, kWhere));
    if (of.bias == nullptr && spec_.epilogue == Epilogue::kNone) return;
    map_sets(queue_, kWhere, {spec_.batch, spec_.features, spec_.window.places()}, of.y,
             kernels::cuda::BiasAndMap<float>{of.y, of.bias, map_of(spec_.epilogue)});
  }

  void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                      TensorView scratch) override {
    const auto of = shape_.backward_input(w, dy, dx);
    passes_->backward_input(of.w, of.y, of.x, accumulate, room(scratch, ConvolutionShape::kBackwardInput));
  }

  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    const auto of = shape_.backward_weight(x, dy, dw);
    passes_->backward_weight(of.x, of.y, of.w, accumulate, room(scratch, ConvolutionShape::kBackwardWeight));
  }

 private:
  void* room(const TensorView& scratch, const char* where) const {
    return device_arguments::convolution_room(scratch, scratch_bytes(), kPassAlignment, where);
  }

  Queue& queue_;
  ConvolutionSpec spec_;
  ConvolutionShape shape_;
  std::unique_ptr<ConvolutionPasses> passes_;
};

class CudaConvolutions final : public Convolutions {
 public:
  explicit CudaConvolutions(Queue& queue) : queue_(queue) {}

  std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) override {
    device_arguments::check_convolution(spec);
    if (spec.dtype != DType::kF32 || !device_arguments::is_ordinary(spec)) return nullptr;
    ConvolutionLibrary* const library = opened();
    auto passes = library == nullptr ? nullptr : library->prepare(spec);
    if (passes == nullptr) return nullptr;
    return std::make_unique<CudaConvolution>(queue_, spec, std::move(passes));
  }

  std::string description() const {
    const std::lock_guard lock(opening_);
    if (library_ != nullptr) return library_->name();
    return reason_.empty() ? "" : "convolutions by windows (" + reason_ + ")";
  }

 private:
  /// Opened by the first layer that asks. Null where it is not installed.
  ConvolutionLibrary* opened() {
    const std::lock_guard lock(opening_);
    if (library_ == nullptr && reason_.empty()) library_ = ConvolutionLibrary::open(queue_, reason_);
    return library_.get();
  }

  Queue& queue_;
  mutable std::mutex opening_;
  std::unique_ptr<ConvolutionLibrary> library_;
  std::string reason_;  ///< why there is no library
};

}  // namespace

std::unique_ptr<Convolutions> make_convolutions(Queue& queue) {
  return std::make_unique<CudaConvolutions>(queue);
}

std::string describe_convolutions(const Convolutions& convolutions) {
  return static_cast<const CudaConvolutions&>(convolutions).description();
}

}  // namespace tenon::cuda
