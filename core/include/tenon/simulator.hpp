// Contract `simulator/1`: makes the samples of a simulation, one per task. A task is a pure function of
// (options, shared arrays, seed, index): done again, by another process or in another order, it gives the
// same bytes. `tenon simulate` runs tasks, stores samples and repeats lost tasks.
#pragma once

#include <tenon/tensor.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

/// A named array of every sample. The name becomes a file's: lower case, digits, '_'.
struct SimulatedField {
  std::string name;
  DType dtype = DType::kF32;  ///< f32, f64, i32, i64 or u8
  Shape shape;          ///< of one sample, at least one dimension; channels first where a model reads it
  bool target = false;  ///< what a model learns to predict; else what it is given
};

/// Identifies a sample. Draws come from <tenon/random.hpp>: random_key(seed, purpose), step = index.
struct SimulationTask {
  std::uint64_t seed = 1;
  std::int64_t index = 0;
};

/// Stops a task and receives its progress.
class TaskWatch {
 public:
  virtual ~TaskWatch();
  /// To be called at least every tenth of a second. Throws DeadlineError when the task's time is over and
  /// CancelledError when its result is not wanted any more; both are to pass through.
  virtual void step(std::int64_t done, std::int64_t total) = 0;
};

/// Calls come from one thread. Host memory; it belongs to the caller.
class Simulator {
 public:
  using Interface = Simulator;
  static constexpr const char* kKind = "simulator/1";
  virtual ~Simulator();
  /// Fields that a task makes, at least one; the same for equal options, and before and after any call.
  virtual std::span<const SimulatedField> fields() const = 0;
  /// Arrays that all tasks read, computed once per simulation; may be empty.
  virtual std::span<const SimulatedField> shared() const = 0;
  /// Fills the arrays of shared(), pure in (options, seed).
  virtual void share(std::uint64_t seed, std::span<const TensorView> arrays) = 0;
  /// Writes every element of every field. Error(kRun), with step and cause, when there is no such sample: a
  /// broken CFL condition, a number that is not finite, a solver that does not converge.
  virtual void run(const SimulationTask& task, std::span<const TensorView> shared,
                   std::span<const TensorView> fields, TaskWatch& watch) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// For simulators whose tasks share nothing.
class SimulatorBase : public Simulator {
 public:
  ~SimulatorBase() override;
  std::span<const SimulatedField> shared() const override;
  void share(std::uint64_t seed, std::span<const TensorView> arrays) override;
  void* query(std::string_view interface_id) override;
};

TENON_ABI_END
