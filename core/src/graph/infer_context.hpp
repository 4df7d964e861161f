// Records the declarations of a layer in infer(), and checks each when it is made.
#pragma once

#include "graph/graph_build.hpp"

namespace tenon::graph {

class LayerInference final : public InferContext {
 public:
  LayerInference(const ExecutorSpec& spec, Build& build, int node)
      : spec_(spec), build_(build), index_(node) {}

  std::string_view name() const override { return node().spec.name; }
  int inputs() const override { return static_cast<int>(node().inputs.size()); }
  ValueSpec input(int index) const override;
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
  void offer_epilogue(Epilogue map) override;

 private:
  Node& node() const { return build_.nodes[index_]; }

  const ExecutorSpec& spec_;
  Build& build_;
  int index_;
};

}  // namespace tenon::graph
