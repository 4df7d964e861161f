// Shared by the layers of this plugin: checks at infer, and logits and labels on the host.
#pragma once

#include <tenon/device.hpp>
#include <tenon/error.hpp>
#include <tenon/layer.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tenon::recsys {

/// Throws Error(kConfig): "layer 'emb': <what>".
[[noreturn]] void refuse(const InferContext& context, const std::string& what);

/// Inputs 0, logits [batch] or [batch, 1], and 1, labels i32 [batch], as numbers of the host: one number per
/// sample is few beside the values it comes from, so layers compute with them on the host, in float64.
class LabelledLogits {
 public:
  /// Checks both inputs.
  void infer(InferContext& context);
  /// Throws Error(kRun) on a label above 1. Negative ones do not count.
  void read(RunContext& context);
  std::span<const double> logits() const { return logits_; }
  std::span<const std::int32_t> labels() const { return labels_; }

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  WorkspaceRef wide_;
  std::vector<double> logits_;
  std::vector<std::int32_t> labels_;
};

}  // namespace tenon::recsys
