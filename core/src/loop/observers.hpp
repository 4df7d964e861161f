// The observers of a rank, and the tensors that they are shown. Calls come from one thread at a time.
#pragma once

#include "loop/parts.hpp"
#include "loop/replica.hpp"
#include "loop/spans.hpp"

#include <tenon/numerics.hpp>
#include <tenon/phases.hpp>

#include <functional>
#include <memory>
#include <span>
#include <vector>

namespace tenon::train {

// The observers of one rank: calls those that a record concerns, and ends one that throws. Calls come from
// one thread at a time.

class Observers final : public PhaseObserver {
 public:
  /// `parts` and the others outlive this.
  Observers(std::vector<Part<Observer>>& parts, RankHost& host, SpanRecorder& spans);

  bool wants_tensors() const;
  bool wants_numerics() const;
  bool wants_phases() const;
  void start(const RunInfo& info);
  TensorRequest tensors(std::int64_t slot);
  /// Whether an observer wants the operands of this slot.
  bool numerics(std::int64_t slot);
  void operand(const OperandNumerics& operand);
  void output(const ObservedOutput& output);
  void parameters(std::span<const ObservedParameter> parameters);
  /// The model's row tables; no observer is called when there are none.
  void tables(std::span<const ParameterInfo> tables);
  /// Rows of one table that an applied slot read.
  void accesses(const RowGradient& rows);
  void metric(const Metric& metric);
  void on_phase(Phase phase, double at_s) override;
  /// Spans since the last slot, then the slot.
  void slot(const SlotRecord& record);
  void finish(std::string_view status, std::string_view message);

 private:
  struct Entry {
    Part<Observer>* part = nullptr;
    bool spans = false;
    TensorObserver* tensors = nullptr;
    NumericsObserver* numerics = nullptr;
    RowObserver* rows = nullptr;
    PhaseObserver* phases = nullptr;
    TensorRequest request;
    bool hears_operands = false;  ///< of the slot that runs
    bool dropped = false;
  };
  template <typename Call>
  void call(Entry& entry, Call&& body);
  template <typename Call>
  void call_all(Call&& body);
  void drop(Entry& entry, const char* reason);
  void deliver_spans();

  RankHost& host_;
  SpanRecorder& spans_;
  std::vector<Entry> entries_;
};

// Shows observers the tensors that they asked for of a slot: outputs during its first forward, operands of
// products during its first micro-batch, and parameters around its update. Without such an observer it owns
// no memory and does nothing.

class TensorWatch final : NumericsSink {
 public:
  /// All outlive this. Null observers: shows nothing.
  TensorWatch(Observers* observers, RankReplica& replica, Executor& executor);

  void begin_slot(std::int64_t slot);
  /// Before the first forward of the slot.
  void begin_forward();
  /// Whether an observer wants the outputs of that forward.
  bool wants_outputs() const { return request_.outputs; }
  /// An output of it, right after it was computed.
  void output(std::string_view node, std::string_view type, int output, const TensorView& value);
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
