// State of the registry, and components through the plugin ABI. A status per plugin is what lookups see; an
// entry beside it holds what loading adds.
#include <tenon/registry.hpp>

#include "base/digests.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/guard.hpp"
#include "plugin/loader.hpp"
#include "plugin/lookup.hpp"
#include "plugin/process_end.hpp"
#include "plugin/search.hpp"

#include <tenon/error.hpp>
#include <tenon/host.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <mutex>
#include <set>

TENON_ABI_BEGIN

namespace {

using State = PluginStatus::State;
constexpr const char* kBuiltIn = "built in";

}  // namespace

struct Registry::Impl {
  struct Loaded {
    const tenon_plugin_v1_t* descriptor = nullptr;
    std::string id, version, file;
    std::deque<std::string> names;  // of its components, in order; ComponentRef looks at them
    bool running = true;            // false after shutdown; the entry stays for later lookups
  };

  void discover(std::vector<plugin::SearchPlace> found);
  void discover_file(const std::filesystem::path& file, const plugin::SearchPlace& place);
  bool hidden(PluginStatus& status, const std::filesystem::path& place) const;
  bool conflicts(PluginStatus& status);
  void require_needs(const tenon_plugin_v1_t& descriptor, const std::string& file) const;
  const Loaded& load(std::size_t index);
  const Loaded& add_loaded(const tenon_plugin_v1_t& descriptor, const PluginStatus& status);
  const Loaded* loaded(std::string_view plugin_id) const;
  ComponentRef find(std::string_view kind, std::string_view type);
  void require_open(std::string_view action) const {
    if (frozen) fail_run(fmt::format("the registry is frozen after start: {}", action));
  }

  mutable std::mutex mutex;
  std::vector<PluginStatus> plugins;
  std::vector<std::filesystem::path> found_in;  // the place of each, as it was named
  std::deque<Loaded> order;                     // of loading; addresses stay
  std::vector<plugin::SearchPlace> places;
  std::set<std::string> contested;  // plugin ids that several files offer
  bool frozen = false;
};

// A file of the same plugin id in an earlier place serves it. The order of places is the user's, unlike that
// of files in a folder.
bool Registry::Impl::hidden(PluginStatus& status, const std::filesystem::path& place) const {
  for (std::size_t i = 0; i < plugins.size(); ++i) {
    const PluginStatus& other = plugins[i];
    if (other.id != status.id || found_in[i] == place) continue;
    if (other.state != State::kOffered && other.state != State::kLoaded) continue;
    status.state = State::kHidden;
    status.reason = fmt::format(
        "{} {} ({}, {}) is hidden by {} ({}, {}): the first place that has a plugin "
        "id serves it",
        status.id, status.version, status.file, status.origin, other.version, other.file, other.origin);
    return true;
  }
  return false;
}

// Two files with one plugin id in one folder: neither may win by its name, so both are refused.
bool Registry::Impl::conflicts(PluginStatus& status) {
  for (PluginStatus& other : plugins) {
    if (other.id != status.id || other.state == State::kHidden) continue;
    if (other.state == State::kFailed && !contested.contains(status.id)) continue;
    contested.insert(status.id);
    const std::string text =
        fmt::format("plugin id '{}' is offered by two files: {} ({}) and {} ({}). Remove one of them",
                    status.id, other.file, other.version, status.file, status.version);
    status.reason = plugin::cannot_load(status.file, text + ". No plugin code was run.");
    status.state = State::kFailed;
    if (other.state == State::kOffered) {
      other.reason = plugin::cannot_load(other.file, text + ". No plugin code was run.");
      other.state = State::kFailed;
    }
    return true;
  }
  return false;
}

void Registry::Impl::discover_file(const std::filesystem::path& file, const plugin::SearchPlace& place) {
  const std::string name = file.string();
  if (std::any_of(plugins.begin(), plugins.end(), [&](const PluginStatus& p) { return p.file == name; }))
    return;
  PluginStatus status;
  status.file = name;
  status.origin = place.origin;
  try {
    plugin::AbiTag tag = plugin::read_abi_tag(file);
    status.id = tag.plugin_id;
    status.version = tag.plugin_version;
    status.abi_tag = tag.text;
    status.abi = plugin::abi_summary(tag);
    for (plugin::Offer& offer : tag.offers) {
      status.offers.push_back({std::move(offer.kind), std::move(offer.id), std::move(offer.aliases)});
    }
    status.reason = plugin::abi_problem(tag, plugin::host_abi_tag(), file);
  } catch (const Error& error) {
    status.reason = error.what();
  }
  if (!status.reason.empty())
    status.state = State::kFailed;
  else if (!hidden(status, place.path))
    conflicts(status);
  plugins.push_back(std::move(status));
  found_in.push_back(place.path);
}

void Registry::Impl::discover(std::vector<plugin::SearchPlace> found) {
  require_open("no more plugins are discovered");
  for (plugin::SearchPlace& place : found) {
    plugin::visit(place);
    for (const auto& file : place.files) discover_file(file, place);
    places.push_back(std::move(place));
  }
}

const Registry::Impl::Loaded* Registry::Impl::loaded(std::string_view plugin_id) const {
  for (const Loaded& entry : order) {
    if (entry.id == plugin_id) return &entry;
  }
  return nullptr;
}

const Registry::Impl::Loaded& Registry::Impl::add_loaded(const tenon_plugin_v1_t& descriptor,
                                                         const PluginStatus& status) {
  Loaded& entry = order.emplace_back();
  entry.descriptor = &descriptor;
  entry.id = status.id;
  entry.version = status.version;
  entry.file = status.file;
  for (auto component = descriptor.components; *component != nullptr; ++component) {
    entry.names.push_back(plugin::component_name((*component)->kind, (*component)->id));
  }
  return entry;
}

void Registry::Impl::require_needs(const tenon_plugin_v1_t& descriptor, const std::string& file) const {
  for (auto text = descriptor.needs; text != nullptr && *text != nullptr; ++text) {
    const plugin::Need need = plugin::parse_need(*text).value();  // the descriptor was checked
    const auto found = std::find_if(plugins.begin(), plugins.end(), [&](const PluginStatus& other) {
      return other.id == need.id && other.state != State::kFailed;
    });
    if (found == plugins.end()) {
      fail_plugin(plugin::cannot_load(
          file, fmt::format("it needs the plugin '{}', which is not there. Places searched:{}", *text,
                            plugin::places_text(places))));
    }
    if (!plugin::is_version_at_least(found->version, need.least)) {
      fail_plugin(plugin::cannot_load(file, fmt::format("it needs the plugin '{}', and {} is version {}.",
                                                        *text, found->file, found->version)));
    }
  }
}

const Registry::Impl::Loaded& Registry::Impl::load(std::size_t index) {
  PluginStatus& status = plugins[index];
  if (const Loaded* entry = loaded(status.id)) return *entry;
  require_open(fmt::format("{} is not loaded any more", status.file));
  try {
    // Hashed first: what is recorded is what is about to be opened.
    std::string sha256 = plugin::file_sha256(status.file);
    const plugin::OpenPlugin open = plugin::open_plugin(status.file);
    if (open.tag.text != status.abi_tag) {
      fail_plugin(plugin::cannot_load(status.file, "the file changed since it was discovered."));
    }
    require_needs(*open.descriptor, status.file);
    plugin::init_plugin(*open.descriptor, open.file);
    status.state = State::kLoaded;
    status.sha256 = std::move(sha256);
    return add_loaded(*open.descriptor, status);
  } catch (const Error& error) {
    status.state = State::kFailed;
    status.reason = error.what();
    fail_plugin(status.reason);
  }
}

ComponentRef Registry::Impl::find(std::string_view kind, std::string_view type) {
  const plugin::Choice choice = plugin::choose(plugins, kind, type, places);
  const Loaded& entry = load(choice.plugin);
  // The descriptor lists what the tag lists, in the same order: the loader compared them.
  return {entry.descriptor->components[choice.offer], entry.names[choice.offer], entry.id, entry.version,
          entry.file};
}

Registry::Registry() : impl_(std::make_unique<Impl>()) {}

Registry::~Registry() {
  try {
    shutdown();
  } catch (const Error&) {
    // A caller that wants to know calls shutdown() itself.
  }
}

void Registry::add_builtin(const tenon_plugin_v1_t& descriptor) {
  const std::lock_guard lock(impl_->mutex);
  impl_->require_open("no more plugins are added");
  if (const std::string problem = plugin::descriptor_problem(descriptor); !problem.empty()) {
    fail_plugin(fmt::format("Cannot add a built-in plugin: its descriptor is wrong: {}.", problem));
  }
  const plugin::TagResult tag = plugin::parse_abi_tag(descriptor.abi_tag);
  if (!tag.problem.empty())
    fail_plugin(fmt::format("Cannot add a built-in plugin: its ABI tag is damaged: {}.", tag.problem));
  if (const std::string problem = plugin::abi_problem(tag.tag, plugin::host_abi_tag(), kBuiltIn);
      !problem.empty()) {
    fail_plugin(problem);
  }
  PluginStatus status;
  status.state = State::kLoaded;
  status.id = descriptor.id;
  status.version = descriptor.version;
  status.file = status.origin = kBuiltIn;
  status.abi_tag = tag.tag.text;
  status.abi = plugin::abi_summary(tag.tag);
  if (impl_->conflicts(status)) fail_plugin(status.reason);
  for (auto component = descriptor.components; *component != nullptr; ++component) {
    PluginStatus::Offer& offer =
        status.offers.emplace_back(PluginStatus::Offer{(*component)->kind, (*component)->id, {}});
    for (auto alias = (*component)->aliases; alias != nullptr && *alias != nullptr; ++alias)
      offer.aliases.emplace_back(*alias);
  }
  impl_->require_needs(descriptor, kBuiltIn);
  plugin::init_plugin(descriptor, kBuiltIn);
  impl_->add_loaded(descriptor, status);
  impl_->plugins.push_back(std::move(status));
  impl_->found_in.emplace_back(kBuiltIn);
}

void Registry::discover(const std::vector<std::string>& configured) {
  const std::lock_guard lock(impl_->mutex);
  impl_->discover(plugin::search_places(configured));
}

void Registry::discover_only(const std::vector<std::string>& paths) {
  const std::lock_guard lock(impl_->mutex);
  std::vector<plugin::SearchPlace> found;
  for (const std::string& path : paths) found.push_back({"given", path, "", {}});
  impl_->discover(std::move(found));
}

void Registry::freeze() {
  const std::lock_guard lock(impl_->mutex);
  impl_->frozen = true;
}

ComponentRef Registry::find(std::string_view kind, std::string_view type) {
  const std::lock_guard lock(impl_->mutex);
  return impl_->find(kind, type);
}

ComponentSchema Registry::describe(std::string_view kind, std::string_view type) const {
  const std::lock_guard lock(impl_->mutex);
  const ComponentRef ref = impl_->find(kind, type);
  return {std::string(ref.name), option_list(ref.component->options)};
}

std::vector<PluginStatus> Registry::plugins() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->plugins;
}

std::vector<std::string> Registry::ids(std::string_view kind) const {
  const std::lock_guard lock(impl_->mutex);
  return plugin::offered_ids(impl_->plugins, kind);
}

const tenon_plugin_v1_t* Registry::descriptor(std::string_view plugin_id) const {
  const std::lock_guard lock(impl_->mutex);
  const Impl::Loaded* entry = impl_->loaded(plugin_id);
  return entry == nullptr ? nullptr : entry->descriptor;
}

std::string Registry::places() const {
  const std::lock_guard lock(impl_->mutex);
  return plugin::places_text(impl_->places);
}

void Registry::shutdown() {
  const std::lock_guard lock(impl_->mutex);
  impl_->frozen = true;
  std::string first;
  for (auto entry = impl_->order.rbegin(); entry != impl_->order.rend(); ++entry) {
    if (!std::exchange(entry->running, false)) continue;
    try {
      plugin::shutdown_plugin(*entry->descriptor);
    } catch (const Error& error) {
      if (first.empty()) first = error.what();
    }
  }
  if (!first.empty()) fail_plugin(first);
}

// Making and destroying components through the plugin ABI.

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
  const tenon_host_v1 plugin_abi_host{sizeof(tenon_host_v1), TENON_ABI_EPOCH, TENON_SDK_VERSION, &host};
  tenon_error err{sizeof(tenon_error), static_cast<std::int32_t>(ErrorKind::kPlugin), ""};
  const GuardContext context{
      ref.plugin,       ref.name, host.rank(), -1, dynamic_cast<const ResolvedOptions*>(&options),
      kWatchedElsewhere};
  void* object = nullptr;
  {
    const plugin::HangWatch watch(context, "create", host.deadline());
    object = guard(context, [&] { return ref.component->create(&options, &plugin_abi_host, &err); });
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
