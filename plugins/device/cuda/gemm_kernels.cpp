// Products by the kernels of this tree, and the tails of those that a library computes.
#include "common.hpp"
#include "gemm.hpp"

#include <tenon/kernels/cuda/gemm.hpp>

namespace tenon::cuda {
namespace {

namespace bodies = kernels::cuda;

/// Fewer large tiles than this leave a device idle; small tiles are then used.
constexpr std::int64_t kLargeTiles = 132;

template <class T, class C>
bodies::GemmTail<T, C> tail_of(const GemmSpec& spec, const TensorView& c, const TensorView& bias) {
  return {c.as<C>(), spec.bias ? bias.as<T>() : nullptr, spec.accumulate, map_of(spec.epilogue)};
}

template <class A, class B, class T, class C>
class KernelGemm final : public Gemm {
 public:
  KernelGemm(Queue& queue, const GemmSpec& spec) : queue_(queue), spec_(spec) {}

  std::size_t scratch_bytes() const override { return 0; }

  void run(TensorView a, TensorView b, TensorView c, TensorView bias, float alpha,
           TensorView scratch) override {
    device_arguments::check_gemm(spec_, a, b, c, bias, scratch, 0);
    if (spec_.m == 0 || spec_.n == 0 || spec_.batch == 0) return;
    // Only products of operands of one type justify a second kernel.
    if constexpr (std::is_same_v<A, B> && !std::is_same_v<T, double>) {
      if (spec_.batch * bodies::TiledGemm<A, B, T, C, 128>::tiles(spec_.m, spec_.n) >= kLargeTiles)
        return start<128>(a, b, c, bias, alpha);
    }
    start<64>(a, b, c, bias, alpha);
  }

 private:
  template <int Tile>
  void start(const TensorView& a, const TensorView& b, const TensorView& c, const TensorView& bias,
             float alpha) {
    using Body = bodies::TiledGemm<A, B, T, C, Tile>;
    Body body;
    body.m = spec_.m, body.n = spec_.n, body.k = spec_.k;
    body.a = a.as<A>(), body.transpose_a = spec_.transpose_a;
    body.b = b.as<B>(), body.transpose_b = spec_.transpose_b;
    body.alpha = spec_.alpha ? static_cast<T>(alpha) : T{1};
    body.tail = tail_of<T, C>(spec_, c, bias);
    queue_.launch("gemm", Body::grid(spec_.m, spec_.n, spec_.batch), body);
  }

  Queue& queue_;
  GemmSpec spec_;
};

/// Calls body(std::type_identity<S>) for f32 and bf16.
template <class Body>
decltype(auto) with_narrow(DType dtype, Body&& body) {
  return dtype == DType::kBF16 ? body(std::type_identity<Bf16>{}) : body(std::type_identity<float>{});
}

template <class T, class C>
void finish(Queue& queue, const GemmSpec& spec, const void* scaled, const TensorView& c,
            const TensorView& bias) {
  const std::int64_t elements = c.elements();
  if (elements == 0) return;
  queue.launch("gemm: tail", grid_for(elements),
               bodies::FinishGemm<T, C>{static_cast<const T*>(scaled), elements, spec.n,
                                        tail_of<T, C>(spec, c, bias)});
}

}  // namespace

std::unique_ptr<Gemm> make_kernel_gemm(Queue& queue, const GemmSpec& spec) {
  if (spec.a == DType::kF64) return std::make_unique<KernelGemm<double, double, double, double>>(queue, spec);
  return with_narrow(spec.a, [&](auto a) {
    return with_narrow(spec.b, [&](auto b) {
      return with_narrow(spec.c, [&](auto c) -> std::unique_ptr<Gemm> {
        return std::make_unique<KernelGemm<typename decltype(a)::type, typename decltype(b)::type, float,
                                           typename decltype(c)::type>>(queue, spec);
      });
    });
  });
}

void finish_gemm(Queue& queue, const GemmSpec& spec, const void* scaled, const TensorView& c,
                 const TensorView& bias) {
  if (spec.c == DType::kF64) return finish<double, double>(queue, spec, scaled, c, bias);
  with_narrow(spec.c,
              [&](auto tag) { finish<float, typename decltype(tag)::type>(queue, spec, scaled, c, bias); });
}

}  // namespace tenon::cuda
