// A cut model that was not written: a stored model whose graph and tensors are those that the cut would give.
// It measures what a cut costs before anything is written.
#pragma once

#include "cut.hpp"
#include "kept.hpp"
#include "plan.hpp"

#include <tenon/stored_model.hpp>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::minitron {

/// The source's graph with the extents of the plan, and without layers that go.
GraphSpec resized(const GraphSpec& graph, const DecoderShape& shape, const Plan& plan);

class PrunedModel final : public StoredModel {
 public:
  /// source outlives this.
  PrunedModel(StoredModel& source, DecoderShape shape, Plan plan, const Targets& targets, const Kept& kept,
              bool merge);

  std::string_view folder() const override { return source_.folder(); }
  std::int64_t step() const override { return source_.step(); }
  /// "": nothing has these weights but this object.
  std::string_view digest() const override { return ""; }
  const ModelDescription& description() const override { return description_; }
  std::span<const StoredTensor> parameters() const override { return parameters_; }
  std::span<const StoredTensor> optimizer_state() const override { return {}; }
  /// Whole tensors alone.
  void read(std::string_view tensor, const Shape& offset, TensorView out) override;
  GraphSpec graph(const DataInfo& data) override;
  void* query(std::string_view) override { return nullptr; }
  GraphSpec edited(GraphSpec graph, const DataInfo&) override { return graph; }

 private:
  StoredModel& source_;
  DecoderShape shape_;
  Plan plan_;
  ModelDescription description_;
  std::vector<TensorCut> cuts_;
  std::vector<StoredTensor> parameters_;
};

}  // namespace tenon::minitron
