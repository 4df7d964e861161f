// For tests of components of kind power: one made from TOML without a registry, and a policy's answers to a
// load. Header only.
#pragma once

#include <tenon/config.hpp>
#include <tenon/power.hpp>

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tenon::testing {

/// A policy, or a component of another role, and the options that it keeps views of.
template <typename Policy>
struct MadePolicy {
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<Policy> policy;
  Policy* operator->() const { return policy.get(); }
  Policy& operator*() const { return *policy; }
};

/// `more`: arguments of its constructor after the options.
template <typename Policy, typename... More>
MadePolicy<Policy> make_policy(const std::string& toml, More&&... more) {
  const Config config = Config::parse(toml, "test.toml", std::vector<std::string>{});
  MadePolicy<Policy> made;
  made.options = resolve_options(OptionRequest{.table = config.root(),
                                               .owner = "power." + std::string(Policy::kInfo.id),
                                               .specs = option_list(Policy::kOptions)})
                     .options;
  made.policy = std::make_unique<Policy>(*made.options, std::forward<More>(more)...);
  return made;
}

/// The answers to a load from its first sample on.
inline std::vector<PowerOutput> answers(PowerPolicy& policy, const PowerSetup& setup,
                                        std::span<const double> watts, double activity = 1) {
  policy.start(setup);
  std::vector<PowerOutput> outputs;
  for (const double load : watts) outputs.push_back(policy.step({load, activity, false}));
  return outputs;
}

}  // namespace tenon::testing
