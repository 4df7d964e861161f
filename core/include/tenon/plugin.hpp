// The header of plugin authors: a description per component and one macro.
//
//   class Lion final : public tenon::Optimizer {
//    public:
//     static constexpr tenon::OptionSpec kOptions[] = {tenon::option::real("lr", "1e-4").at_least(0)};
//     static constexpr tenon::ComponentInfo kInfo{.id = "lion", .summary = "sign momentum", .options =
//     kOptions}; Lion(const tenon::Options& options, tenon::Host& host);   // or Lion(const tenon::Options&
//     options)
//     ...
//   };
//   TENON_PLUGIN(tenon::PluginInfo{.id = "acme.lion", .version = "1.0.0", .summary = "Lion optimizer"}, Lion)
//
// The macro emits the descriptor of <tenon/plugin_abi.h> and the text of section .tenon_abi from the same
// lists.
#pragma once

#include <tenon/plugin_abi.h>
#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <span>
#include <string_view>
#include <type_traits>

TENON_ABI_BEGIN

class Host;  // a component that takes one includes <tenon/host.hpp>

/// Declares an input or output of a layer; chain the setters, e.g.
///   static constexpr PortSpec kPorts[] = {port::input("x", "[..., width]").of("f32 f64"), port::output("y",
///   ...)};
class PortSpec : public tenon_port_v1 {
 public:
  constexpr PortSpec(std::uint32_t port_flags, const char* port_name, const char* port_shape)
      : tenon_port_v1{sizeof(tenon_port_v1), port_flags, port_name, "", port_shape, ""} {}
  /// Dtypes in words; without them: any.
  constexpr PortSpec of(const char* words) const {
    PortSpec s = *this;
    s.dtypes = words;
    return s;
  }
  constexpr PortSpec doc_text(const char* text) const {
    PortSpec s = *this;
    s.doc = text;
    return s;
  }
  /// May be left out, with all after it.
  constexpr PortSpec optional() const { return with(TENON_PORT_OPTIONAL); }
  /// The last input: any number of them.
  constexpr PortSpec repeated() const { return with(TENON_PORT_REPEATED); }

 private:
  constexpr PortSpec with(std::uint32_t flag) const {
    PortSpec s = *this;
    s.flags |= flag;
    return s;
  }
};

/// `shape`: "[..., time, width]", a word per dimension, "..." for any number of them; "" for any shape.
namespace port {
constexpr PortSpec input(const char* name, const char* shape) {
  return {0u, name, shape};
}
constexpr PortSpec output(const char* name, const char* shape) {
  return {TENON_PORT_OUTPUT, name, shape};
}
}  // namespace port

/// Identity of one component, a constant of its class named kInfo.
struct ComponentInfo {
  const char* id = "";  ///< lower case, digits, '_': the `type` in TOML
  const char* summary = "";
  std::span<const OptionSpec> options = {};
  std::uint64_t capabilities = 0;
  tenon_maturity maturity = TENON_STABLE;
  const char* const* aliases = nullptr;
  const char* const* requirements = nullptr;
  std::span<const PortSpec> ports = {};  ///< of a layer: inputs, then outputs
};

/// Text inside a template argument: a string literal itself is not allowed there. Too long = error at compile
/// time.
template <std::size_t Capacity>
struct StaticText {
  char text[Capacity + 1] = {};
  constexpr StaticText() = default;
  constexpr StaticText(
      const char* source) {  // NOLINT(google-explicit-constructor): written as .id = "acme.lion"
    for (std::size_t i = 0; source[i] != '\0'; ++i) text[i] = source[i];
  }
  constexpr const char* c_str() const { return text; }
};

/// Functions of a plugin beside its components: a constant of namespace scope, named as .hooks = &kHooks.
/// (Function pointers themselves cannot be part of a template argument with g++ 12.)
struct PluginHooks {
  int (*init)(const tenon_host_v1*, tenon_error*) = nullptr;  ///< once per runtime; may throw
  void (*shutdown)() = nullptr;                               ///< joins threads, frees devices
};

/// Identity of a plugin. All fields but url and hooks are mandatory.
struct PluginInfo {
  StaticText<64> id = "";       ///< "vendor.name"
  StaticText<32> version = "";  ///< "1.2.3"
  StaticText<256> summary = "";
  StaticText<128> vendor = "Tenon contributors";
  StaticText<64> licence = "Apache-2.0";  ///< SPDX
  StaticText<256> url = "";
  const PluginHooks* hooks = nullptr;
  /// Other plugins that must be there: a NULL-terminated static array of "vendor.name" or "vendor.name
  /// >= 1.2".
  const char* const* needs = nullptr;
};

TENON_ABI_END

// Component classes become the C tables of <tenon/plugin_abi.h> at compile time. Authors never name anything
// of this part. No exception leaves a function of the tables: it becomes a code and a text in tenon_error.
#define TENON_STRINGIZE_(x) #x
#define TENON_STRINGIZE(x) TENON_STRINGIZE_(x)

// The text of section .tenon_abi, built at compile time: what must match between plugin and program, what is
// only reported, and what the plugin offers. Reading it back: core/src/plugin/abi_tag.hpp. Call these
// functions only to initialise constexpr objects: called at run time, a plugin's inline function may be
// replaced by the program's copy, and would then describe the program.
TENON_ABI_BEGIN
namespace detail {

// Must match.
#if defined(__x86_64__)
#define TENON_ABI_ARCH "x86_64"
#elif defined(__aarch64__)
#define TENON_ABI_ARCH "aarch64"
#elif defined(__riscv) && __riscv_xlen == 64
#define TENON_ABI_ARCH "riscv64"
#else
#error "tenon: no name for this architecture yet; add it to tenon/plugin.hpp"
#endif

#if defined(__GLIBCXX__)
#define TENON_ABI_STDLIB "libstdc++"
#if _GLIBCXX_USE_CXX11_ABI
#define TENON_ABI_STRING "cxx11"
#else
#define TENON_ABI_STRING "old"
#endif
#elif defined(_LIBCPP_VERSION)
#define TENON_ABI_STDLIB "libc++-" TENON_STRINGIZE(_LIBCPP_ABI_VERSION)
#define TENON_ABI_STRING "libc++"
#else
#error "tenon: unknown C++ standard library"
#endif

#ifdef _GLIBCXX_DEBUG
#define TENON_ABI_DEBUG "on"
#else
#define TENON_ABI_DEBUG "off"
#endif
#ifdef __cpp_rtti
#define TENON_ABI_RTTI "on"
#else
#define TENON_ABI_RTTI "off"
#endif
#ifdef __cpp_exceptions
#define TENON_ABI_EXCEPTIONS "on"
#else
#define TENON_ABI_EXCEPTIONS "off"
#endif

// Reported only.
#if defined(__clang__)
#define TENON_ABI_COMPILER                                                                            \
  "clang-" TENON_STRINGIZE(__clang_major__) "." TENON_STRINGIZE(__clang_minor__) "." TENON_STRINGIZE( \
      __clang_patchlevel__)
#elif defined(__GNUC__)
#define TENON_ABI_COMPILER                                                                  \
  "gcc-" TENON_STRINGIZE(__GNUC__) "." TENON_STRINGIZE(__GNUC_MINOR__) "." TENON_STRINGIZE( \
      __GNUC_PATCHLEVEL__)
#else
#define TENON_ABI_COMPILER "unknown"
#endif
#if __cplusplus > 202002L
#define TENON_ABI_LANGUAGE "c++23"
#else
#define TENON_ABI_LANGUAGE "c++20"
#endif

constexpr std::string_view abi_epoch_text() {
  constexpr std::string_view text = TENON_STRINGIZE(TENON_ABI_EPOCH);  // "0u"
  return text.substr(0, text.size() - 1);
}

/// Counts when `out` is null, writes otherwise; one pass of each gives an array of exact size.
class AbiWriter {
 public:
  constexpr explicit AbiWriter(char* out) : out_(out) {}
  constexpr void put(std::string_view text) {
    for (char c : text) {
      if (out_ != nullptr) out_[size_] = c;
      ++size_;
    }
  }
  template <typename... Words>
  constexpr void line(std::string_view key, Words... words) {
    put(key);
    ((put(" "), put(words)), ...);
    put("\n");
  }
  constexpr std::size_t size() const { return size_; }

 private:
  char* out_;
  std::size_t size_ = 0;
};

constexpr void write_abi_platform(AbiWriter& out) {
  out.line("tenon-abi", "1");
  out.line("epoch", abi_epoch_text());
  out.line("arch", TENON_ABI_ARCH);
  out.line("stdlib", TENON_ABI_STDLIB);
  out.line("string-abi", TENON_ABI_STRING);
  out.line("debug-containers", TENON_ABI_DEBUG);
  out.line("rtti", TENON_ABI_RTTI);
  out.line("exceptions", TENON_ABI_EXCEPTIONS);
  out.line("compiler", TENON_ABI_COMPILER);
  out.line("sdk-version", TENON_SDK_VERSION);
  out.line("language", TENON_ABI_LANGUAGE);
}

/// The text that `write(AbiWriter&)` produces, ended by a NUL so that the same bytes serve as a C string.
/// `Write` has no state.
template <typename Write>
constexpr auto abi_text(Write) {
  constexpr std::size_t size = [] {
    AbiWriter counter(nullptr);
    Write{}(counter);
    return counter.size();
  }();
  std::array<char, size + 1> text{};
  AbiWriter writer(text.data());
  Write{}(writer);
  return text;
}

}  // namespace detail
TENON_ABI_END

TENON_ABI_BEGIN
namespace detail {

inline void write_error(tenon_error* err, ErrorKind kind, std::string_view text) noexcept {
  if (err == nullptr || err->struct_size <= offsetof(tenon_error, message)) return;
  const std::size_t room = err->struct_size - offsetof(tenon_error, message) - 1;
  const std::size_t length = text.size() < room ? text.size() : room;
  err->code = static_cast<std::int32_t>(kind);
  std::memcpy(err->message, text.data(), length);
  err->message[length] = '\0';
}

/// Runs `body`; on any exception fills `err` and returns `failed`.
template <typename Body, typename Result>
Result shielded(tenon_error* err, Result failed, Body body) noexcept {
  try {
    return body();
  } catch (const Error& error) {
    write_error(err, error.kind(), error.what());
  } catch (const std::exception& error) {
    write_error(err, ErrorKind::kPlugin, error.what());
  } catch (...) {
    write_error(err, ErrorKind::kPlugin, "threw an object that is not a std::exception");
  }
  return failed;
}

constexpr bool is_component_id(std::string_view id) {
  if (id.empty() || id[0] < 'a' || id[0] > 'z') return false;
  for (char c : id) {
    if (!((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
  }
  return true;
}

template <typename Interface>
concept HasQuery = requires(Interface& object, std::string_view id) {
  { object.query(id) } -> std::same_as<void*>;
};

/// The table of one component class.
template <typename T>
struct ComponentGlue {
  using Interface = typename T::Interface;

  static_assert(std::is_base_of_v<Interface, T>, "a component derives from the interface of its kind");
  static_assert(!std::is_abstract_v<T>, "a component overrides every function of its interface");
  static_assert(std::has_virtual_destructor_v<Interface>, "an interface has a virtual destructor");
  static_assert(is_component_id(T::kInfo.id),
                "kInfo.id: a lower-case letter, then lower case, digits and '_'");
  static_assert(T::kInfo.summary[0] != '\0', "kInfo.summary is mandatory");
  static_assert(
      std::is_constructible_v<T, const Options&, Host&> || std::is_constructible_v<T, const Options&>,
      "a component has a constructor (const tenon::Options&, tenon::Host&) or (const tenon::Options&)");

  static void* create(const void* options, const tenon_host_v1* host, tenon_error* err) noexcept {
    return shielded(err, static_cast<void*>(nullptr), [&]() -> void* {
      const auto& typed = *static_cast<const Options*>(options);
      if constexpr (std::is_constructible_v<T, const Options&, Host&>) {
        return static_cast<Interface*>(new T(typed, *static_cast<Host*>(host->cxx_host)));
      } else {
        return static_cast<Interface*>(new T(typed));
      }
    });
  }

  static void destroy(void* component) noexcept { delete static_cast<Interface*>(component); }

  static void* query(void* component, const char* interface_id) noexcept {
    if constexpr (HasQuery<Interface>) {
      return shielded(nullptr, static_cast<void*>(nullptr), [&] {
        return static_cast<Interface*>(component)->query(std::string_view(interface_id));
      });
    } else {
      return nullptr;
    }
  }

  static constexpr auto kOptionList = [] {
    std::array<const tenon_option_v1*, T::kInfo.options.size() + 1> list{};
    for (std::size_t i = 0; i < T::kInfo.options.size(); ++i) list[i] = &T::kInfo.options[i];
    return list;
  }();

  static constexpr auto kPortList = [] {
    std::array<const tenon_port_v1*, T::kInfo.ports.size() + 1> list{};
    for (std::size_t i = 0; i < T::kInfo.ports.size(); ++i) list[i] = &T::kInfo.ports[i];
    return list;
  }();

  static constexpr tenon_component_v1 kTable{sizeof(tenon_component_v1),
                                             static_cast<std::uint32_t>(T::kInfo.maturity),
                                             Interface::kKind,
                                             T::kInfo.id,
                                             T::kInfo.aliases,
                                             T::kInfo.summary,
                                             kOptionList.data(),
                                             T::kInfo.capabilities,
                                             T::kInfo.requirements,
                                             &create,
                                             &destroy,
                                             &query,
                                             kPortList.data()};

  static constexpr void write_abi(AbiWriter& out) {
    out.line("component", Interface::kKind, T::kInfo.id);
    if (T::kInfo.aliases == nullptr) return;
    for (const char* const* alias = T::kInfo.aliases; *alias != nullptr; ++alias) {
      out.line("alias", Interface::kKind, *alias, T::kInfo.id);
    }
  }
};

template <typename... Components>
inline constexpr std::array<const tenon_component_v1*, sizeof...(Components) + 1> kComponentList{
    &ComponentGlue<Components>::kTable..., nullptr};

/// The descriptor and the text of one plugin.
template <PluginInfo Info, typename... Components>
struct PluginGlue {
  static_assert(sizeof...(Components) > 0, "TENON_PLUGIN(info, Component...) names at least one component");
  static_assert(Info.id.text[0] != '\0' && Info.version.text[0] != '\0' && Info.summary.text[0] != '\0' &&
                    Info.vendor.text[0] != '\0' && Info.licence.text[0] != '\0',
                "PluginInfo: id, version, summary, vendor and licence are mandatory");

  static constexpr void write_abi(AbiWriter& out) {
    write_abi_platform(out);
    out.line("plugin", Info.id.c_str(), Info.version.c_str());
    (ComponentGlue<Components>::write_abi(out), ...);
    out.line("end");
  }

  static constexpr auto abi_text() {
    return detail::abi_text([](AbiWriter& out) { write_abi(out); });
  }

  /// An author's init may throw although the plugin ABI forbids it.
  static int init(const tenon_host_v1* host, tenon_error* err) noexcept {
    return shielded(err, 1, [&] { return Info.hooks->init(host, err); });
  }

  static constexpr tenon_plugin_v1_t descriptor(const char* abi_tag) {
    tenon_plugin_v1_t plugin{};
    plugin.magic = TENON_PLUGIN_ABI_MAGIC;
    plugin.struct_size = sizeof plugin;
    plugin.abi_epoch = TENON_ABI_EPOCH;
    plugin.abi_tag = abi_tag;
    plugin.id = Info.id.c_str();
    plugin.version = Info.version.c_str();
    plugin.summary = Info.summary.c_str();
    plugin.vendor = Info.vendor.c_str();
    plugin.licence = Info.licence.c_str();
    plugin.url = Info.url.c_str();
    if constexpr (Info.hooks != nullptr) {
      plugin.init = Info.hooks->init == nullptr ? nullptr : &init;
      plugin.shutdown = Info.hooks->shutdown;
    }
    plugin.components = kComponentList<Components...>.data();
    plugin.needs = Info.needs;
    return plugin;
  }
};

}  // namespace detail
TENON_ABI_END

// Linked into a program instead of loaded, a plugin needs a symbol of its own and no section.
#ifdef TENON_PLUGIN_STATIC_NAME
#define TENON_PLUGIN_NAME_ TENON_PLUGIN_STATIC_NAME
#define TENON_PLUGIN_SECTION_
#else
#define TENON_PLUGIN_NAME_ tenon_plugin_v1
#define TENON_PLUGIN_SECTION_ __attribute__((section(TENON_ABI_SECTION), used))
#endif

/// TENON_PLUGIN(info, Component...): defines the plugin's only exported symbol. Use it once, at namespace
/// scope outside any namespace.
#define TENON_PLUGIN(...)                                                                   \
  namespace {                                                                               \
  using TenonPluginGlue_ = ::tenon::detail::PluginGlue<__VA_ARGS__>;                        \
  TENON_PLUGIN_SECTION_ constexpr auto tenon_abi_text_ = TenonPluginGlue_::abi_text();      \
  }                                                                                         \
  extern "C" {                                                                              \
  extern const tenon_plugin_v1_t TENON_PLUGIN_NAME_ __attribute__((visibility("default"))); \
  __attribute__((used)) constinit const tenon_plugin_v1_t TENON_PLUGIN_NAME_ =              \
      TenonPluginGlue_::descriptor(tenon_abi_text_.data());                                 \
  }

/// TENON_STATIC_PLUGIN(name, info, Component...): a descriptor `name`, private to its source file, of a
/// plugin that is linked into a program; Runtime::add_plugin(name) registers it. A file may define several.
#define TENON_STATIC_PLUGIN(name, ...)                                                    \
  namespace {                                                                             \
  constexpr auto name##_abi_text_ = ::tenon::detail::PluginGlue<__VA_ARGS__>::abi_text(); \
  constinit const tenon_plugin_v1_t name =                                                \
      ::tenon::detail::PluginGlue<__VA_ARGS__>::descriptor(name##_abi_text_.data());      \
  }
