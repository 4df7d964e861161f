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

constexpr std::size_t kPassAlignment = 256;

class CudaConvolution final : public Convolution {
 public:
  CudaConvolution(Queue& queue, const ConvolutionSpec& spec, std::unique_ptr<ConvolutionPasses> passes)
      : queue_(queue),
        spec_(spec),
        passes_(std::move(passes)),
        x_elements_(spec.batch * spec.channels * spec.window.elements()),
        w_elements_(spec.features * spec.channels * spec.window.offsets()),
        y_elements_(spec.batch * spec.features * spec.window.places()) {}

  // Room to align the library's memory, should the caller's scratch not be aligned.
  std::size_t scratch_bytes() const override {
    const std::size_t bytes = passes_->scratch_bytes();
    return bytes == 0 ? 0 : bytes + kPassAlignment;
  }

  void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) override {
    constexpr const char* kWhere = "convolution";
    auto* const to = checked<float>(y, y_elements_, kWhere, "y");
    const float* const added = spec_.bias ? checked<float>(bias, spec_.features, kWhere, "bias") : nullptr;
    passes_->forward(checked<float>(x, x_elements_, kWhere, "x"), checked<float>(w, w_elements_, kWhere, "w"),
                     to, room(scratch, kWhere));
    if (added == nullptr && spec_.epilogue == Epilogue::kNone) return;
    map_sets(queue_, kWhere, {spec_.batch, spec_.features, spec_.window.places()}, to,
             kernels::cuda::BiasAndMap<float>{to, added, map_of(spec_.epilogue)});
  }

  void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                      TensorView scratch) override {
    constexpr const char* kWhere = "convolution, backward to x";
    passes_->backward_input(checked<float>(w, w_elements_, kWhere, "w"),
                            checked<float>(dy, y_elements_, kWhere, "dy"),
                            checked<float>(dx, x_elements_, kWhere, "dx"), accumulate, room(scratch, kWhere));
  }

  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    constexpr const char* kWhere = "convolution, backward to w";
    passes_->backward_weight(
        checked<float>(x, x_elements_, kWhere, "x"), checked<float>(dy, y_elements_, kWhere, "dy"),
        checked<float>(dw, w_elements_, kWhere, "dw"), accumulate, room(scratch, kWhere));
  }

 private:
  void* room(const TensorView& scratch, const char* where) const {
    const std::size_t bytes = scratch_bytes();
    if (bytes == 0) return nullptr;
    if (scratch.data == nullptr || scratch.space != MemorySpace::kCuda ||
        static_cast<std::size_t>(scratch.bytes()) < bytes) {
      fail_run(std::string("device ") + kDeviceName + ": " + where + ": scratch must have " +
               std::to_string(bytes) + " bytes, found " + std::to_string(scratch.bytes()));
    }
    const std::size_t beyond = reinterpret_cast<std::uintptr_t>(scratch.data) % kPassAlignment;
    return scratch.as<std::byte>() + (beyond == 0 ? 0 : kPassAlignment - beyond);
  }

  Queue& queue_;
  ConvolutionSpec spec_;
  std::unique_ptr<ConvolutionPasses> passes_;
  std::int64_t x_elements_, w_elements_, y_elements_;
};

class CudaConvolutions final : public Convolutions {
 public:
  explicit CudaConvolutions(Queue& queue) : queue_(queue) {}

  std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) override {
    if (spec.window.spatial < 1 || spec.window.spatial > 3) {
      fail_config(std::string("device ") + kDeviceName + ": convolutions have 1 to 3 dimensions, found " +
                  std::to_string(spec.window.spatial));
    }
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
