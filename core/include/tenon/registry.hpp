// The registry of plugins and components: an object of the runtime, filled explicitly, frozen after start.
// Discovery reads tags only; a file is opened when a component of it is asked for. Plugins are never
// unloaded. All functions may be called from several threads.
#pragma once

#include <tenon/plugin_abi.h>
#include <tenon/config.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

class Host;

/// One component of a loaded plugin. A cheap copy; valid as long as its registry.
struct ComponentRef {
  const tenon_component_v1* component = nullptr;
  std::string_view name;            ///< "optimizer.lion"
  std::string_view plugin;          ///< "acme.lion"
  std::string_view plugin_version;  ///< "1.0.0"
  std::string_view file;            ///< "built in" when linked into the program
};

/// Owner of a component's object, which is destroyed through the plugin ABI by the plugin that made it.
class ComponentHandle {
 public:
  ComponentHandle() = default;
  ComponentHandle(const ComponentRef& ref, void* object) : ref_(ref), object_(object) {}
  ComponentHandle(ComponentHandle&& other) noexcept
      : ref_(other.ref_), object_(std::exchange(other.object_, nullptr)) {}
  ComponentHandle& operator=(ComponentHandle&& other) noexcept {
    std::swap(ref_, other.ref_);
    std::swap(object_, other.object_);
    return *this;
  }
  ~ComponentHandle() { reset(); }

  void reset() noexcept;
  /// Releases the object; the caller then calls ref().component->destroy.
  void* release() noexcept { return std::exchange(object_, nullptr); }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  void* object() const noexcept { return object_; }
  const ComponentRef& ref() const noexcept { return ref_; }
  /// Another interface of the same object by id, e.g. "tenon.quantizer/1"; null when not offered.
  void* query(const char* interface_id) const;

 private:
  ComponentRef ref_;
  void* object_ = nullptr;
};

/// A ComponentHandle that knows its interface.
template <typename Interface>
class Component {
 public:
  Component() = default;
  explicit Component(ComponentHandle handle) : handle_(std::move(handle)) {}

  Interface* get() const noexcept { return static_cast<Interface*>(handle_.object()); }
  Interface* operator->() const noexcept { return get(); }
  Interface& operator*() const noexcept { return *get(); }
  explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
  std::string_view id() const noexcept { return handle_.ref().component->id; }
  std::string_view plugin() const noexcept { return handle_.ref().plugin; }
  const ComponentHandle& handle() const noexcept { return handle_; }

 private:
  ComponentHandle handle_;
};

/// Facts about a plugin, loaded or not.
struct PluginStatus {
  enum class State : std::uint8_t {
    kOffered,  ///< its tag was read and fits; nothing of it ran
    kLoaded,
    kFailed,  ///< see reason
    kHidden,  ///< not used: an earlier place has a file of the same plugin id; reason names it
  };
  struct Offer {
    std::string kind;  ///< "optimizer/1"
    std::string id;
    std::vector<std::string> aliases;
  };

  State state = State::kOffered;
  std::string reason;  ///< the whole error text
  std::string id;      ///< "acme.lion"; "" when not even the tag could be read
  std::string version;
  std::string file;    ///< canonical path, or "built in"
  std::string origin;  ///< which place it came from: "[plugins] paths", "TENON_PLUGIN_PATH", "install folder"
  std::string abi_tag;  ///< text of the section
  std::string abi;      ///< the tag's facts in one line: "epoch 0, x86_64, libstdc++, ..."
  std::string sha256;   ///< of the file when it was loaded; "" otherwise
  std::vector<Offer> offers;
};

class Registry final : public ComponentCatalog {
 public:
  Registry();
  /// Calls shutdown() and drops what it throws.
  ~Registry() override;

  /// Registers a plugin that is linked into this program: checks its descriptor and runs init. All or
  /// nothing.
  void add_builtin(const tenon_plugin_v1_t& plugin);
  /// Looks for plugins in `configured` (files or folders, absolute), then TENON_PLUGIN_PATH, then the install
  /// folder. Where several places have a file of one plugin id, the first of them serves it, and the others
  /// are hidden; two such files in one folder are both refused. A file that this program cannot load hides
  /// none.
  void discover(const std::vector<std::string>& configured);
  /// Only in `paths`.
  void discover_only(const std::vector<std::string>& paths);
  /// Stops additions and loading; find() and create() serve what is loaded.
  void freeze();

  /// The component that `type` names: "lion", an alias, "acme/lion" or "acme.lion/lion". Loads its plugin if
  /// need be. Error(kConfig): unknown (with a suggestion and every place searched), ambiguous, another
  /// version of the kind. Error(kPlugin): every plugin that offers it is broken.
  ComponentRef find(std::string_view kind, std::string_view type);
  ComponentSchema describe(std::string_view kind, std::string_view type) const override;

  /// Makes a component. Errors name plugin, component and rank, and keep the kind that the component threw.
  ComponentHandle create(std::string_view kind, std::string_view type, const Options& options, Host& host);
  template <typename Interface>
  Component<Interface> create(std::string_view type, const Options& options, Host& host) {
    return Component<Interface>(create(Interface::kKind, type, options, host));
  }
  /// Makes the inner components of `options`, innermost first, and attaches them; to be called before
  /// create().
  void create_inner(ResolvedOptions& options, Host& host);

  std::vector<PluginStatus> plugins() const;
  /// Sorted ids of all components of a kind ("optimizer/1") that are offered by plugins that did not fail.
  std::vector<std::string> ids(std::string_view kind) const;
  /// The descriptor of a loaded plugin, null when it is not loaded.
  const tenon_plugin_v1_t* descriptor(std::string_view plugin_id) const;
  /// Every place searched, one per line, with what was found there.
  std::string places() const;
  /// Calls the plugins' shutdown, last loaded first. Every component must be gone. Repeatable. Throws the
  /// first Error, after all were called.
  void shutdown();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

TENON_ABI_END
