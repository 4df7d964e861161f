// Complex products per mode (family ModeProducts). Groups of modes are shared among threads, each with a
// workspace of its own; no sharing changes a bit.
#include "families.hpp"

#include <fmt/format.h>

namespace tenon::cpu {
namespace {

/// Reals that fill whole lines of a cache.
constexpr std::int64_t kAlignedReals = 16;

template <class T>
class CpuModeProduct final : public ModeProduct {
 public:
  CpuModeProduct(const kernels::ModeProductOps<T>& ops, const ModeProductSpec& spec)
      : ops_(ops),
        groups_((spec.modes + kernels::kModeGroup - 1) / kernels::kModeGroup),
        parts_(parallel_threads()) {
    shape_.batch = spec.batch, shape_.in = spec.in, shape_.out = spec.out, shape_.modes = spec.modes;
    workspace_ = (ops.workspace(shape_) + kAlignedReals - 1) / kAlignedReals * kAlignedReals;
  }

  std::size_t scratch_bytes() const override {
    return static_cast<std::size_t>(workspace_ * parts_) * sizeof(T);
  }

  void forward(TensorView x, TensorView w, TensorView y, TensorView scratch) override {
    auto args = shape_;
    args.x = complex(x, args.batch * args.in, "x");
    args.w = weights(w, "w");
    args.y = complex(y, args.batch * args.out, "y");
    run(args, scratch, ops_.forward);
  }
  void backward_input(TensorView w, TensorView dy, TensorView dx, TensorView scratch) override {
    auto args = shape_;
    args.w = weights(w, "w");
    args.dy = complex(dy, args.batch * args.out, "dy");
    args.dx = complex(dx, args.batch * args.in, "dx");
    run(args, scratch, ops_.backward_input);
  }
  void backward_weight(TensorView x, TensorView dy, TensorView dw, bool accumulate,
                       TensorView scratch) override {
    auto args = shape_;
    args.x = complex(x, args.batch * args.in, "x");
    args.dy = complex(dy, args.batch * args.out, "dy");
    args.dw = weights(dw, "dw");
    args.accumulate_dw = accumulate;
    run(args, scratch, ops_.backward_weight);
  }

 private:
  static constexpr const char* kWhere = "mode product";

  T* complex(const TensorView& view, std::int64_t lines, const char* name) const {
    constexpr DType dtype = std::is_same_v<T, double> ? DType::kC128 : DType::kC64;
    if (view.dtype != dtype || view.elements() != lines * shape_.modes ||
        (view.data == nullptr && view.elements() > 0))
      refuse_view(view, dtype, lines * shape_.modes, kWhere, name);
    return view.as<T>();
  }
  T* weights(const TensorView& view, const char* name) const {
    return checked<T>(view, shape_.in * shape_.out * shape_.modes * 2, kWhere, name);
  }

  template <class Kernel>
  void run(const kernels::ModeProductArgs<T>& args, const TensorView& scratch, Kernel kernel) const {
    if (groups_ == 0) return;
    if (workspace_ > 0 &&
        (scratch.data == nullptr || scratch.bytes() < static_cast<std::int64_t>(scratch_bytes())))
      refuse_view(scratch, DType::kU8, static_cast<std::int64_t>(scratch_bytes()), kWhere, "scratch");
    const std::int64_t block = (groups_ + parts_ - 1) / parts_;
    parallel_for(groups_, block, [&](std::int64_t begin, std::int64_t end) {
      auto mine = args;
      mine.workspace = static_cast<T*>(scratch.data) + begin / block * workspace_;
      kernel(mine, begin, end);
    });
  }

  const kernels::ModeProductOps<T>& ops_;
  kernels::ModeProductArgs<T> shape_;
  std::int64_t groups_, parts_, workspace_ = 0;
};

class CpuModeProducts final : public ModeProducts {
 public:
  explicit CpuModeProducts(const Kernels& kernels) : kernels_(kernels) {}

  std::unique_ptr<ModeProduct> prepare(const ModeProductSpec& spec) override {
    if (spec.batch < 0 || spec.in < 0 || spec.out < 0 || spec.modes < 0)
      fail_config("device cpu: mode product: no extent may be negative");
    if (spec.dtype == DType::kC64)
      return std::make_unique<CpuModeProduct<float>>(kernels_.table->modes, spec);
    if (spec.dtype == DType::kC128)
      return std::make_unique<CpuModeProduct<double>>(kernels_.f64->modes, spec);
    fail_config(
        fmt::format("device cpu: mode product: expected c64 or c128, found {}", dtype_name(spec.dtype)));
  }

 private:
  Kernels kernels_;
};

}  // namespace

std::unique_ptr<ModeProducts> make_mode_products(const Kernels& kernels) {
  return std::make_unique<CpuModeProducts>(kernels);
}

}  // namespace tenon::cpu
