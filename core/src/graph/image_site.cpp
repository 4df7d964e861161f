// y = map(w * x + bias) over images, and its adjoints.
#include "graph/image_site.hpp"

#include "graph/operand_report.hpp"

#include <tenon/site_products.hpp>

#include <utility>

namespace tenon::graph {
namespace {

class ImageSite final : public LinearSite {
 public:
  ImageSite(const SiteInfo& info, SiteHost& host, std::unique_ptr<Convolution> convolution)
      : sides_(info, host.device()), convolution_(std::move(convolution)) {}

  SiteMemory memory() const override {
    SiteMemory memory;
    memory.scratch = line_up(convolution_->scratch_bytes());
    return memory;
  }

  bool reads_input() const override { return true; }

  void fprop(const SiteCall& call, TensorView x, TensorView w, TensorView bias, TensorView y) override {
    take(call, "fprop", "x", x, "w", w);
    convolution_->forward(x, w, bias, y, call.scratch);
  }

  void dgrad(const SiteCall& call, TensorView dy, TensorView w, TensorView dx, bool accumulate) override {
    take(call, "dgrad", "dy", dy, "w", w);
    convolution_->backward_input(w, dy, dx, accumulate, call.scratch);
  }

  void wgrad(const SiteCall& call, TensorView x, TensorView dy, TensorView dw, bool accumulate) override {
    take(call, "wgrad", "dy", dy, "x", x);
    convolution_->backward_weight(x, dy, dw, accumulate, call.scratch);
  }

 private:
  void take(const SiteCall& call, std::string_view product, std::string_view a_name, const TensorView& a,
            std::string_view b_name, const TensorView& b) const {
    sides_.check(a, b);
    sides_.report(call, product, {a_name, a, a}, {b_name, b, b});
  }

  PlainOperands sides_;
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
