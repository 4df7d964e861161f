// Contract `observer/1`: records of a run. Observers see copies or views to read and never change training.
// They run on rank 0, or on every rank where they ask for it, each rank with an object of its own; calls to
// one object never overlap. An exception ends its observer, not the run: it is reported once in log and
// standard error, and the observer is not called again.
#pragma once

#include <tenon/dataset.hpp>
#include <tenon/parameter.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

TENON_ABI_BEGIN

struct RunInfo {
  std::string name;
  std::string folder;  ///< runs/<name>/<attempt>
  std::int64_t first_slot = 0;
  std::int64_t steps = 0;
  int ranks = 1;
  int rank = 0;
  std::int64_t parameters = 0;
  bool terminal = false;  ///< a person watches standard error
  bool quiet = false;
};

/// One line of metrics.jsonl.
struct Metric {
  std::int64_t step = 0;  ///< slots done
  Split split = Split::kTrain;
  std::string_view name;
  double value = 0;
  double wall_s = 0;
  std::int64_t samples = 0, tokens = 0;
  std::uint64_t bytes_sent = 0;
  std::string_view set = {};  ///< "val.NAME" of an [[evaluate]] entry; "" for the data that the run trains on
};
/// "train", "val" or "val.NAME": what metrics.jsonl calls the split.
inline std::string_view split_name(const Metric& metric) noexcept {
  return metric.set.empty() ? split_name(metric.split) : metric.set;
}

/// The end of a slot.
struct SlotRecord {
  std::int64_t slot = 0;
  bool applied = false;
  double loss = 0, lr = 0, gradient_norm = 0;
  double seconds = 0;
  std::int64_t samples = 0, tokens = 0;  ///< since the run began
};

/// An interval on a track, in seconds of the run's clock. Tracks of the core: "compute" (forward, backward,
/// optimizer), "layer" (each node's forward "NAME" and backward "NAME backward" of training slots), "data",
/// "communication" (a thread waits for bytes), "wait" (a thread waits for the last member of a collective to
/// join), "overlap" (a transfer on its way while its thread does something else), "evaluate", "save",
/// "declared" (what the simulated clock counts as compute, within "compute"); a policy adds "quantize". Texts
/// live as long as the run.
struct Span {
  std::string_view track;
  std::string_view name;
  double begin_s = 0, end_s = 0;
  /// Work done meanwhile, 0 where it is not counted: operations of products, and bytes of the tensors that
  /// were read or written, each counted once.
  double flops = 0, bytes = 0;
};

/// An observer that wants on_span returns non-null from query() of this id. While no observer does, no clock
/// is read for spans. They come in batches at the end of a slot, ordered by begin within a batch.
inline constexpr std::string_view kSpanObserverId = "tenon.observer.spans/1";

/// Service of the host, for components that time their own work: host.query(SpanSink::kId), null outside
/// runs. Any thread.
class SpanSink {
 public:
  static constexpr const char* kId = "tenon.spans/1";
  virtual ~SpanSink();
  /// Ask before each span: while it is false, read no clock.
  virtual bool wanted() const noexcept = 0;
  virtual double now() const = 0;
  virtual void add(const Span& span) = 0;
};

class Observer {
 public:
  using Interface = Observer;
  static constexpr const char* kKind = "observer/1";
  virtual ~Observer();
  virtual bool every_rank() const = 0;
  virtual void on_start(const RunInfo& info) = 0;
  virtual void on_slot(const SlotRecord& record) = 0;
  virtual void on_metric(const Metric& metric) = 0;
  virtual void on_span(const Span& span) = 0;
  virtual void on_finish(std::string_view status, std::string_view message) = 0;
  virtual void* query(std::string_view interface_id) = 0;
};

/// Tensors of a slot that an observer wants to see.
struct TensorRequest {
  bool parameters = false;
  bool outputs = false;
};

/// A trainable dense parameter around an update: this rank's shard, host memory, valid during the call.
struct ObservedParameter {
  const ParameterInfo* info = nullptr;
  TensorView before, after;   ///< weights
  TensorView gradient;        ///< as the optimizer saw it, before clipping
  double gradient_scale = 1;  ///< makes it the gradient of the slot's mean loss
};

/// An output of a node right after it was computed: host memory, valid during the call.
struct ObservedOutput {
  std::string_view node, type;
  int output = 0;
  TensorView value;
};

/// Offered through Observer::query(TensorObserver::kId) by observers that look into tensors. A rank with
/// several workers shows none: others write to its weights meanwhile.
class TensorObserver {
 public:
  static constexpr const char* kId = "tenon.observer.tensors/1";
  virtual ~TensorObserver();
  /// Asked once per slot, before it runs. A slot that no observer asks for costs nothing.
  virtual TensorRequest tensors(std::int64_t slot) = 0;
  /// Called in the first forward of the slot, in the order of nodes.
  virtual void on_output(const ObservedOutput& output) = 0;
  /// Called after the update and before replicas synchronise, unless the update was refused.
  virtual void on_parameters(std::span<const ObservedParameter> parameters) = 0;
};

/// Offered through Observer::query(RowObserver::kId) by observers of row tables. Each rank's object is told
/// of the rows that its rank owns.
class RowObserver {
 public:
  static constexpr const char* kId = "tenon.observer.rows/1";
  virtual ~RowObserver();
  /// After on_start, before the first slot: the tables and this rank's shard of each (local, offset). The
  /// span is valid during the call. Not called when the model has no tables.
  virtual void on_tables(std::span<const ParameterInfo> tables) = 0;
  /// Applied slots only: unique ascending rows of a table and how often the slot's batch read each. With rows
  /// on request ([parallel] rows) there is one call per update since the last slot, each for a batch of any
  /// replica.
  virtual void on_accesses(int parameter, std::span<const std::int64_t> ids,
                           std::span<const std::uint32_t> counts) = 0;
};

TENON_ABI_END
