// Operator families of a device for layers between products: normalisations, pointwise maps, dropout and
// softmax cross-entropy. Conventions are those of <tenon/ops/dense.hpp>.
#pragma once

#include <tenon/ops/dense.hpp>
#include <tenon/random.hpp>

TENON_ABI_BEGIN

/// Normalisation, pointwise maps, dropout, softmax cross-entropy. x, y, dy, dx: [rows, columns].
class NeuralOps {
 public:
  static constexpr const char* kId = "tenon.device.nn/1";
  virtual ~NeuralOps();
  /// y = (x - mean) * rstd * gain + bias; mean, rstd: [rows].
  virtual void layer_norm(TensorView x, TensorView gain, TensorView bias, double eps, TensorView y,
                          TensorView mean, TensorView rstd) = 0;
  /// dgain, dbias: [columns], accumulate_parameters says whether they are added to. scratch:
  /// layer_norm_scratch().
  virtual void layer_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                                   TensorView dy, TensorView dx, bool accumulate, TensorView dgain,
                                   TensorView dbias, bool accumulate_parameters, TensorView scratch) = 0;
  virtual std::size_t layer_norm_scratch(std::int64_t rows, std::int64_t columns, DType activation) const = 0;
  virtual void activation(Epilogue map, TensorView x, TensorView y) = 0;
  virtual void activation_backward(Epilogue map, TensorView x, TensorView dy, TensorView dx,
                                   bool accumulate) = 0;
  /// y = keep ? x / (1 - p) : 0, where keep of element i is a function of (key, step, first + i) alone.
  virtual void dropout(TensorView x, TensorView y, double p, RandomKey key, std::uint64_t step,
                       std::uint64_t first, bool accumulate) = 0;
  /// logits: [rows, columns], targets: i32 [rows], target < 0 = ignored. loss and lse: [rows] (loss 0 where
  /// ignored). The wanted distribution of a row is (1 - smoothing) onehot(target) + smoothing / columns.
  virtual void softmax_cross_entropy(TensorView logits, TensorView targets, double smoothing, TensorView loss,
                                     TensorView lse) = 0;
  /// dlogits = (softmax - wanted) * scale, zero rows where ignored; may be logits' own memory, or bf16.
  virtual void softmax_cross_entropy_backward(TensorView logits, TensorView targets, double smoothing,
                                              TensorView lse, double scale, TensorView dlogits) = 0;
};

/// Settings of a batch normalisation. x is [batch, channels, ...].
struct BatchNormSpec {
  double eps = 1e-5;
  double momentum = 0.1;  ///< weight of the new value in the running ones
};

/// Normalisations other than over a row's mean and variance. Empty gain or bias: 1 or 0.
class NormalisationOps {
 public:
  static constexpr const char* kId = "tenon.device.normalisation/1";
  virtual ~NormalisationOps();
  /// y = x * rstd * gain, rstd = 1 / sqrt(mean(x^2) + eps) of the row; x, y: [rows, columns], rstd: [rows].
  virtual void rms_norm(TensorView x, TensorView gain, double eps, TensorView y, TensorView rstd) = 0;
  /// dx may be empty, dgain too.
  virtual void rms_norm_backward(TensorView x, TensorView gain, TensorView rstd, TensorView dy, TensorView dx,
                                 bool accumulate, TensorView dgain, bool accumulate_parameters) = 0;
  /// Normalises each channel by its mean and biased variance over the batch. mean, rstd: [channels], kept for
  /// backward. The running values, unless empty, are blended with the mean and the unbiased variance.
  virtual void batch_norm(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                          TensorView running_mean, TensorView running_variance, TensorView y, TensorView mean,
                          TensorView rstd) = 0;
  /// Normalises by given values: evaluation.
  virtual void batch_norm_fixed(const BatchNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                                TensorView mean, TensorView variance, TensorView y) = 0;
  virtual void batch_norm_backward(TensorView x, TensorView gain, TensorView mean, TensorView rstd,
                                   TensorView dy, TensorView dx, bool accumulate, TensorView dgain,
                                   TensorView dbias, bool accumulate_parameters) = 0;
};

/// Normalisations over elements that are sharded over ranks of a mesh: sums over the elements of one
/// rank, and results from their totals over all ranks. The layer adds them up.
///
/// Elements that are normalised together are a set, of which every rank holds some: x [outer, sets, inner].
/// Sets are channels in batch normalisation (samples, channels, points) and rows in layer and RMS
/// normalisation (1, rows, columns).
struct PartNormSpec {
  double count = 1;          ///< elements of one set on all ranks together
  double eps = 1e-5;         ///< added to the variance
  double momentum = 0.1;     ///< weight of the new value in the running ones
  bool gain_per_set = true;  ///< gain and bias are [sets]; false: [inner]
};

/// Sums are f64 for activations of every dtype, of terms computed in f64, and those of no elements are 0;
/// their order depends on shapes alone. Means, reciprocal deviations and running values: [sets]. An empty
/// mean counts as zero and is not looked for, as RMS normalisation has it; empty gain or bias: 1 or 0.
class PartNormOps {
 public:
  static constexpr const char* kId = "tenon.device.part_norm/1";
  virtual ~PartNormOps();
  /// sums[s] = sum of x over this rank's elements of set s.
  virtual void sums(TensorView x, TensorView sums) = 0;
  /// squares[s] = sum of (x - sums[s] / count)^2 over this rank's elements, where `sums` are totals; empty
  /// ones count as zero.
  virtual void squares(const PartNormSpec& spec, TensorView x, TensorView sums, TensorView squares) = 0;
  /// From totals: mean = sums / count and rstd = 1 / sqrt(squares / count + eps). The running values, unless
  /// empty, are blended with the mean and the unbiased variance squares / (count - 1).
  virtual void statistics(const PartNormSpec& spec, TensorView sums, TensorView squares, TensorView mean,
                          TensorView rstd, TensorView running_mean, TensorView running_variance) = 0;
  /// y = (x - mean) * rstd * gain + bias.
  virtual void normalise(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView bias,
                         TensorView mean, TensorView rstd, TensorView y) = 0;
  /// sums: [2, sets], with h = (x - mean) * rstd: the sum of g over this rank's elements, then of g * h. g is
  /// dy * gain, but dy itself where a set has one gain.
  virtual void backward_sums(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean,
                             TensorView rstd, TensorView dy, TensorView sums) = 0;
  /// dx (+)= rstd * (g - sums[0] / count - h * sums[1] / count), times the gain of the set where it has one;
  /// sums are totals, the first of which do not enter without a mean. dx may be dy.
  virtual void backward(const PartNormSpec& spec, TensorView x, TensorView gain, TensorView mean,
                        TensorView rstd, TensorView dy, TensorView sums, TensorView dx, bool accumulate) = 0;
};

TENON_ABI_END
