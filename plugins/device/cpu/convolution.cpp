// Convolutions from images (family Convolutions): oneDNN's, for f32 where its loops beat windows and
// products.
#include "device_common/convolutions.hpp"
#include "families.hpp"
#ifndef TENON_PORTABLE_THREADS
#include "convolution_onednn.hpp"
#endif

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

class CpuConvolutions final : public Convolutions {
 public:
  explicit CpuConvolutions(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<Convolution> prepare(const ConvolutionSpec& spec) override {
    if (spec.window.spatial < 1 || spec.window.spatial > 3) {
      fail_config(
          fmt::format("device cpu: convolutions have 1 to 3 dimensions, found {}", spec.window.spatial));
    }
#ifndef TENON_PORTABLE_THREADS
    if (kernels_.onednn && spec.dtype == DType::kF32 && device_arguments::is_ordinary(spec))
      return make_onednn_convolution(kernels_, spec);
#endif
    return nullptr;
  }

 private:
  [[maybe_unused]] Kernels kernels_;  // a build without oneDNN has no use for it
};

}  // namespace

std::unique_ptr<Convolutions> make_convolutions(const Kernels& kernels) {
  return std::make_unique<CpuConvolutions>(kernels);
}

}  // namespace tenon::cpu
