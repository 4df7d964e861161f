// The names under which a component is called that leaves the core: other components hold it as its
// interface, and whatever they call of it is guarded here (guarded_device.hpp, guarded_precision.hpp,
// guarded_transport.hpp).
#pragma once

#include "loop/rank_host.hpp"
#include "plugin/guard.hpp"

#include <new>
#include <string_view>
#include <utility>

namespace tenon::train {

struct CallNames {
  std::string_view plugin, component;  ///< valid as long as the registry
  int rank = -1;
  const RankHost* host = nullptr;  ///< knows the step; null = that of the call around
  const ResolvedOptions* options = nullptr;
  float patience = 1;

  GuardContext context() const {
    const GuardContext* const around = current_plugin_call();
    const std::int64_t step = host != nullptr ? host->slot() : around != nullptr ? around->step : -1;
    return {plugin, component, rank, step, options, patience};
  }
  /// Runs `body` under the guard. A lack of memory keeps its type: the run has words of its own for it.
  template <typename Body>
  decltype(auto) call(Body&& body) const {
    const GuardContext here = context();
    const PluginCallScope scope(here);
    try {
      return std::forward<Body>(body)();
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      rethrow_named(here);
    }
  }
  /// The same for a call that may wait for other ranks: that they are late says nothing about the component.
  template <typename Body>
  decltype(auto) waiting_call(Body&& body) const {
    const GuardContext here = context();
    const PluginCallScope scope(here);
    try {
      return std::forward<Body>(body)();
    } catch (const DeadlineError&) {
      throw;
    } catch (const std::bad_alloc&) {
      throw;
    } catch (...) {
      rethrow_named(here);
    }
  }
};

}  // namespace tenon::train
