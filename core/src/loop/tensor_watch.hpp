// Shows observers the tensors that they asked for of a slot: outputs during its first forward, operands of
// products during its first micro-batch, and parameters around its update. Without such an observer it owns
// no memory and does nothing.
#pragma once

#include "loop/observers.hpp"
#include "loop/replica.hpp"

#include <memory>
#include <vector>

namespace tenon::train {

class TensorWatch final : NumericsSink {
 public:
  /// All outlive this. Null observers: shows nothing.
  TensorWatch(Observers* observers, RankReplica& replica, Executor& executor);

  void begin_slot(std::int64_t slot);
  /// Around the first forward of the slot.
  void begin_forward();
  void end_forward();
  /// After the backward of the same micro-batch.
  void end_backward();
  /// Around the optimizer's update.
  void before_update();
  void after_update(double gradient_scale);

 private:
  void add(const OperandNumerics& operand) override { observers_->operand(operand); }
  TensorView host_view(const TensorView& view, std::size_t buffer);

  Observers* observers_ = nullptr;
  RankReplica& replica_;
  Executor& executor_;
  TensorRequest request_;
  bool numerics_ = false;
  std::unique_ptr<ParameterSet> before_;
  std::vector<ObservedParameter> shown_;
  std::vector<std::vector<std::byte>> staging_;  ///< for memory that is not the host's
};

}  // namespace tenon::train
