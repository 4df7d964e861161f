// The components of one rank, made from the validated configuration and owned here. Each rank has its own.
#pragma once

#include "config/run_schema.hpp"
#include "loop/guarded_device.hpp"
#include "loop/guarded_precision.hpp"
#include "loop/rank_host.hpp"
#include "plugin/guard.hpp"

#include <tenon/dataset.hpp>
#include <tenon/device.hpp>
#include <tenon/executor.hpp>
#include <tenon/model.hpp>
#include <tenon/observer.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/precision.hpp>
#include <tenon/recovery.hpp>
#include <tenon/registry.hpp>
#include <tenon/sync.hpp>
#include <tenon/tier.hpp>

#include <map>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tenon::train {

/// Ends the inner components of a component, outermost first. They live in its options, which stay for the
/// whole run.
struct InnerEnd {
  void operator()(ResolvedOptions* options) const noexcept;
};

/// A component of a rank, or the core's own answer when the configuration has no such table: train in f32 at
/// a constant rate, let no replica talk, save nothing. Calls through `->` carry the guard's names.
template <typename Interface>
class Part {
 public:
  /// `options`: of the component, null for the core's own answer.
  Part(ResolvedOptions* options, Component<Interface> component, std::unique_ptr<Interface> fallback,
       const RankHost& host)
      : inner_(options), component_(std::move(component)), fallback_(std::move(fallback)), host_(&host) {
    if (!component_) return;
    const ComponentRef& ref = component_.handle().ref();
    const CallNames names{ref.plugin, ref.name, host.rank(), &host, options};
    if constexpr (std::is_same_v<Interface, Device>) {
      guarded_ = std::make_unique<GuardedDevice>(*component_, names);
    } else if constexpr (std::is_same_v<Interface, Precision>) {
      guarded_ = std::make_unique<GuardedPrecision>(*component_, names);
    }
  }
  /// As others than the core may hold it; its calls carry the guard's names where the interface is one that
  /// leaves the core.
  Interface* get() const noexcept { return guarded_ != nullptr ? guarded_.get() : own(); }
  Interface& operator*() const noexcept { return *get(); }
  GuardedCall<Interface> operator->() const noexcept {
    const ComponentRef& ref = component_.handle().ref();
    return {own(), {ref.plugin, ref.name, host_->rank(), host_->slot(), inner_.get()}};
  }
  /// A call that may take so many deadlines of the run.
  GuardedCall<Interface> patient(float deadlines) const noexcept {
    const ComponentRef& ref = component_.handle().ref();
    return {own(), {ref.plugin, ref.name, host_->rank(), host_->slot(), inner_.get(), deadlines}};
  }
  /// The same names around another interface of this component, for a call that may take so many deadlines.
  template <typename Other>
  GuardedCall<Other> guarded(Other& other, float deadlines = 1) const noexcept {
    const ComponentRef& ref = component_.handle().ref();
    return {&other, {ref.plugin, ref.name, host_->rank(), host_->slot(), inner_.get(), deadlines}};
  }
  /// Runs `call` with the component, for code that asks it several times.
  template <typename Call>
  decltype(auto) within(Call&& call) const {
    const GuardedCall<Interface> guarded = operator->();
    return std::forward<Call>(call)(*guarded.operator->());
  }
  /// Returns another interface of the component; null where it offers none.
  template <typename Other>
  Other* offered() const {
    return static_cast<Other*>((*this)->query(Other::kId));
  }
  /// Ends the component early, and those within it.
  void reset() noexcept {
    guarded_.reset();
    component_ = {};
    fallback_.reset();
    inner_.reset();
  }
  std::string_view id() const noexcept { return component_ ? component_.id() : "(none)"; }
  /// The core's own answers touch nothing that others write: they tolerate concurrent writers.
  bool declares(std::uint64_t capability) const noexcept {
    if (!component_) return capability == TENON_CAP_HOGWILD;
    return (component_.handle().ref().component->capabilities & capability) != 0;
  }

 private:
  Interface* own() const noexcept { return component_ ? component_.get() : fallback_.get(); }

  std::unique_ptr<ResolvedOptions, InnerEnd> inner_;  ///< first: what is within a component ends after it
  Component<Interface> component_;
  std::unique_ptr<Interface> fallback_;
  std::unique_ptr<Interface> guarded_;  ///< null where get() is called by the core alone
  const RankHost* host_;
};

struct Parts {
  /// Makes every component but the transport, each with options of its own. Ranks other than 0 keep the
  /// observers that ask for every rank.
  Parts(const config::CheckedRun& run, Registry& registry, RankHost& host);

  /// As they were checked; first: components read their options as long as they live.
  std::vector<config::CheckedComponent> checked;
  Part<Device> device;
  Part<Dataset> dataset;
  Part<Model> model;
  Part<Precision> precision;
  Part<Optimizer> optimizer;
  Part<Schedule> schedule;
  Part<Sync> sync;
  Part<Recovery> recovery;
  std::vector<Part<Observer>> observers;
  std::vector<Part<Dataset>> evaluated;  ///< data of [[evaluate]], in its order
  /// By their tables: "tables.place[0].tier".
  std::map<std::string, Part<Tier>, std::less<>> tiers;
};

/// The first of `components`, or of those within them, that works in host memory alone (TENON_CAP_HOST):
/// "optimizer.lion"; "" where each can work on any device.
std::string host_only(std::span<const config::CheckedComponent> components, Registry& registry);
/// `component`, or the first of those within it, that does not declare `capability`; "" where all do.
std::string first_without(std::uint64_t capability, const config::CheckedComponent& component,
                          Registry& registry);
/// Throws Error(kConfig) where one works in host memory alone and `device` has memory of its own.
void refuse_host_only(std::span<const config::CheckedComponent> components, Registry& registry,
                      const Part<Device>& device);

/// For components that the configuration names only within others.
Part<Tier> make_tier(config::CheckedComponent& checked, Registry& registry, RankHost& host);

/// Training in the parameters' own f32: what a run without a [precision] table does.
std::unique_ptr<Precision> make_plain_precision();

}  // namespace tenon::train
