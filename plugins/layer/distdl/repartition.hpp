// Layer `repartition`: the same value in another layout over the mesh, and its gradient in the old one
// (Hewett, Grady 2020). A partial sum is added up.
#pragma once

#include "common.hpp"

#include <memory>
#include <vector>

namespace tenon::distdl {

class Repartition final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integers("dims", "[]")
          .between(0, 63)
          .doc_text("dimensions to shard; none: the value is replicated"),
      option::integers("axes", "[]")
          .between(0, 63)
          .doc_text(
              "the axis of the mesh that shards each of them, as many as dims; a dimension named several "
              "times is sharded over these axes together. Over other axes the value is replicated"),
      option::integers("sizes", "[]")
          .between(0, 2147483647)
          .doc_text(
              "with one dimension: the size of each shard, 0 for a rank that is idle; absent: even shards")};
  static constexpr PortSpec kPorts[] = {port::input("x", "[...]"), port::output("y", "[...]")};
  static constexpr ComponentInfo kInfo{.id = "repartition",
                                       .summary = "a value in another layout over the mesh",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit Repartition(const Options& options);
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view) override { return nullptr; }

 private:
  Layout wanted(const InferContext& context, const Shape& shape, const Mesh& mesh) const;

  std::vector<int> dims_, axes_;
  std::vector<std::int64_t> sizes_;
  std::unique_ptr<LinearMap> value_, gradient_;
};

}  // namespace tenon::distdl
