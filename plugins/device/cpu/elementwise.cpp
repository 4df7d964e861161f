// Maps over flat tensors (family Elementwise). Every element depends on its own inputs alone.
#include "device_common/elementwise.hpp"
#include "common.hpp"

#include <atomic>
#include <cmath>
#include <cstring>

namespace tenon::cpu {
namespace {

using kernels::Arith;
using kernels::Bf16;

class CpuElementwise final : public Elementwise {
 public:
  explicit CpuElementwise(const Kernels& kernels) : kernels_(kernels) {}

  void fill(TensorView y, double value) override {
    if (y.empty()) return;
    if (value == 0) {
      auto* bytes = static_cast<char*>(y.data);
      parallel_for(y.bytes(), kFlatBlock * 4,
                   [&](std::int64_t begin, std::int64_t end) { std::memset(bytes + begin, 0, end - begin); });
      return;
    }
    const auto fill_integers = [&](auto tag) {
      using T = typename decltype(tag)::type;
      T* out = y.as<T>();
      const T item = static_cast<T>(value);
      parallel_for(y.elements(), kFlatBlock,
                   [&](std::int64_t begin, std::int64_t end) { std::fill(out + begin, out + end, item); });
    };
    if (device_arguments::with_integer(y.dtype, fill_integers)) return;
    map(y, "fill", [&](auto& ops, auto* out, std::int64_t, std::int64_t n) {
      using S = std::remove_pointer_t<decltype(out)>;
      ops.fill(static_cast<Arith<S>>(value), out, n);
    });
  }

  void scale(TensorView y, double factor) override {
    map(y, "scale", [&](auto& ops, auto* out, std::int64_t, std::int64_t n) {
      using S = std::remove_pointer_t<decltype(out)>;
      ops.scale(static_cast<Arith<S>>(factor), out, out, n);
    });
  }

  void axpy(double a, TensorView x, TensorView y) override {
    map(y, "axpy",
        [&](auto& ops, auto* out, std::int64_t at, std::int64_t n) {
          using S = std::remove_pointer_t<decltype(out)>;
          ops.axpy(static_cast<Arith<S>>(a), x.as<S>() + at, out, n);
        },
        {x});
  }

  void lerp(TensorView y, TensorView x, double weight) override {
    map(y, "lerp",
        [&](auto& ops, auto* out, std::int64_t at, std::int64_t n) {
          using S = std::remove_pointer_t<decltype(out)>;
          ops.lerp(static_cast<Arith<S>>(weight), out, x.as<S>() + at, out, n);
        },
        {x});
  }

  void subtract(TensorView a, TensorView b, TensorView y) override {
    map(y, "subtract",
        [&](auto&, auto* out, std::int64_t at, std::int64_t n) {
          using S = std::remove_pointer_t<decltype(out)>;
          const S* left = a.as<S>() + at;
          const S* right = b.as<S>() + at;
          for (std::int64_t i = 0; i < n; ++i) out[i] = narrow<S>(widen(left[i]) - widen(right[i]));
        },
        {a, b});
  }

  std::int64_t subtract_targets(TensorView a, TensorView b, TensorView y) override {
    std::atomic<std::int64_t> counted = 0;
    map(y, "subtract_targets",
        [&](auto&, auto* out, std::int64_t at, std::int64_t n) {
          using S = std::remove_pointer_t<decltype(out)>;
          const S* left = a.as<S>() + at;
          const S* right = b.as<S>() + at;
          std::int64_t numbers = 0;
          for (std::int64_t i = 0; i < n; ++i) {
            const auto target = widen(right[i]);
            const bool counts = !std::isnan(target);
            out[i] = counts ? narrow<S>(widen(left[i]) - target) : S{};
            numbers += counts ? 1 : 0;
          }
          counted += numbers;
        },
        {a, b});
    return counted;
  }

  void add(TensorView a, TensorView b, TensorView y) override {
    map(y, "add",
        [&](auto& ops, auto* out, std::int64_t at, std::int64_t n) {
          using S = std::remove_pointer_t<decltype(out)>;
          ops.add(a.as<S>() + at, b.as<S>() + at, out, n);
        },
        {a, b});
  }

  void convert(TensorView x, TensorView y) override {
    const std::int64_t n = device_arguments::converted_elements(x, y);
    if (n > 0) convert_array(kernels_, x.dtype, x.data, y.dtype, y.data, n);
  }

  void add_bias(TensorView x, TensorView bias, TensorView y) override {
    const std::int64_t columns = bias.elements();
    if (y.elements() == 0) return;
    const std::int64_t rows = columns == 0 ? 0 : y.elements() / columns;
    with_storage(y.dtype, "add_bias", [&](auto tag) {
      using S = typename decltype(tag)::type;
      S* out = checked<S>(y, rows * columns, "add_bias", "y");
      const S* in = checked<S>(x, rows * columns, "add_bias", "x");
      const auto* shift = checked<Arith<S>>(bias, columns, "add_bias", "bias");
      parallel_for(rows, row_block(columns), [&](std::int64_t begin, std::int64_t end) {
        kernels_.ops<S>().elementwise.add_bias(in + begin * columns, shift, out + begin * columns,
                                               end - begin, columns);
      });
    });
  }

 private:
  /// Calls body(operators, y + at, at, n) for blocks of y, after a check that the inputs match it.
  template <class Body>
  void map(const TensorView& y, const char* where, Body body, std::initializer_list<TensorView> inputs = {}) {
    device_arguments::with_map(y, inputs, where, [&]<class S>(S* out, std::int64_t n) {
      const auto& ops = kernels_.ops<S>().elementwise;
      parallel_for(n, kFlatBlock,
                   [&](std::int64_t begin, std::int64_t end) { body(ops, out + begin, begin, end - begin); });
    });
  }

  Kernels kernels_;
};

}  // namespace

std::unique_ptr<Elementwise> make_elementwise(const Kernels& kernels) {
  return std::make_unique<CpuElementwise>(kernels);
}

}  // namespace tenon::cpu
