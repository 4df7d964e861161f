// Operator family of a device for normalisations over elements that lie on several ranks of a model grid:
// sums over the elements of one rank, and what follows from their totals over all ranks. Who adds them up is
// the layer. Conventions are those of <tenon/operators.hpp>.
#pragma once

#include <tenon/device.hpp>

TENON_ABI_BEGIN

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
