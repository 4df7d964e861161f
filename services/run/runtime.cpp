// The runtime: a registry, and runs built from it.
#include "config/words.hpp"
#include "run/device_choice.hpp"
#include "run/rank.hpp"
#include "run/world.hpp"

#include <tenon/error.hpp>
#include <tenon/runtime.hpp>

TENON_ABI_BEGIN

namespace {

/// Runs `call`; an error of the configuration says where the key is written that it names.
template <typename Call>
auto with_places(const Config& config, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::kConfig) throw;
    fail_config(config::with_place(config, error.what()));
  }
}

}  // namespace

struct Runtime::Impl {
  Registry registry;
};

Runtime::Runtime() : impl_(std::make_unique<Impl>()) {}
Runtime::~Runtime() = default;

void Runtime::add_plugin(const tenon_plugin_v1_t& plugin) {
  impl_->registry.add_builtin(plugin);
}
void Runtime::discover(const std::vector<std::string>& paths) {
  impl_->registry.discover(paths);
}
Registry& Runtime::registry() {
  return impl_->registry;
}

Config Runtime::check(const Config& config, std::vector<std::string>* report) {
  return with_places(config, [&] {
    TrainRequest request;
    train::Survival survival(request);
    const train::DeviceChoice choice = train::choose_device(config, impl_->registry);
    train::World world(choice.config, impl_->registry, request, survival);
    std::vector<std::string> facts = world.build_only();
    if (!choice.why.empty()) facts.push_back(choice.why);
    if (report != nullptr) *report = facts;
    return world.checked.resolved;
  });
}

RunResult Runtime::train(const Config& config, const TrainRequest& request) {
  train::Survival survival(request);
  TrainRequest now = request;
  const train::DeviceChoice choice =
      with_places(config, [&] { return train::choose_device(config, impl_->registry); });
  while (true) {
    survival.next.reset();
    try {
      RunResult result = with_places(config, [&] {
        train::World world(choice.config, impl_->registry, now, survival);
        world.record.device_choice = choice.why;
        return world.run();
      });
      if (!survival.next) return result;
    } catch (const Error&) {
      if (!survival.next) throw;
    }
    const Continuation& next = *survival.next;
    now.place.control = next.control;
    now.place.token = next.token;
    now.place.generation = next.generation;
    now.resume = request.resume || next.resume;
  }
}

TENON_ABI_END
