// Layer `dropout`: zeroes elements with probability p while training and scales the others by 1 / (1 - p).
// Element i of the global batch draws from (seed, node, slot, i), so the mask does not depend on how a batch
// is split over replicas, micro-batches or a model grid.
#pragma once

#include "common.hpp"

#include <tenon/ops/norm.hpp>

namespace tenon::nn {

class Dropout final : public Layer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::real("p", "0.1").between(0, 0.999).doc_text("probability of a zero"),
  };
  static constexpr ComponentInfo kInfo{.id = "dropout",
                                       .summary = "zeroes elements at random while training",
                                       .options = kOptions,
                                       .capabilities = kAnywhere};

  explicit Dropout(const Options& options) : p_(options.real("p")) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;
  void* query(std::string_view interface_id) override { return nullptr; }

 private:
  bool active(const RunContext& context) const { return p_ > 0 && context.training(); }
  void apply(RunContext& context, TensorView from, TensorView to, bool accumulate);

  /// Begin of run `run` of this rank's shard in the whole value.
  std::int64_t first_of(std::int64_t run) const;

  double p_;
  Shape whole_;
  Box part_;
  int outer_ = 0;         ///< dimensions before the last sharded one: a run has one index of each of them
  std::int64_t run_ = 0;  ///< elements
  Device* device_ = nullptr;
  NeuralOps* nn_ = nullptr;
  Elementwise* elementwise_ = nullptr;
};

}  // namespace tenon::nn
