// Contexts of layers. While the graph is built, one records what a layer declares in infer() and checks each
// declaration when it is made. While it runs there is one forward and one backward context per executor,
// pointed at each node in turn, so that a step allocates nothing.
#pragma once

#include "base/at.hpp"
#include "graph/graph_build.hpp"
#include "graph/row_gradients.hpp"

#include <tenon/random.hpp>

#include <vector>

namespace tenon::graph {

/// Declarations of one node.
class LayerInference final : public InferContext {
 public:
  LayerInference(const ExecutorSpec& spec, const DataInfo& data, Build& build, int node)
      : spec_(spec), data_(data), build_(build), index_(node) {}

  std::string_view name() const override { return node().spec.name; }
  int inputs() const override { return static_cast<int>(node().inputs.size()); }
  ValueSpec input(int index) const override;
  std::string_view input_name(int index) const override;
  const DataInfo& data() const override { return data_; }
  bool training() const override { return spec_.training; }
  DType activations() const override { return spec_.precision->activations(); }
  DType parameters() const override { return spec_.precision->parameters(); }
  Device& device() override { return *spec_.device; }
  Host& host() override { return *spec_.host; }
  Mesh& mesh() override { return spec_.mesh == nullptr ? build_.alone : *spec_.mesh; }
  Communicator* replicas() override {
    node().talks = spec_.replicas != nullptr;
    return spec_.replicas;
  }
  int replica() const override { return spec_.replica; }

  void output(const ValueSpec& spec) override;
  ParameterRef parameter(const ParameterSpec& spec) override;
  SavedRef saved(const ValueSpec& spec) override;
  WorkspaceRef workspace(std::size_t bytes) override;
  SiteRef linear_site(const SiteSpec& spec) override;
  SiteRef convolution_site(const SiteSpec& spec, const ConvolutionSpec& images);
  void keep_input(int index) override { node().keeps_input.at(index) = true; }
  void keep_output(int index) override;
  void passes_gradient(int index);
  bool lend_output(int index, const TensorView& memory);
  void offer_epilogue(Epilogue map) override;
  void held(std::string_view what, std::size_t bytes) override;

 private:
  const GraphValue& read(int input) const;
  Node& node() const { return build_.nodes[index_]; }

  const ExecutorSpec& spec_;
  const DataInfo& data_;
  Build& build_;
  int index_;
};

/// The pass that is running.
struct Pass {
  Build* build = nullptr;
  Node* node = nullptr;
  ParameterSet* weights = nullptr;
  ParameterSet* gradients = nullptr;
  std::vector<int> bound;  ///< per parameter of the graph: its index in the sets of weights; empty: the same
  RowGradients* rows = nullptr;
  RunSpec run;
  NumericsSink* numerics = nullptr;  ///< receives reports on the operands of sites
  double flops = 0;                  ///< of the sites' products since the executor was made
  std::uint64_t seed = 1;            ///< of the executor's draws
  ParameterSet* staged = nullptr;    ///< buffers of the slot that runs; null without buffers
  std::vector<unsigned char>* written =
      nullptr;  ///< per parameter: its gradient holds this slot's sum so far
};

/// Index of a parameter of the graph in the sets of weights.
inline int index_in_weights(const Pass& pass, int parameter) {
  return pass.bound.empty() ? parameter : base::at(pass.bound, parameter);
}

/// Facts about a node's sites that contexts offer beside their base.
class SiteFacts {
 public:
  virtual bool takes_images(SiteRef site) const = 0;

 protected:
  ~SiteFacts() = default;
};

/// RunContext over a Pass, for either base.
template <typename Base>
class NodeContext : public Base, public SiteFacts {
 public:
  explicit NodeContext(Pass& pass) : pass_(pass) {}

  bool takes_images(SiteRef ref) const override { return site(ref).takes_images; }
  std::int64_t step() const override { return pass_.run.slot; }
  int micro() const override { return pass_.run.micro; }
  bool training() const override { return pass_.run.training; }
  TensorView input(int index) override { return value(base::at(node().inputs, index).value).data; }
  TensorView output(int index) override { return value(base::at(node().outputs, index)).data; }
  TensorView parameter(ParameterRef ref) override { return pass_.weights->tensor(weight_index(number(ref))); }
  RowTable* table(ParameterRef ref) override { return pass_.weights->table(weight_index(number(ref))); }
  TensorView saved(SavedRef ref) override { return base::at(node().saved, ref.index).view; }
  RandomKey random(std::string_view purpose) override;
  std::uint64_t draw_step() const override { return static_cast<std::uint64_t>(pass_.run.slot); }
  std::uint64_t first_element(std::int64_t elements_per_sample) const override {
    return static_cast<std::uint64_t>(pass_.run.first_sample * elements_per_sample);
  }

 protected:
  Node& node() const { return *pass_.node; }
  GraphValue& value(int index) const { return base::at(pass_.build->values, index); }
  int number(ParameterRef ref) const { return base::at(node().parameters, ref.index); }
  int weight_index(int parameter) const { return index_in_weights(pass_, parameter); }
  Site& site(SiteRef ref) const { return *base::at(node().sites, ref.index); }
  SiteCall call(const Site& site, std::int64_t first_row, const TensorView& scratch) const;
  TensorView weight(const Site& site) const {
    return rows_of_site(site, pass_.weights->tensor(weight_index(site.parameter)));
  }
  /// The site's rows of its weight, or of the weight's gradient.
  static TensorView rows_of_site(const Site& site, const TensorView& tensor) {
    const SiteSpec& spec = site.declared;
    if (spec.k == 0) return tensor.reshaped(Shape{spec.n, 0});
    return tensor.reshaped(Shape{tensor.elements() / spec.k, spec.k})
        .rows(spec.first_weight_row, spec.first_weight_row + spec.n);
  }

  Pass& pass_;
};

class NodeForward final : public NodeContext<ForwardContext> {
 public:
  using NodeContext::NodeContext;
  TensorView workspace(WorkspaceRef ref) override { return base::at(node().workspaces, ref.index).forward; }
  void fprop(SiteRef ref, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) override;
  TensorView staged(ParameterRef buffer) override { return pass_.staged->tensor(number(buffer)); }
};

class NodeBackward final : public NodeContext<BackwardContext> {
 public:
  using NodeContext::NodeContext;
  TensorView workspace(WorkspaceRef ref) override { return base::at(node().workspaces, ref.index).backward; }
  TensorView output_gradient(int index) override;
  GradientSink input_gradient(int index) override;
  GradientSink gradient(ParameterRef ref) override;
  void row_gradient(ParameterRef ref, std::span<const std::int64_t> ids, TensorView values) override;
  void fprop(SiteRef ref, TensorView x, TensorView bias, TensorView y, std::int64_t first_row) override;
  void dgrad(SiteRef ref, TensorView dy, TensorView dx, bool accumulate, std::int64_t first_row) override;
  void wgrad(SiteRef ref, TensorView x, TensorView dy, bool accumulate, std::int64_t first_row) override;
};

}  // namespace tenon::graph
