// Abilities of layers in graphs that run stepwise (ExecutorSpec::positions), for generation: a pass adds a
// few positions to sequences, from what layers have kept of the positions before. Every layer of such a graph
// offers one of the two.
#pragma once

#include <tenon/layer.hpp>

#include <cstdint>
#include <span>

TENON_ABI_BEGIN

/// Offered by layers that compute each position from their inputs at that position alone
/// ("tenon.layer.positionwise/1"): forward() serves, whatever the positions are.
class PositionwiseLayer {
 public:
  static constexpr const char* kId = "tenon.layer.positionwise/1";
  virtual ~PositionwiseLayer();
};

/// The sequences that a pass goes on with, by row of the batch.
struct Steps {
  std::span<const std::int64_t> first;  ///< position of the row's first place in its sequence; 0 begins one
  /// Places of the row that count; those after are padding. A row of which none counts has 0 in `first` and
  /// `kept`, and takes no part.
  std::span<const std::int64_t> count;
  std::span<const std::int64_t> kept;  ///< the row's row in `state`, no two alike
  /// i32 [batch, time], memory of the device: the position of every place in its sequence. Padding has the
  /// row's first.
  TensorView positions;
  TensorView state;  ///< u8 [sequences, bytes of infer_step()], memory of the device; empty: nothing kept
};

/// Offered by layers whose value at a position depends on that position and on inputs at those before it.
class StepwiseLayer {
 public:
  static constexpr const char* kId = "tenon.layer.stepwise/1";
  virtual ~StepwiseLayer();
  /// Called once, after infer(): prepares step() for sequences of at most `positions`, and declares its
  /// workspaces. Returns the bytes kept of one sequence; 0 where the number of a position says all. Throws
  /// Error(kConfig) for what cannot run stepwise.
  virtual std::int64_t infer_step(InferContext& context, std::int64_t positions) = 0;
  /// In place of forward(). A row begins a sequence, whatever its state holds, or goes on where its last pass
  /// ended: the values are those of forward() over the whole sequence, however it is split, on reference
  /// kernels to the bit. Values at padding mean nothing.
  virtual void step(ForwardContext& context, const Steps& steps) = 0;
};

TENON_ABI_END
