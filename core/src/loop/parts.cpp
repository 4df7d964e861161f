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

namespace {

/// The first of a component and those within it whose capabilities `wanted` answers: "tier.cached".
template <typename Wanted>
std::string first_where(std::string_view kind, std::string_view type, ResolvedOptions* options,
                        Registry& registry, const Wanted& wanted) {
  const ComponentRef ref = registry.find(kind, type);
  if (wanted(ref.component->capabilities)) return std::string(ref.name);
  if (options == nullptr) return "";
  for (const auto& [name, inner] : options->inner()) {
    std::string found = first_where(inner->kind, inner->type, inner->options.get(), registry, wanted);
    if (!found.empty()) return found;
  }
  return "";
}

}  // namespace

std::string host_only(std::span<const config::CheckedComponent> components, Registry& registry) {
  for (const config::CheckedComponent& component : components) {
    std::string found =
        first_where(component.kind, component.type, component.options.get(), registry,
                    [](std::uint64_t capabilities) { return (capabilities & TENON_CAP_HOST) != 0; });
    if (!found.empty()) return found;
  }
  return "";
}

std::string first_without(std::uint64_t capability, const config::CheckedComponent& component,
                          Registry& registry) {
  return first_where(component.kind, component.type, component.options.get(), registry,
                     [=](std::uint64_t capabilities) { return (capabilities & capability) == 0; });
}

void refuse_host_only(std::span<const config::CheckedComponent> components, Registry& registry,
                      const Part<Device>& device) {
  if (device->space() == MemorySpace::kHost) return;
  for (const config::CheckedComponent& component : components) {
    const std::string found = host_only({&component, 1}, registry);
    if (found.empty()) continue;
    fail_config(fmt::format(
        "{}{} works on tensors in host memory alone (TENON_CAP_HOST), and device '{}' has "
        "memory of its own; set [device] type = \"cpu\", or choose another component",
        component.type_origin.file.empty() ? "" : component.type_origin.text() + ": ", found, device.id()));
  }
}

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
  for (std::size_t i = 0; i < run.core.evaluate.size(); ++i)
    evaluated.push_back(required<Dataset>(checked, registry, host, fmt::format("evaluate[{}].data", i)));
  for (config::CheckedComponent& component : checked) {
    if (component.kind == Tier::kKind) tiers.emplace(component.table, make<Tier>(component, registry, host));
  }
}

Part<Tier> make_tier(config::CheckedComponent& checked, Registry& registry, RankHost& host) {
  return make<Tier>(checked, registry, host);
}

std::unique_ptr<Precision> make_plain_precision() {
  return std::make_unique<PlainPrecision>();
}

}  // namespace tenon::train
