// Replacement for cuDNN where there is no device: sums over windows, as plain as can be.
#include "convolution_library.hpp"
#include "convolution_sums.hpp"

namespace tenon::cuda {
namespace {

/// One thread per element of the result.
template <class Sum>
struct PlainSums {
  Sum sum;
  float* to;
  bool accumulate;

  void operator()(const kernels::cuda::Block& block) const {
    kernels::cuda::for_each_element(block, sum.items(), [&](std::int64_t item) {
      const float total = sum(item);
      to[item] = accumulate ? to[item] + total : total;
    });
  }
};

class PlainPasses final : public ConvolutionPasses {
 public:
  PlainPasses(Queue& queue, const ConvolutionSpec& spec) : queue_(queue), shape_(shape_of(spec)) {}

  std::size_t scratch_bytes() const override { return 0; }
  void forward(const float* x, const float* w, float* y, void*) override {
    start(ForwardSum{shape_, x, w}, y, false);
  }
  void backward_input(const float* w, const float* dy, float* dx, bool accumulate, void*) override {
    start(InputSum{shape_, w, dy}, dx, accumulate);
  }
  void backward_weight(const float* x, const float* dy, float* dw, bool accumulate, void*) override {
    start(WeightSum{shape_, x, dy}, dw, accumulate);
  }

 private:
  template <class Sum>
  void start(const Sum& sum, float* to, bool accumulate) {
    queue_.launch("convolution", grid_for(sum.items()), PlainSums<Sum>{sum, to, accumulate});
  }

  Queue& queue_;
  ConvolutionShape shape_;
};

class PlainLibrary final : public ConvolutionLibrary {
 public:
  explicit PlainLibrary(Queue& queue) : queue_(queue) {}
  std::unique_ptr<ConvolutionPasses> prepare(const ConvolutionSpec& spec) override {
    return std::make_unique<PlainPasses>(queue_, spec);
  }
  std::string name() const override { return "convolutions by plain sums"; }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<ConvolutionLibrary> ConvolutionLibrary::open(Queue& queue, std::string&) {
  return std::make_unique<PlainLibrary>(queue);
}

}  // namespace tenon::cuda
