// The optimizer `probe`: plain gradient descent that records every update of every rank, so that a rehearsal
// can compare numbers of any parameter without a strategy of its own.
#pragma once

#include <tenon/device.hpp>
#include <tenon/host.hpp>
#include <tenon/ops/elementwise.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/plugin.hpp>
#include <tenon/state.hpp>

#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace rehearsal {

/// One update of one parameter on one rank: the gradients that the optimizer uses, and the weights before it.
struct Update {
  int rank = 0;
  int parameter = 0;  ///< index in backward-finish order
  std::int64_t count = 0;
  std::vector<double> gradient, weight;
};

struct ProbeLog {
  std::mutex mutex;
  std::vector<Update> updates;

  std::vector<Update> take() {
    const std::lock_guard lock(mutex);
    return std::exchange(updates, {});
  }
  /// Returns those of one rank and forgets all.
  std::vector<Update> take(int rank) {
    std::vector<Update> result = take();
    std::erase_if(result, [rank](const Update& update) { return update.rank != rank; });
    return result;
  }
};
inline ProbeLog probe_log;

class ProbeSgd final : public tenon::Optimizer {
 public:
  static constexpr tenon::OptionSpec kOptions[] = {tenon::option::real("lr", "0.1")};
  static constexpr tenon::ComponentInfo kInfo{.id = "probe",
                                              .summary = "gradient descent that is written down",
                                              .options = kOptions,
                                              .capabilities = TENON_CAP_HOGWILD};
  ProbeSgd(const tenon::Options& options, tenon::Host& host) : lr_(options.real("lr")), rank_(host.rank()) {}

  double base_lr() const override { return lr_; }
  std::span<const tenon::StateSlot> slots() const override { return {}; }
  bool elementwise() const override { return false; }
  void step(const tenon::UpdateContext& context, const tenon::ParameterSlice& slice) override {
    Update update{rank_, slice.parameter, context.count, doubles(slice.gradients), doubles(slice.weights)};
    for (double& g : update.gradient) g *= context.gradient_scale;
    auto& maps = context.device->family<tenon::Elementwise>();
    maps.axpy(-context.lr * context.gradient_scale, slice.gradients, slice.weights);
    const std::lock_guard lock(probe_log.mutex);
    probe_log.updates.push_back(std::move(update));
  }
  void state(tenon::StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }

 private:
  static std::vector<double> doubles(const tenon::TensorView& view) {
    std::vector<double> values;
    if (view.dtype == tenon::DType::kF64) {
      values.assign(view.as<double>(), view.as<double>() + view.elements());
    } else {
      values.assign(view.as<float>(), view.as<float>() + view.elements());
    }
    return values;
  }

  double lr_;
  int rank_;
};

TENON_STATIC_PLUGIN(probe_plugin,
                    tenon::PluginInfo{.id = "rehearsal.probe", .version = "1.0.0", .summary = "sees updates"},
                    ProbeSgd)

}  // namespace rehearsal
