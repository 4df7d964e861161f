// Complex products per mode (family ModeProducts).
#include "arguments.hpp"
#include "complex_views.hpp"
#include "families.hpp"

#include <tenon/kernels/cuda/mode_product.hpp>

#include <string>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Threads below which rows and columns are spread over as many of them as there are.
constexpr std::int64_t kBusyThreads = std::int64_t{132} * 1024;

template <class T>
class CudaModeProduct final : public ModeProduct {
 public:
  CudaModeProduct(Queue& queue, const ModeProductSpec& spec) : queue_(queue) {
    shape_.batch = spec.batch, shape_.in = spec.in, shape_.out = spec.out, shape_.modes = spec.modes;
  }

  std::size_t scratch_bytes() const override { return 0; }

  void forward(TensorView x, TensorView w, TensorView y, TensorView) override {
    auto args = shape_;
    args.x = modes(x, args.batch * args.in, "x");
    args.w = weights(w, "w");
    args.y = modes(y, args.batch * args.out, "y");
    start(bodies::mode_forward<T, bodies::kModeSide>(args), bodies::mode_forward<T, 1>(args));
  }
  void backward_input(TensorView w, TensorView dy, TensorView dx, TensorView) override {
    auto args = shape_;
    args.w = weights(w, "w");
    args.dy = modes(dy, args.batch * args.out, "dy");
    args.dx = modes(dx, args.batch * args.in, "dx");
    start(bodies::mode_backward_input<T, bodies::kModeSide>(args), bodies::mode_backward_input<T, 1>(args));
  }
  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate, TensorView) override {
    auto args = shape_;
    args.x = modes(x, args.batch * args.in, "x");
    args.dy = modes(dy, args.batch * args.out, "dy");
    args.dw = weights(dw, "dw");
    args.accumulate_dw = accumulate;
    start(bodies::mode_backward_weight<T, bodies::kModeSide>(args), bodies::mode_backward_weight<T, 1>(args));
  }

 private:
  static constexpr const char* kWhere = "mode product";

  T* modes(const TensorView& view, std::int64_t lines, const char* name) const {
    return checked_complex<T>(view, lines * shape_.modes, kWhere, name);
  }
  T* weights(const TensorView& view, const char* name) const {
    return checked<T>(view, shape_.in * shape_.out * shape_.modes * 2, kWhere, name);
  }

  /// The same sums by few threads or by many: those of a mode are chains of their own.
  template <class Few, class Many>
  void start(const Few& few, const Many& many) {
    if (many.items() == 0) return;
    if (few.items() >= kBusyThreads) {
      queue_.launch(kWhere, grid_for(few.items()), few);
    } else {
      queue_.launch(kWhere, grid_for(many.items()), many);
    }
  }

  Queue& queue_;
  kernels::ModeProductArgs<T> shape_;
};

class CudaModeProducts final : public ModeProducts {
 public:
  explicit CudaModeProducts(Queue& queue) : queue_(queue) {}

  std::unique_ptr<ModeProduct> prepare(const ModeProductSpec& spec) override {
    if (spec.batch < 0 || spec.in < 0 || spec.out < 0 || spec.modes < 0)
      fail_config("device " + std::string(kDeviceName) + ": mode product: no extent may be negative");
    if (spec.dtype == DType::kC64) return std::make_unique<CudaModeProduct<float>>(queue_, spec);
    if (spec.dtype == DType::kC128) return std::make_unique<CudaModeProduct<double>>(queue_, spec);
    fail_config("device " + std::string(kDeviceName) + ": mode product: expected c64 or c128, found " +
                std::string(dtype_name(spec.dtype)));
  }

 private:
  Queue& queue_;
};

}  // namespace

std::unique_ptr<ModeProducts> make_mode_products(Queue& queue) {
  return std::make_unique<CudaModeProducts>(queue);
}

}  // namespace tenon::cuda
