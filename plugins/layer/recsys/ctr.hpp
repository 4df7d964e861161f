// Loss and metrics of click-through predictions: logits against labels 0 and 1.
#pragma once

#include "common.hpp"
#include "layer_common/loss.hpp"
#include "layer_common/options.hpp"

#include <tenon/transport.hpp>

namespace tenon::recsys {

/// Layer `bce_with_logits`: binary cross-entropy of one logit per sample against labels 0 and 1, in nats; the
/// sigmoid is part of it, so no probability is ever rounded to 0 or 1.
class BceWithLogits final : public layer_common::Loss {
 public:
  static constexpr OptionSpec kOptions[] = {
      layer_common::metric_name(),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("logits", "[batch, ...]").of("activations"),
      port::input("labels", "[...]").of("i32").doc_text("0 or 1; negative ones do not count"),
      port::output("loss", "[2]").of("f64").doc_text("sum over targets, and their number")};
  static constexpr ComponentInfo kInfo{.id = "bce_with_logits",
                                       .summary = "binary cross-entropy of logits against labels, in nats",
                                       .options = kOptions,
                                       .ports = kPorts};

  explicit BceWithLogits(const Options& options) : Loss(options) {}
  void infer(InferContext& context) override;
  void forward(ForwardContext& context) override;
  void backward(BackwardContext& context) override;

 private:
  Device* device_ = nullptr;
  Elementwise* elementwise_ = nullptr;
  LabelledLogits samples_;
  std::vector<double> gradient_;
  WorkspaceRef wide_, narrow_;
};

/// Layer `ctr_metrics`: AUC, normalised entropy and calibration of logits over a whole evaluation. It keeps
/// the scores of all counted samples: 8 bytes for each, on every replica for those of all, and up to about
/// three times that while the values of the replicas are joined.
class CtrMetrics final : public Layer, public MetricLayer {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::text("prefix", "\"\"").doc_text("before the names of the metrics, with an underscore between"),
  };
  static constexpr PortSpec kPorts[] = {
      port::input("logits", "[batch, ...]").of("activations"),
      port::input("labels", "[...]").of("i32").doc_text("0 or 1; negative ones do not count")};
  static constexpr ComponentInfo kInfo{
      .id = "ctr_metrics",
      .summary = "exact AUC, normalised entropy and calibration of a whole evaluation",
      .options = kOptions,
      .ports = kPorts};

  explicit CtrMetrics(const Options& options) : prefix_(options.text("prefix")) {}
  void infer(InferContext& context) override { samples_.infer(context); }
  void forward(ForwardContext& context) override;
  void backward(BackwardContext&) override {}
  void* query(std::string_view interface_id) override {
    return interface_id == MetricLayer::kId ? static_cast<MetricLayer*>(this) : nullptr;
  }
  void begin() override;
  void finish(Communicator* replicas, MetricReport& report) override;

 private:
  /// Replaces this replica's collected scores by those of all, replica after replica.
  void join(Communicator& replicas);

  std::string prefix_;
  LabelledLogits samples_;
  bool collecting_ = false;
  std::vector<double> positives_, negatives_;
  std::int64_t not_finite_ = 0;
};

}  // namespace tenon::recsys
