// A component outside of a run's ranks, called under the guard's names: for commands of the program that
// build a graph or a simulator by themselves. rethrow_noted_call() at the end of the command gives errors
// their names.
#pragma once

#include "loop/guarded_device.hpp"
#include "loop/guarded_precision.hpp"
#include "plugin/guard.hpp"

#include <tenon/registry.hpp>

#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>

namespace tenon::train {

template <typename Interface>
class NamedComponent {
 public:
  NamedComponent() = default;
  NamedComponent(Component<Interface> component) : component_(std::move(component)) {
    if (!component_) return;
    const ComponentRef& ref = component_.handle().ref();
    [[maybe_unused]] const CallNames names{ref.plugin, ref.name};
    if constexpr (std::is_same_v<Interface, Device>) {
      guarded_ = std::make_unique<GuardedDevice>(*component_, names);
    } else if constexpr (std::is_same_v<Interface, Precision>) {
      guarded_ = std::make_unique<GuardedPrecision>(*component_, names);
    }
  }
  /// As others may hold it.
  Interface* get() const noexcept { return guarded_ != nullptr ? guarded_.get() : component_.get(); }
  Interface& operator*() const noexcept { return *get(); }
  GuardedCall<Interface> operator->() const noexcept { return guarded(*component_); }
  /// The same names around another interface of this component.
  template <typename Other>
  GuardedCall<Other> guarded(Other& other) const noexcept {
    const ComponentRef& ref = component_.handle().ref();
    return {&other, {ref.plugin, ref.name}};
  }
  explicit operator bool() const noexcept { return static_cast<bool>(component_); }
  std::string_view id() const noexcept { return component_.id(); }
  const ComponentRef& ref() const noexcept { return component_.handle().ref(); }

 private:
  Component<Interface> component_;
  std::unique_ptr<Interface> guarded_;
};

}  // namespace tenon::train
