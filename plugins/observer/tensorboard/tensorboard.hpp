// Observer `tensorboard` (contract observer/1): every metric as a scalar, and optional histograms of weights
// and gradients, in an event file of the run folder. A resumed run begins a file that makes readers drop the
// events that the interrupted run wrote beyond its checkpoint.
#pragma once

#include "event_file.hpp"

#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <functional>
#include <memory>
#include <string>

namespace tenon::tensorboard {

class TensorBoard final : public Observer, public TensorObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("histograms_every", "0")
          .at_least(0)
          .in_unit("slots")
          .doc_text("histograms of every parameter and its gradient; 0 = none"),
      option::real("flush_s", "5")
          .at_least(0)
          .in_unit("s")
          .doc_text("longest time for which events are buffered"),
  };
  static constexpr ComponentInfo kInfo{.id = "tensorboard",
                                       .summary = "scalars and histograms in an event file for TensorBoard",
                                       .options = kOptions};
  /// Seconds since 1970.
  using Now = std::function<double()>;

  explicit TensorBoard(const Options& options);
  TensorBoard(std::int64_t histograms_every, double flush_s, std::unique_ptr<FileSystem> files, Now now);

  bool every_rank() const override { return false; }
  void on_start(const RunInfo& info) override;
  void on_slot(const SlotRecord& record) override;
  void on_metric(const Metric& metric) override;
  void on_span(const Span&) override {}
  void on_finish(std::string_view status, std::string_view message) override;
  void* query(std::string_view interface_id) override;

  TensorRequest tensors(std::int64_t slot) override;
  void on_output(const ObservedOutput&) override {}
  void on_parameters(std::span<const ObservedParameter> parameters) override;

 private:
  void histogram(std::string_view prefix, std::string_view name, const TensorView& view, double scale);

  std::int64_t histograms_every_;
  double flush_s_;
  std::unique_ptr<FileSystem> files_;
  Now now_;
  double flushed_at_ = 0;
  std::int64_t slot_ = 0;
  std::unique_ptr<EventFile> file_;
  Histogram histogram_;
  std::string tag_;
};

}  // namespace tenon::tensorboard
