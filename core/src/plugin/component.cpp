// Making and destroying components through the neck.
#include "plugin/guard.hpp"
#include "plugin/hang_watch.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>

TENON_ABI_BEGIN

void ComponentHandle::reset() noexcept {
  if (object_ == nullptr) return;
  const GuardContext context{ref_.plugin, ref_.name};
  const PluginCallScope scope(context);
  ref_.component->destroy(std::exchange(object_, nullptr));
}

void* ComponentHandle::query(const char* interface_id) const {
  if (object_ == nullptr) return nullptr;
  return guard(GuardContext{ref_.plugin, ref_.name},
               [&] { return ref_.component->query(object_, interface_id); });
}

ComponentHandle Registry::create(std::string_view kind, std::string_view type, const Options& options,
                                 Host& host) {
  const ComponentRef ref = find(kind, type);
  const tenon_host_v1 neck_host{sizeof(tenon_host_v1), TENON_ABI_EPOCH, TENON_SDK_VERSION, &host};
  tenon_error err{sizeof(tenon_error), static_cast<std::int32_t>(ErrorKind::kPlugin), ""};
  const GuardContext context{ref.plugin, ref.name, host.rank(), -1,
                             dynamic_cast<const ResolvedOptions*>(&options)};
  void* object = nullptr;
  {
    const plugin::HangWatch watch(context, "create", host.deadline());
    object = guard(context, [&] { return ref.component->create(&options, &neck_host, &err); });
  }
  if (object != nullptr) return ComponentHandle(ref, object);
  err.message[sizeof err.message - 1] = '\0';
  const bool known = err.code == static_cast<int>(ErrorKind::kRun) ||
                     err.code == static_cast<int>(ErrorKind::kConfig) ||
                     err.code == static_cast<int>(ErrorKind::kDeviceLost);
  const std::string_view reason =
      err.message[0] != '\0' ? std::string_view(err.message) : "create failed and gave no reason";
  if (err.code == static_cast<int>(ErrorKind::kConfig)) fail_config(config_text(context, reason));
  throw Error(known ? static_cast<ErrorKind>(err.code) : ErrorKind::kPlugin,
              fmt::format("{}: {}", guard_place(context), reason));
}

void Registry::create_inner(ResolvedOptions& options, Host& host) {
  for (auto& [name, inner] : options.inner()) {
    if (inner->instance != nullptr) continue;
    create_inner(*inner->options, host);
    const ComponentRef ref = find(inner->kind, inner->type);
    ComponentHandle handle = create(inner->kind, inner->type, *inner->options, host);
    inner->instance = {handle.release(), ref.component->destroy};
  }
}

TENON_ABI_END
