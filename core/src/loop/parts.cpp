// Making the components of a rank from the configuration's tables.
#include "loop/parts.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

namespace tenon::train {
namespace {

template <typename Interface>
Part<Interface> make(config::CheckedComponent& checked, Registry& registry, RankHost& host) {
  ResolvedOptions& options = *checked.options;
  registry.create_inner(options, host);
  return {&options, registry.create<Interface>(checked.type, options, host), nullptr, host};
}

using Checked = std::vector<config::CheckedComponent>;

Checked copy_of(const config::CheckedRun& run) {
  Checked copies;
  for (const config::CheckedComponent& component : run.components) copies.push_back(component.copy());
  return copies;
}

template <typename Interface>
Part<Interface> required(Checked& checked, Registry& registry, RankHost& host, std::string_view table) {
  config::CheckedComponent* found = config::find_component(checked, table);
  if (found == nullptr) fail_config(fmt::format("the configuration has no [{}] table with a `type`", table));
  return make<Interface>(*found, registry, host);
}

/// Training in the parameters' own format.
class PlainPrecision final : public Precision {
 public:
  DType activations() const override { return DType::kF32; }
  DType parameters() const override { return DType::kF32; }
  std::unique_ptr<LinearSite> bind(const SiteInfo&, SiteHost&) override { return nullptr; }
  double loss_scale() const override { return 1; }
  bool after_backward(const BackwardStats& stats) override { return !stats.found_non_finite; }
  void state(StateVisitor&) override {}
  void* query(std::string_view) override { return nullptr; }
};

class ConstantRate final : public Schedule {
 public:
  double rate(const SchedulePoint& point) const override { return point.base_lr; }
};

class SilentSync final : public SyncBase {};

class NoRecovery final : public RecoveryBase {};

template <typename Interface, typename Fallback>
Part<Interface> part(Checked& checked, Registry& registry, RankHost& host, std::string_view table) {
  config::CheckedComponent* found = config::find_component(checked, table);
  if (found != nullptr) return make<Interface>(*found, registry, host);
  return {nullptr, Component<Interface>(), std::make_unique<Fallback>(), host};
}

}  // namespace

void InnerEnd::operator()(ResolvedOptions* options) const noexcept {
  forget_noted_options(options);
  for (auto& [name, inner] : options->inner()) {
    inner->instance.reset();
    if (inner->options != nullptr) (*this)(inner->options.get());
  }
}

Parts::Parts(const config::CheckedRun& run, Registry& registry, RankHost& host)
    : checked(copy_of(run)),
      device(required<Device>(checked, registry, host, "device")),
      dataset(required<Dataset>(checked, registry, host, "data")),
      model(required<Model>(checked, registry, host, "model")),
      precision(part<Precision, PlainPrecision>(checked, registry, host, "precision")),
      optimizer(required<Optimizer>(checked, registry, host, "optimizer")),
      schedule(part<Schedule, ConstantRate>(checked, registry, host, "schedule")),
      sync(part<Sync, SilentSync>(checked, registry, host, "sync")),
      recovery(part<Recovery, NoRecovery>(checked, registry, host, "recovery")) {
  for (config::CheckedComponent& component : checked) {
    if (component.kind != Observer::kKind) continue;
    observers.push_back(make<Observer>(component, registry, host));
    if (host.rank() != 0 && !observers.back()->every_rank()) observers.pop_back();
  }
}

std::unique_ptr<Precision> make_plain_precision() {
  return std::make_unique<PlainPrecision>();
}

}  // namespace tenon::train
