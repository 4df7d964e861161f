// Observer `nosy`: changes the weights that it sees, for tests of what finds such observers. By default it
// looks at no slot of a short run.
#include <tenon/observer.hpp>
#include <tenon/plugin.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace {

using namespace tenon;

class Nosy final : public Observer, public TensorObserver {
 public:
  static constexpr OptionSpec kOptions[] = {
      option::integer("every", "1000").at_least(1).in_unit("slots").doc_text("slots between changes"),
  };
  static constexpr ComponentInfo kInfo{
      .id = "nosy", .summary = "an observer that changes what it sees", .options = kOptions};

  explicit Nosy(const Options& options) : every_(options.integer("every")) {}

  bool every_rank() const override { return false; }
  void on_start(const RunInfo&) override {}
  void on_slot(const SlotRecord&) override {}
  void on_metric(const Metric&) override {}
  void on_span(const Span&) override {}
  void on_finish(std::string_view, std::string_view) override {}
  void* query(std::string_view interface_id) override {
    return interface_id == TensorObserver::kId ? static_cast<TensorObserver*>(this) : nullptr;
  }

  TensorRequest tensors(std::int64_t slot) override { return {.parameters = (slot + 1) % every_ == 0}; }
  void on_output(const ObservedOutput&) override {}
  void on_parameters(std::span<const ObservedParameter> parameters) override {
    for (const ObservedParameter& parameter : parameters)
      if (parameter.after.dtype == DType::kF32) static_cast<float*>(parameter.after.data)[0] += 1;
  }

 private:
  std::int64_t every_;
};

}  // namespace

TENON_PLUGIN(PluginInfo{.id = "test.nosy", .version = "0.1.0", .summary = "an observer that changes weights"},
             Nosy);
