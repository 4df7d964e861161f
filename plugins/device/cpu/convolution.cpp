// Convolutions from images (family Convolutions): each product by oneDNN or by the kernels of this tree,
// whichever a model of their costs says is faster. The model knows shapes alone, so a plan is the same on
// each run.
#include "convolution.hpp"
#include "common.hpp"
#include "device_common/convolutions.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace tenon::cpu {

namespace {

/// Each product by one of two plans; both have one where some product needs it.
class ChosenConvolution final : public Convolution {
 public:
  using Choice = std::array<bool, kConvolutionProducts>;  ///< true: by the kernels
  ChosenConvolution(std::unique_ptr<Convolution> library, std::unique_ptr<Convolution> kernels,
                    const Choice& by_kernels)
      : library_(std::move(library)), kernels_(std::move(kernels)), by_kernels_(by_kernels) {}

  std::size_t scratch_bytes() const override {
    return std::max(library_->scratch_bytes(), kernels_->scratch_bytes());
  }
  void forward(TensorView x, TensorView w, TensorView bias, TensorView y, TensorView scratch) override {
    check(scratch, device_arguments::ConvolutionShape::kForward);
    plan(kConvolutionForward).forward(x, w, bias, y, scratch);
  }
  void backward_input(TensorView w, TensorView dy, TensorView dx, bool accumulate,
                      TensorView scratch) override {
    check(scratch, device_arguments::ConvolutionShape::kBackwardInput);
    plan(kConvolutionInput).backward_input(w, dy, dx, accumulate, scratch);
  }
  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    check(scratch, device_arguments::ConvolutionShape::kBackwardWeight);
    plan(kConvolutionWeight).backward_weight(x, dy, dw, accumulate, scratch);
  }

 private:
  Convolution& plan(int product) const {
    return by_kernels_[static_cast<std::size_t>(product)] ? *kernels_ : *library_;
  }
  void check(const TensorView& scratch, const char* where) const {
    device_arguments::convolution_room(scratch, scratch_bytes(), kCacheLine, where);
  }

  std::unique_ptr<Convolution> library_, kernels_;
  Choice by_kernels_;
};

class CpuConvolutions final : public Convolutions {
 public:
  explicit CpuConvolutions(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) override {
    device_arguments::check_convolution(spec);
    if (spec.dtype != DType::kF32 || !device_arguments::is_ordinary(spec)) return nullptr;
    auto own = make_kernel_convolution(kernels_, spec);
    std::unique_ptr<Convolution> library;
#ifndef TENON_PORTABLE_THREADS
    if (kernels_.onednn && !all_by_kernels(own, spec)) library = make_onednn_convolution(kernels_, spec);
#endif
    if (own == nullptr) return library;
    if (library == nullptr) return own;
    const auto choice = choice_of(spec);
    if (std::none_of(choice.begin(), choice.end(), [](bool by_kernels) { return by_kernels; }))
      return library;
    return std::make_unique<ChosenConvolution>(std::move(library), std::move(own), choice);
  }

 private:
  ChosenConvolution::Choice choice_of(const ConvolutionSpec& spec) const {
    const bool avx512 = std::string_view(kernels_.table->name) != "avx2";
    ChosenConvolution::Choice choice{};
    for (int product = 0; product < kConvolutionProducts; ++product)
      choice[static_cast<std::size_t>(product)] = kernels_are_faster(spec, product, avx512);
    return choice;
  }
  [[maybe_unused]] bool all_by_kernels(const std::unique_ptr<Convolution>& own,
                                       const ConvolutionSpec& spec) const {
    const auto choice = choice_of(spec);
    return own != nullptr &&
           std::all_of(choice.begin(), choice.end(), [](bool by_kernels) { return by_kernels; });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Convolutions> make_convolutions(const Kernels& kernels) {
  return std::make_unique<CpuConvolutions>(kernels);
}

}  // namespace tenon::cpu
