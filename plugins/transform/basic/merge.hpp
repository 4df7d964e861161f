// Transform `merge`: the convex mix of models with equal parameters, such as several checkpoints of one run.
#pragma once

#include "common.hpp"

#include <tenon/plugin.hpp>

namespace tenon::transform_basic {

class Merge final : public TransformBase {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::reals("weights", "[]")
          .at_least(0)
          .doc_text("one for each source, divided by their sum; []: equal parts"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "merge", .summary = "convex mix of models of one shape", .options = kOptions};

  explicit Merge(const Options& options);
  TransformedModel describe(std::span<StoredModel* const> sources) override;
  void run(std::span<StoredModel* const> sources, TensorWriter& out) override;

 private:
  /// Shares of the sources, of sum 1.
  std::vector<double> shares(std::size_t sources) const;

  std::vector<double> weights_;
};

}  // namespace tenon::transform_basic
