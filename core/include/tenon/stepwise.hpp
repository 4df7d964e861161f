// Ability of layers ("tenon.layer.stepwise/1"): one more position of a sequence from kept state, for
// generation, where the whole sequence would be computed again for every token. Nothing asks for it yet.
#pragma once

#include <tenon/layer.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

TENON_ABI_BEGIN

/// One position of all sequences. Values have the layer's shapes without the axis of positions, [batch, ...].
class StepContext {
 public:
  virtual ~StepContext();
  virtual std::int64_t position() const = 0;  ///< 0, 1, ... since begin()
  virtual TensorView input(int index) = 0;
  virtual TensorView output(int index) = 0;
  virtual TensorView parameter(ParameterRef ref) = 0;
  /// As begin() and the steps before have left it: state_bytes() of host memory, 64-byte aligned.
  virtual std::span<std::byte> state() = 0;
};

/// Offered by layers whose value at a position depends on inputs up to that position alone. The values of
/// steps equal those of forward() over the whole sequence, to the bit: sums run in one order. infer() came
/// before, in a graph that was built without training.
class StepwiseLayer {
 public:
  static constexpr const char* kId = "tenon.layer.stepwise/1";
  virtual ~StepwiseLayer();
  /// For `batch` sequences of at most `positions`; 0 where nothing is kept.
  virtual std::size_t state_bytes(std::int64_t batch, std::int64_t positions) const = 0;
  /// `batch` new sequences begin: forgets what `state` held.
  virtual void begin(std::int64_t batch, std::int64_t positions, std::span<std::byte> state) = 0;
  virtual void step(StepContext& context) = 0;
};

TENON_ABI_END
