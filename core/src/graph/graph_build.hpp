// The built graph: nodes, values, sites and declared parameters, with the memory plan applied. It is data;
// contexts.cpp shows it to layers and executor.cpp runs it.
#pragma once

#include "graph/memory_plan.hpp"
#include "graph/parameter_set.hpp"

#include <tenon/executor.hpp>
#include <tenon/ops/convolution.hpp>
#include <tenon/ops/dense.hpp>
#include <tenon/random.hpp>
#include <tenon/stepwise.hpp>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tenon::graph {

/// Returns the place of an executor's rank.
inline MeshPlace place_of(const ExecutorSpec& spec) {
  MeshPlace place = spec.mesh == nullptr ? MeshPlace{} : spec.mesh->place();
  place.replica = spec.replica;
  return place;
}

/// Counts operands per format; formats are few, so a flat list does.
class FormatCounter final : public OperandCounter {
 public:
  void count(std::string_view format, std::int64_t operands) override;
  std::vector<std::pair<std::string, std::int64_t>> counts;
};

/// A core-owned tensor of a site, in host memory order of creation.
struct SiteTensor {
  std::string name;
  TensorView view;
};

/// One linear site of a node; also what its policy sees as host.
class Site final : public SiteHost {
 public:
  Site(const ExecutorSpec& spec, FormatCounter& counter, std::string layer, int site_index);
  ~Site() override;
  Site(const Site&) = delete;
  Site& operator=(const Site&) = delete;

  Device& device() override { return *spec_->device; }
  OperandCounter& operands() override { return *counter_; }
  RandomKey rounding_key() override { return rounding_key_; }
  TensorView state(std::string_view name, DType dtype, const Shape& shape) override;

  SiteSpec declared;
  int parameter = -1;  ///< index into Build::declared, later into the laid-out parameters
  std::string layer, module;
  std::unique_ptr<LinearSite> product;
  bool kept = false;                        ///< the policy answered keep
  std::unique_ptr<ConvolutionSpec> images;  ///< images whose windows the rows are, where the layer said so
  bool takes_images = false;                ///< and is read as such
  SiteMemory memory;
  TensorView kept_memory, persistent, forward_scratch, backward_scratch;
  std::vector<SiteTensor> tensors;

 private:
  const ExecutorSpec* spec_;
  FormatCounter* counter_;
  RandomKey rounding_key_;
};

/// An edge: a data field or a node's output.
struct GraphValue {
  std::string name;
  ValueSpec spec;
  int producer = -1;  ///< node, -1 for data
  std::vector<int> readers;
  bool needs_gradient = false;
  bool has_gradient = false;  ///< some reader's backward writes it
  bool kept = false;          ///< ExecutorSpec::keep names it
  int stored_as = -1;         ///< value whose memory it is: the only reader's map is folded into the producer
  int gradient_of = -1;       ///< value whose gradient's memory its gradient is: the only reader passes it on
  TensorView data, gradient;
  TensorView lent;  ///< memory of the layer that makes it, in place of planned memory
};

struct NodeInput {
  int value = -1;
  bool gradient = false;    ///< backward writes the value's gradient
  bool accumulate = false;  ///< an earlier backward of another reader wrote it already
};

struct SavedMemory {
  ValueSpec spec;
  TensorView view;
};

struct WorkspaceMemory {
  std::size_t bytes = 0;
  TensorView forward, backward;
};

struct Node {
  NodeSpec spec;
  std::unique_ptr<LayerOwner> owner;
  Layer* layer = nullptr;
  LossLayer* loss = nullptr;
  MetricLayer* metric = nullptr;
  StepwiseLayer* stepwise = nullptr;  ///< of a stepwise graph; null: forward() serves
  std::int64_t sequence_bytes = 0;    ///< kept of one sequence between passes
  std::vector<NodeInput> inputs;
  std::vector<int> outputs;
  std::vector<int> parameters;  ///< per ParameterRef
  std::vector<SavedMemory> saved;
  std::vector<WorkspaceMemory> workspaces;
  std::vector<std::unique_ptr<Site>> sites;
  std::vector<bool> keeps_input, keeps_output;
  std::vector<bool> passes_gradient;  ///< to that input: the gradient of output 0, unchanged
  bool runs_backward = false;
  bool talks = false;                  ///< its forward takes all replicas
  bool skipped = false;                ///< ExecutorSpec::only_kept: no kept output depends on it
  Epilogue offered = Epilogue::kNone;  ///< the node is this map, elementwise
  int folded_into = -1;                ///< node whose site applies the map; then forward is not called
  std::vector<std::pair<std::string, RandomKey>> keys;  ///< filled on first use
};

struct Build {
  std::vector<GraphValue> values;
  std::vector<Node> nodes;
  std::vector<Declared> declared;         ///< tied parameters once
  std::vector<ParameterInfo> parameters;  ///< laid out; index differs from `declared`
  FormatCounter counter;
  Mesh alone;      ///< of a spec without a mesh
  int fields = 0;  ///< values[0 .. fields) are data
  std::int64_t batch = 1;
  std::int64_t time = 0;  ///< positions of a pass of a stepwise graph
  TensorView positions;   ///< of the places of a stepwise pass, i32 [batch, time]
  int loss_node = -1;

  std::vector<Lifetime> plan;
  std::size_t plan_bytes = 0;
  TensorView block;                    ///< the planned memory
  std::vector<TensorView> persistent;  ///< weight copies
  std::vector<PlanLine> held;          ///< by layers beside what they declare
  std::vector<PlanLine> lines;
};

/// Creates layers, infers shapes, binds sites, finds what backward needs and plans memory.
std::unique_ptr<Build> build_graph(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data);
/// Creates layers and infers shapes: values, parameters (Build::declared, by which nodes and sites then name
/// them) and sites without products. Binds nothing, refuses no size and allocates no tensor; release() is not
/// needed.
std::unique_ptr<Build> infer_graph(const ExecutorSpec& spec, const GraphSpec& graph, const DataInfo& data);
/// Releases what build_graph allocated.
void release(Build& build, Device& device);

}  // namespace tenon::graph
