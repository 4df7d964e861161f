// Contract `layer/1`: a node of the model graph. One instance is one node of one executor. A layer uses the
// device's operator families and declares its products as linear sites, so precision is never its business.
#pragma once

#include <tenon/parameter.hpp>
#include <tenon/site.hpp>

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>

TENON_ABI_BEGIN

class Communicator;
struct ConvolutionSpec;  // <tenon/ops/convolution.hpp>
struct DataInfo;         // <tenon/dataset.hpp>
class Device;
class Host;
class Mesh;

/// Shape and dtype of a value between layers. Local to the rank; a leading extent may vary at run time up to
/// this one. An input always states its layout. A layer that states none for an output makes unsharded values
/// and gets only unsharded inputs: the core refuses it sharded ones. The gradient of a value has its layout,
/// but that of a partial sum is replicated over the axes of the sum.
struct ValueSpec {
  Shape shape;
  DType dtype = DType::kF32;
  Layout layout = {};
};

/// Handles, valid within the layer that got them.
struct ParameterRef {
  int index = -1;
};
struct SavedRef {
  int index = -1;
};
struct WorkspaceRef {
  int index = -1;
};
struct SiteRef {
  int index = -1;
};

/// A product that the layer will compute. The weight is stored [n, k].
struct SiteSpec {
  std::string_view module = "linear";
  ParameterRef weight;
  std::int64_t first_weight_row = 0;  ///< the site's n rows of the weight begin here (groups share a weight)
  int input = -1;                     ///< layer input that is x; -1 = the layer passes x to wgrad itself
  std::int64_t m = 0, n = 0, k = 0;
  bool bias = false;
  Epilogue epilogue = Epilogue::kNone;
  std::int64_t chunk = 0;  ///< rows that one call passes at most; 0 = all m
  /// Layer output whose elements are those of the product, in any order: a pointwise layer that reads it may
  /// be folded into the site. -1 = none.
  int output = -1;
  /// Every call passes the rows of one sample as values [batch, channels, points...] have them: x and dx are
  /// [k, rows], y and dy [n, rows], rows = chunk. A policy that reads rows is given rows. Not with `input`.
  bool channels_first = false;
};

/// Handed to infer(), once, before anything runs.
class InferContext {
 public:
  virtual ~InferContext();
  virtual std::string_view name() const = 0;  ///< full name of the node
  virtual int inputs() const = 0;
  virtual ValueSpec input(int index) const = 0;
  /// Name of the value that an input reads: a data field ("tokens"), "node" or "node:1".
  virtual std::string_view input_name(int index) const = 0;
  /// The data that the graph is built for. Valid during infer().
  virtual const DataInfo& data() const = 0;
  virtual bool training() const = 0;  ///< false: no backward will run, nothing needs keeping
  virtual DType activations() const = 0;
  virtual DType parameters() const = 0;
  virtual Device& device() = 0;
  virtual Host& host() = 0;
  virtual Mesh& mesh() = 0;
  /// Replicas at this place of the mesh, for lookups in tables that are sharded over them; null when there is
  /// one.
  virtual Communicator* replicas() = 0;
  virtual int replica() const = 0;

  /// Declares outputs in order.
  virtual void output(const ValueSpec& spec) = 0;
  virtual ParameterRef parameter(const ParameterSpec& spec) = 0;
  /// Memory that lives from forward to backward.
  virtual SavedRef saved(const ValueSpec& spec) = 0;
  /// Memory that lives within one call of forward or backward.
  virtual WorkspaceRef workspace(std::size_t bytes) = 0;
  virtual SiteRef linear_site(const SiteSpec& spec) = 0;
  /// backward reads this input or output of forward; without it the memory is reused.
  virtual void keep_input(int index) = 0;
  virtual void keep_output(int index) = 0;
  /// The layer is y = map(x), elementwise: the executor may fold it into the producing site and skip forward.
  virtual void offer_epilogue(Epilogue map) = 0;
  /// Device memory that the layer holds beside what it declares (a graph of its own): a line of the memory
  /// plan under its node's name. Memory that several nodes have in common is stated by one of them.
  virtual void held(std::string_view what, std::size_t bytes) = 0;
};
/// Returns this rank's shard of activations in `layout`.
ValueSpec placed(InferContext& context, const Layout& layout);

/// Common base of the forward and backward contexts.
class RunContext {
 public:
  virtual ~RunContext();
  virtual std::int64_t step() const = 0;  ///< slot number
  virtual int micro() const = 0;
  virtual bool training() const = 0;
  virtual TensorView input(int index) = 0;   ///< in backward: only if kept
  virtual TensorView output(int index) = 0;  ///< in backward: only if kept
  virtual TensorView parameter(
      ParameterRef ref) = 0;  ///< of the parameter set that runs; empty for row tables
  virtual RowTable* table(ParameterRef ref) = 0;
  virtual TensorView saved(SavedRef ref) = 0;
  virtual TensorView workspace(WorkspaceRef ref) = 0;
  /// Key and first global element index of this replica's samples for draws of this layer ("dropout", ...).
  virtual RandomKey random(std::string_view purpose) = 0;
  virtual std::uint64_t draw_step() const = 0;  ///< counter: unique for (slot, micro-batch)
  virtual std::uint64_t first_element(std::int64_t elements_per_sample) const = 0;
};

class ForwardContext : public RunContext {
 public:
  ~ForwardContext() override;
  /// Product of a site; x: [rows, k], y: [rows, n] (channels_first: [k, rows], [n, rows]); bias empty if the
  /// site has none.
  virtual void fprop(SiteRef site, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) = 0;
  /// Writable copy of a buffer (running statistics), begun from its value at the slot's start and made its
  /// value only if the slot is applied. Training only.
  virtual TensorView staged(ParameterRef buffer) = 0;
};

/// A gradient to write (accumulate = false) or to add to.
struct GradientSink {
  TensorView view;  ///< empty: not needed
  bool accumulate = false;
};

class BackwardContext : public RunContext {
 public:
  ~BackwardContext() override;
  /// Gradient of the (scaled) loss with respect to an output; empty when the output does not reach the loss.
  /// Read only: it may be the memory of another value's gradient, too.
  virtual TensorView output_gradient(int index) = 0;
  virtual GradientSink input_gradient(int index) = 0;
  /// Layers that add to a parameter call this once per backward, also for parameters whose sink is empty
  /// (frozen).
  virtual GradientSink gradient(ParameterRef ref) = 0;
  virtual void row_gradient(ParameterRef ref, std::span<const std::int64_t> ids, TensorView values) = 0;
  /// Repeats a product of forward with the arguments it had there, for layers that recompute instead of
  /// keeping.
  virtual void fprop(SiteRef site, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) = 0;
  virtual void dgrad(SiteRef site, TensorView dy, TensorView dx, bool accumulate, std::int64_t first_row) = 0;
  /// Adds to (or sets) the gradient of the site's weight; x is empty when the site has a declared input.
  /// `accumulate` false only for the first call of this backward, as gradient(weight) said.
  virtual void wgrad(SiteRef site, TensorView x, TensorView dy, bool accumulate, std::int64_t first_row) = 0;
};

class Layer {
 public:
  using Interface = Layer;
  static constexpr const char* kKind = "layer/1";
  virtual ~Layer();
  /// Declares outputs, parameters, saved memory and sites; prepares operators. Throws Error(kConfig) on
  /// impossible shapes.
  virtual void infer(InferContext& context) = 0;
  virtual void forward(ForwardContext& context) = 0;
  virtual void backward(BackwardContext& context) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Offered by loss layers ("tenon.layer.loss/1"): output 0 is f64 [2] = {sum of losses, number of targets
/// counted}; backward starts here with the gradient of sum x seed.
class LossLayer {
 public:
  static constexpr const char* kId = "tenon.layer.loss/1";
  virtual ~LossLayer();
  /// Called before each backward of the layer. The seed of the trained loss is loss_scale / targets of the
  /// slot. That of a loss whose output another node reads is the gradient that this node gave to element 0 of
  /// the output, the sum; a count has no gradient.
  virtual void set_seed(double seed) = 0;
  /// Metric name, "loss" for the trained objective; others are reported beside it.
  virtual std::string_view metric() const = 0;
};

/// Receives the results of a MetricLayer.
class MetricReport {
 public:
  virtual ~MetricReport();
  virtual void value(std::string_view metric, double value) = 0;
  /// Leaves `metric` without a value; the reason is logged, once per run.
  virtual void undefined(std::string_view metric, std::string_view reason) = 0;
};

/// Offered by nodes with a metric over a whole evaluation that is not a sum over batches, e.g. an AUC
/// ("tenon.layer.metric/1"). They collect in forwards that are not training, and need no outputs. A batch
/// without one counted target may come at any time.
class MetricLayer {
 public:
  static constexpr const char* kId = "tenon.layer.metric/1";
  virtual ~MetricLayer();
  /// An evaluation begins: forgets everything collected.
  virtual void begin() = 0;
  /// The evaluation ends: joins what the replicas collected over `replicas` (null: there is one) and reports
  /// the same values on all of them.
  virtual void finish(Communicator* replicas, MetricReport& report) = 0;
};

/// Offered by layers that read rows of tables ("tenon.layer.lookups/1"): says which rows a forward will read
/// before it runs, so that tiers bring them near ([tables] prefetch).
class RowLookups {
 public:
  using Visit = std::function<void(ParameterRef table, std::span<const std::int64_t> ids)>;
  static constexpr const char* kId = "tenon.layer.lookups/1";
  virtual ~RowLookups();
  /// Whether lookups() reads input `index`. Known after infer().
  virtual bool looks_up_by(int index) const = 0;
  /// Calls `visit` with the ids of all rows that a training forward with these inputs reads, whoever owns
  /// them, in any order. Ids may repeat; those that are no row are for forward to refuse. `inputs` are in
  /// host memory and empty where looks_up_by() is false. One call at a time, on any thread, beside forward
  /// and backward: it uses nothing that those change.
  virtual void lookups(std::span<const TensorView> inputs, const Visit& visit) = 0;
};

// A linear site whose rows are windows of images. Where its products are computed from images, no windows are
// made; where a policy or the device wants rows, the layer makes them.

/// Declares a site as linear_site() does; its m rows are the windows of `images`, or with channels first the
/// points of its samples. Bias, map and dtype are the site's: those of `images` are ignored.
SiteRef convolution_site(InferContext& context, const SiteSpec& site, const ConvolutionSpec& images);

/// Whether the products of such a site take images. Then each of fprop, dgrad and wgrad is called once, with
/// first_row 0: x and dx are [batch, channels, extent...], y and dy [batch, features, places...]. Known once
/// sites are bound, so in forward and backward, and the same in both.
bool takes_images(RunContext& context, SiteRef site);

/// Says that backward passes the gradient of output 0 to input `index` as it is. Where no other layer reads
/// that value the two are one memory: backward then finds them so, and has nothing to do.
void passes_gradient(InferContext& context, int index);

/// Makes output `index`, declared before, be `memory` itself, which the layer owns in its device and which
/// lives as long as the layer does: a constant, or what a graph of its own leaves. Forward finds it as its
/// output and need not write it; nothing else writes it. Returns false, and the output has memory of its own,
/// where the context does not know how, or shape or dtype differ.
bool lend_output(InferContext& context, int index, const TensorView& memory);

TENON_ABI_END
