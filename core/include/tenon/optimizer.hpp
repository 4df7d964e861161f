// Contracts `optimizer/1` (the update rule) and `schedule/1` (learning rate as a function of the slot).
#pragma once

#include <tenon/options.hpp>
#include <tenon/parameter.hpp>

TENON_ABI_BEGIN

class Communicator;
class Device;
class StateVisitor;

/// A named state tensor of each parameter, owned by the core, zero at first. Checkpoints, syncs and recovery
/// see it as a ParameterSet of that name ("optimizer.<name>").
struct StateSlot {
  static constexpr std::uint32_t kWeight = 0xFFFFFFFF;   ///< as the weights
  static constexpr std::uint32_t kRow = 1, kColumn = 2;  ///< a value per index of dimension 0, of dimension 1
  static constexpr std::uint32_t kTensor = 0;            ///< one value

  const char* name;
  /// Dimensions of the parameter that the state has, bit d for dimension d; the others have the extent 1.
  /// Where a rank holds a part of such another dimension, the state is that of the whole: the rule sums over
  /// the mesh. A value per block of rows (a head) is kept in each of its rows. An elementwise rule has
  /// kWeight.
  std::uint32_t dimensions = kWeight;
};
/// Shape of the state beside weights of shape `weights`.
Shape state_shape(const StateSlot& slot, const Shape& weights);

/// Values of one update. `count` is the optimizer's own: applied updates so far plus one.
struct UpdateContext {
  double lr = 0;
  std::int64_t count = 1;
  double gradient_scale = 1;  ///< multiply gradients by this as they are read (unscaling and clipping)
  Device* device = nullptr;
};

/// A contiguous run of weights that share settings. For an elementwise rule it may span several parameters.
struct ParameterSlice {
  TensorView weights;  ///< flat for elementwise rules, else the parameter's own shape
  TensorView gradients;
  std::span<const TensorView> state;  ///< one per slot, shaped as the weights here or as the slot says
  bool decay = true;
  int parameter = -1;  ///< -1 when the slice spans several
};

class Optimizer {
 public:
  using Interface = Optimizer;
  static constexpr const char* kKind = "optimizer/1";
  virtual ~Optimizer();
  virtual double base_lr() const = 0;
  virtual std::span<const StateSlot> slots() const = 0;
  /// True if the rule acts on each element alone; complex weights then come as pairs of reals.
  virtual bool elementwise() const = 0;
  virtual void step(const UpdateContext& context, const ParameterSlice& slice) = 0;
  /// Scalars beside the slots and the count, which the core keeps.
  virtual void state(StateVisitor& visitor) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Base of most rules: the rate is the option "lr", each element is updated alone, and nothing is kept beside
/// the slots.
class OptimizerBase : public Optimizer {
 public:
  explicit OptimizerBase(const Options& options);
  ~OptimizerBase() override;
  double base_lr() const override;
  std::span<const StateSlot> slots() const override;
  bool elementwise() const override;
  void state(StateVisitor& visitor) override;
  void* query(std::string_view interface_id) override;

 private:
  double lr_;
};

/// Returns the same memory as the flat tensor that an elementwise rule gets: complex numbers as pairs of
/// reals.
TensorView flat_reals(TensorView view);

/// Facts for a rule that looks at whole tensors, before its first step. Valid for the run.
struct OptimizerSetup {
  std::span<const ParameterInfo> parameters;  ///< by ParameterSlice::parameter
  /// One per parameter, 1 on exactly one of the ranks that hold the same shard: a sum over the mesh counts it
  /// there.
  std::span<const std::uint8_t> first_holder;
  Communicator* mesh = nullptr;  ///< all ranks of the replica's mesh; null when it has one rank
  Device* device = nullptr;
  std::int64_t steps = 0;  ///< planned slots of the run
};

/// A rule that prepares ("tenon.optimizer.setup/1"): products, scratch memory, choices by name. All ranks of
/// a mesh step the same parameters in the same order, so step() may communicate over `mesh`.
class OptimizerBinding {
 public:
  static constexpr const char* kId = "tenon.optimizer.setup/1";
  virtual ~OptimizerBinding();
  /// Once, before the first step. Throws Error(kConfig) for a model that the rule cannot update.
  virtual void bind(const OptimizerSetup& setup) = 0;
};

/// Row-sparse updates ("tenon.optimizer.rows/1"). State tables have the rows of the weight table and `width`
/// elements each.
struct RowStateSlot {
  const char* name;
  std::int64_t width;  ///< 0 = as wide as the table
};

class RowOptimizer {
 public:
  static constexpr const char* kId = "tenon.optimizer.rows/1";
  virtual ~RowOptimizer();
  virtual std::span<const RowStateSlot> row_slots() const = 0;
  virtual void step_rows(const UpdateContext& context, RowTable& weights, std::span<RowTable* const> state,
                         const RowGradient& gradient) = 0;
};

/// A point at which the rate is asked for. steps is the planned end of the run.
struct SchedulePoint {
  std::int64_t slot = 0;
  std::int64_t steps = 0;
  double base_lr = 0;
};

class Schedule {
 public:
  using Interface = Schedule;
  static constexpr const char* kKind = "schedule/1";
  virtual ~Schedule();
  /// Pure.
  virtual double rate(const SchedulePoint& point) const = 0;
};

TENON_ABI_END
