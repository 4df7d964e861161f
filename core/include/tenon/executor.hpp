// The graph executor: runs a graph of layers forward and backward on a static memory plan, against any
// ParameterSet. The trainer, layer tests and the conformance kit use it; strategies do not.
#pragma once

#include <tenon/device.hpp>
#include <tenon/layer.hpp>
#include <tenon/model.hpp>
#include <tenon/precision.hpp>
#include <tenon/state.hpp>
#include <tenon/tensor.hpp>
#include <tenon/transport.hpp>

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

class Host;
class NumericsSink;
class Registry;

/// Keeps one layer alive.
class LayerOwner {
 public:
  virtual ~LayerOwner();
  virtual Layer& layer() = 0;
  /// What the layer declares, as in tenon_component_v1; null: nothing is compared.
  virtual const tenon_port_v1* const* ports() const;
};

/// Makes the layer of a node. The runtime's looks the type up in the registry; tests may bring their own
/// classes.
/// Layers that run a graph of their own (a teacher) get it from their host: host.query(LayerFactory::kId).
class LayerFactory {
 public:
  static constexpr const char* kId = "tenon.layers/1";
  virtual ~LayerFactory();
  /// Throws Error(kConfig) for an unknown type or option, naming the node.
  virtual std::unique_ptr<LayerOwner> create(const NodeSpec& node) = 0;
};

/// Layers by type name from `registry`, with `host` as theirs. Both outlive the factory.
std::unique_ptr<LayerFactory> make_registry_layers(Registry& registry, Host& host);

/// Arguments from which a graph is built. References outlive the executor.
struct ExecutorSpec {
  LayerFactory* layers = nullptr;
  Device* device = nullptr;
  Host* host = nullptr;
  Precision* precision = nullptr;
  Mesh* mesh = nullptr;  ///< null: one rank
  Communicator* replicas =
      nullptr;  ///< for lookups in tables that are sharded over the replicas; null: one replica
  int replica = 0;
  std::uint64_t seed = 1;  ///< of dropout and the like
  std::uint64_t seed_rounding = 1;
  std::int64_t batch = 1;
  std::int64_t steps = 0;  ///< slots of the run, for policies that change late in it; 0 outside runs
  bool training = true;
  bool input_gradients = false;  ///< compute gradients of floating-point data fields too (tests)
  bool keep_values = false;  ///< never reuse the memory of outputs, so that value() sees all of them (tests)
  /// Patterns of names of parameters that are not trained, whatever their layers say. One that matches none:
  /// Error(kConfig).
  std::vector<std::string> frozen = {};
  /// Outputs ("node" or "node:1") that value() sees until the next forward, with the bits that they have
  /// under keep_values; the memory of all others is reused. An unknown name: Error(kConfig) that lists those
  /// there are.
  std::vector<std::string> keep = {};
  /// Compute nothing but what `keep` needs: the other nodes never run and take neither memory nor parameters,
  /// but policies count their layers. inputs() of data fields that nothing reads are empty. Not for training.
  bool only_kept = false;
  /// More than 0: the graph runs stepwise, on sequences of at most this many positions: its data fields have
  /// as many as one pass adds, and step() runs it in place of forward(). Not for training. Error(kConfig)
  /// that names the layers that offer neither ability of <tenon/stepwise.hpp>.
  std::int64_t positions = 0;
};

/// What the layers of a stepwise graph keep of sequences between passes. Any executor of the same graph,
/// positions, precision and device may go on with them, whatever its batch and the positions of its passes.
class SequenceState {
 public:
  virtual ~SequenceState();
  virtual std::int64_t sequences() const = 0;
  virtual std::int64_t bytes() const = 0;  ///< of all of them, on the device
};

/// Sequences that a stepwise pass goes on with: an entry per row of the batch.
struct StepRun {
  std::int64_t slot = 0;
  std::span<const std::int64_t> first;  ///< position of the row's first place; 0 begins a sequence
  std::span<const std::int64_t> count;  ///< places of the row that count, at most those of the pass; 0 = none
  std::span<const std::int64_t> kept;   ///< the row's sequence in the state, no two alike
};

struct RunSpec {
  std::int64_t slot = 0;
  int micro = 0;
  int micros = 1;
  std::int64_t first_sample = 0;  ///< global index of the batch's first sample, for draws
  bool training = true;
};

struct LossValue {
  std::string metric;
  double sum = 0;
  double count = 0;
};

/// Called in backward-finish order when the last user of a parameter has added its gradient.
using ParameterReady = std::function<void(int parameter)>;

/// Ids of rows of a parameter, valid during the call.
using RowVisit = std::function<void(int parameter, std::span<const std::int64_t> ids)>;

/// Called with each output of each node right after it was computed, while its memory still holds it.
using OutputProbe =
    std::function<void(std::string_view node, std::string_view type, int output, const TensorView& value)>;

/// A line of the memory plan, for `tenon check`.
struct PlanLine {
  std::string what;
  std::size_t bytes = 0;
};

class Executor {
 public:
  Executor(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data);
  ~Executor();
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  /// All parameters in backward-finish order, tied ones once.
  const std::vector<ParameterInfo>& parameters() const;
  /// The first node that declares the parameter.
  std::string_view layer_of(int parameter) const;
  /// Buffers to fill before forward, one per data field.
  std::span<const TensorView> inputs();
  /// From now on the weights of forward are sets with the parameters of `set`, in its order: those of another
  /// graph, of which this one may use some. Nothing is copied, so two graphs may run on one set in turns.
  /// Only for a graph that was built without training. Throws Error(kConfig) that lists every parameter that
  /// is not in `set`, has no memory there, or differs in shape, shard, dtype or role.
  void bind(const ParameterSet& set);
  void forward(ParameterSet& weights, const RunSpec& run);
  /// Memory for `sequences` sequences of a stepwise graph; it may outlive the executor, but not its device.
  std::unique_ptr<SequenceState> make_sequences(std::int64_t sequences);
  /// One pass of a stepwise graph. Throws Error(kRun) for positions that do not fit.
  void step(ParameterSet& weights, SequenceState& sequences, const StepRun& run);
  /// Calls `probe` from the next forward on; an empty function ends it.
  void probe_outputs(OutputProbe probe);
  /// Reports the operands of sites to `sink` from the next pass on; null ends it.
  void probe_operands(NumericsSink* sink);
  std::span<const LossValue> losses() const;
  /// Called around the forwards of an evaluation, over all of which MetricLayers measure.
  void begin_metrics();
  void finish_metrics(Communicator* replicas, MetricReport& report);
  /// Adds to `gradients` (writes where `first` says that this is the slot's first micro-batch).
  void backward(ParameterSet& weights, ParameterSet& gradients, double seed, bool first,
                const ParameterReady& ready);
  /// Multiplies what backward has added in this slot so far, row gradients included.
  void scale_gradients(ParameterSet& gradients, double factor);
  /// Makes the staged values of buffers (running statistics) those of `weights`; only applied slots are
  /// published.
  void publish(ParameterSet& weights);
  /// Gradient of a data field after backward (input_gradients). Empty when absent.
  TensorView input_gradient(std::string_view field);
  /// Output "node" or "node:1" after forward; meaningful for losses, outputs of ExecutorSpec::keep, or for
  /// every node with keep_values.
  /// Empty when absent.
  TensorView value(std::string_view name);
  /// Row gradients of the last backward.
  std::span<const RowGradient> row_gradients() const;
  /// Parameters whose rows row_lookups() tells, ascending: tables of layers that offer RowLookups and look up
  /// by data fields alone.
  std::vector<int> foreseen_tables() const;
  /// Tells which rows a training forward of a batch will read. `fields`: one view per data field, as the data
  /// set writes it, in host memory. One call at a time, beside passes of this executor.
  void row_lookups(std::span<const TensorView> fields, const RowVisit& visit);
  /// Per-site state tensors (amax history, decisions): saved and hashed with the run.
  void state(StateVisitor& visitor);
  std::vector<PlanLine> memory_plan() const;
  std::int64_t activation_bytes() const;
  /// Bytes that this executor holds on its device: activation_bytes() and the sites' converted copies and
  /// state.
  std::int64_t allocated_bytes() const;
  /// Operands that went through each number format since construction: "bf16" -> 1200.
  std::vector<std::pair<std::string, std::int64_t>> quantized_operands() const;
  /// Sites that the policy kept: "h.0.attn.q (linear)".
  std::vector<std::string> unquantized_sites() const;
  std::int64_t linear_sites() const;  ///< kept or not
  /// Pointwise nodes that do not run because the site before them applies their map. keep_values forbids it.
  std::vector<std::string> folded_nodes() const;
  /// Repeats the forward and names the first output or parameter that holds a non-finite element, e.g.
  /// "h.2.attn output 0, element 117"; "" if all are finite, or if the search reached a node that all
  /// replicas must run together.
  std::string find_non_finite(ParameterSet& weights, const RunSpec& run);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Contents of a set: everything, everything but row tables, only trained arenas, or only buffers.
enum class SetContents : std::uint8_t { kEverything, kDense, kGradients, kBuffers };

class RowPlaces;

/// Allocates a ParameterSet with the layout of `parameters` on `device`, zero everywhere. Row tables lie
/// where `places` says; null: in host memory.
std::unique_ptr<ParameterSet> make_parameter_set(std::string name,
                                                 const std::vector<ParameterInfo>& parameters, Device& device,
                                                 SetContents contents, RowPlaces* places = nullptr);
/// A set of its own dense parameters beside the row tables of another one, which outlives it: tables exist
/// once.
std::unique_ptr<ParameterSet> make_parameter_set_beside(std::string name, ParameterSet& tables_of,
                                                        Device& device);
/// Fills a set with the declared initial values: functions of (seed_init, name, global element index) alone.
void initialise(ParameterSet& set, std::uint64_t seed_init, Device& device);
/// The same values for some rows of one row table: `ids` follow each other, `rows` is host memory for them.
void initial_rows(const ParameterInfo& table, std::uint64_t seed_init, std::span<const std::int64_t> ids,
                  TensorView rows);

/// Offered through Device::query(MemoryWatch::kId) before graphs are built. Without it a pass costs nothing
/// more.
class MemoryWatch {
 public:
  static constexpr const char* kId = "tenon.device.memory_watch/1";
  virtual ~MemoryWatch();
  /// Called before the pass of the node in which the lifetime of a planned value, gradient, workspace or
  /// scratch begins, on the thread that runs the pass. The bytes of `memory` are unused and may be
  /// overwritten here. Not called for data fields. `what` is valid during the call.
  virtual void begins(TensorView memory, std::string_view what) = 0;
};

TENON_ABI_END
