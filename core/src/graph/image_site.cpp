// y = map(w * x + bias) over images, and its adjoints.
#include "graph/image_site.hpp"

#include "graph/operand_report.hpp"

#include <tenon/error.hpp>
#include <tenon/site_products.hpp>

#include <fmt/format.h>

#include <utility>

namespace tenon::graph {
namespace {

class ImageSite final : public LinearSite {
 public:
  ImageSite(const SiteInfo& info, SiteHost& host, std::unique_ptr<Convolution> convolution)
      : layer_(info.layer),
        site_(info.site),
        dtype_(info.activation),
        device_(host.device()),
        convolution_(std::move(convolution)) {}

  SiteMemory memory() const override {
    SiteMemory memory;
    memory.scratch = line_up(convolution_->scratch_bytes());
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    report(call, "fprop", "x", x, "w", w);
    convolution_->forward(x, w, bias, y, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    report(call, "dgrad", "dy", dy, "w", w);
    convolution_->backward_input(w, dy, dx, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    report(call, "wgrad", "dy", dy, "x", x);
    convolution_->backward_weight(x, dy, dw, accumulate, call.scratch);
  }

 private:
  /// Checks both operands of a product, and says what they hold to who wants to hear it.
  void report(const SiteCall& call, std::string_view product, std::string_view a_name, const TensorView& a,
              std::string_view b_name, const TensorView& b) const {
    if (a.dtype != dtype_ || b.dtype != dtype_) {
      fail_plugin(fmt::format(
          "layer '{}' passed {} and {} to a site whose activations are {}; convert before the call", layer_,
          dtype_name(a.dtype), dtype_name(b.dtype), dtype_name(dtype_)));
    }
    if (call.numerics == nullptr) return;
    report_plain_operand(device_, call, {layer_, site_, product, a_name}, a, a);
    report_plain_operand(device_, call, {layer_, site_, product, b_name}, b, b);
  }

  std::string layer_;
  int site_;
  DType dtype_;
  Device& device_;
  std::unique_ptr<Convolution> convolution_;
};

}  // namespace

std::unique_ptr<LinearSite> make_image_site(const SiteInfo& info, SiteHost& host,
                                            const ConvolutionSpec& images) {
  auto* family = static_cast<Convolutions*>(host.device().query(Convolutions::kId));
  if (family == nullptr || info.activation != info.parameter) return nullptr;
  ConvolutionSpec spec = images;
  spec.bias = info.bias, spec.epilogue = info.epilogue, spec.dtype = info.activation;
  auto convolution = family->prepare(spec);
  if (convolution == nullptr) return nullptr;
  return std::make_unique<ImageSite>(info, host, std::move(convolution));
}

}  // namespace tenon::graph
