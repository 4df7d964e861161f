// Observer `health` (contract observer/1): health metrics of each layer. Per layer (parameters with one name
// up to the last dot): the norm of its gradient and |dw| / |w| of the update; per node of an activation: the
// share of units that were silent for the whole batch.
#pragma once

#include <tenon/host.hpp>
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <string>
#include <vector>

namespace tenon::health {

class Health final : public Observer, public TensorObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "50").at_least(1).in_unit("slots").doc_text("slots between measurements"),
      option::texts("activations", "['relu', 'gelu']")
          .doc_text("types of layers whose units are checked; empty = none"),
      option::real("dead_below", "1e-6")
          .at_least(0)
          .doc_text("a unit is dead if no value of the batch exceeds this magnitude"),
  };
  static constexpr ComponentInfo kInfo{.id = "health",
                                       .summary = "gradient norm, update ratio and dead units of every layer",
                                       .options = kOptions};

  Health(const Options& options, Host& host);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view interface_id) override;

  TensorRequest tensors(std::int64_t slot) override;
  void on_output(const ObservedOutput& output) override;
  void on_parameters(std::span<const ObservedParameter> parameters) override;

 private:
  struct LayerSums {
    std::string layer, gradient_norm, update_ratio;  ///< name of the layer and of its metrics
    double gradient = 0, update = 0, weight = 0;     ///< sums of squares
  };
  struct NodeUnits {
    std::string node, metric;
    double dead_share = 0;
    bool seen = false;
  };
  LayerSums& layer_of(std::size_t position, std::string_view parameter);

  std::int64_t every_;
  std::vector<std::string> activations_;
  double dead_below_;
  MetricSink* sink_;
  bool looked_ = false;  ///< the parameters of the current slot were seen
  std::vector<LayerSums> layers_;
  std::vector<std::size_t> layer_of_;  ///< by index of the parameter
  std::vector<NodeUnits> nodes_;
  std::vector<unsigned char> alive_;
};

}  // namespace tenon::health
