// Element-by-element operators: activations, sums, scaling, conversion, dropout.
// Each element depends on its own inputs (and index) alone, so callers may split [0, n) anywhere. Outputs may
// alias inputs exactly. Only exp, log, tanh, erf, GELU and SiLU are approximate: the rest has the bits of the
// formulas below, each operation rounded once in Arith<S>, in every kernel set.
#pragma once

#include <tenon/kernels/types.hpp>

namespace tenon::kernels {

/// Bounds on the errors of the vector functions against the exact value, in units in the last place, for
/// normal results (log: any positive argument); the tests sample 200 000 arguments per range, evenly over bit
/// patterns. Where exp is below the smallest normal, its absolute error is at most 2^-149.
inline constexpr double kExpUlp = 2.0;
inline constexpr double kLogUlp = 2.0;
inline constexpr double kTanhUlp = 3.0;
inline constexpr double kErfUlp = 3.0;

template <class S>
struct ElementwiseOps {
  void (*exp)(const S* x, S* y, std::int64_t n);
  void (*log)(const S* x, S* y, std::int64_t n);  ///< -infinity at 0, NaN below; subnormals are taken exactly
  void (*tanh)(const S* x, S* y, std::int64_t n);
  void (*erf)(const S* x, S* y, std::int64_t n);

  /// x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
  void (*gelu_tanh_forward)(const S* x, S* y, std::int64_t n);
  void (*gelu_tanh_backward)(const S* x, const S* dy, S* dx, std::int64_t n);
  /// x/2 (1 + erf(x / sqrt(2))).
  void (*gelu_erf_forward)(const S* x, S* y, std::int64_t n);
  void (*gelu_erf_backward)(const S* x, const S* dy, S* dx, std::int64_t n);
  /// x / (1 + exp(-x)).
  void (*silu_forward)(const S* x, S* y, std::int64_t n);
  void (*silu_backward)(const S* x, const S* dy, S* dx, std::int64_t n);

  void (*add)(const S* a, const S* b, S* y, std::int64_t n);               ///< y = a + b
  void (*scale)(Arith<S> alpha, const S* x, S* y, std::int64_t n);         ///< y = alpha x
  void (*axpy)(Arith<S> alpha, const S* x, S* y, std::int64_t n);          ///< y = y + (alpha x)
  void (*lerp)(Arith<S> w, const S* a, const S* b, S* y, std::int64_t n);  ///< y = a + (w (b - a))
  void (*fill)(Arith<S> value, S* y, std::int64_t n);
  /// y[i, j] = x[i, j] + bias[j] for `rows` rows of `cols`.
  void (*add_bias)(const S* x, const Arith<S>* bias, S* y, std::int64_t rows, std::int64_t cols);

  /// y[i] = keep ? x[i] scale : 0, where keep = philox_word(key, first_index + i) >= threshold. Backward is
  /// the same call on dy. Arguments from dropout_threshold(p) and 1 / (1 - p).
  void (*dropout)(std::uint64_t key, std::uint64_t first_index, std::uint32_t threshold, Arith<S> scale,
                  const S* x, S* y, std::int64_t n);
};

/// Words below this are dropped: p in [0, 1) as a fraction of 2^32, rounded down.
constexpr std::uint32_t dropout_threshold(double p) {
  return p <= 0 ? 0u : p >= 1 ? 0xffffffffu : static_cast<std::uint32_t>(p * 4294967296.0);
}

struct ConvertOps {
  void (*f32_to_bf16)(const float* x, Bf16* y, std::int64_t n);  ///< as to_bf16
  void (*bf16_to_f32)(const Bf16* x, float* y, std::int64_t n);
};

}  // namespace tenon::kernels
