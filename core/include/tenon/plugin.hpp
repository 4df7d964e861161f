// What an author includes to make a plugin: a description per component and one macro.
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
// The macro emits the descriptor of <tenon/neck.h> and the text of section .tenon_abi from the same lists.
#pragma once

#include <tenon/neck.h>
#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

TENON_ABI_BEGIN

class Host;  // a component that takes one includes <tenon/host.hpp>

/// Identity of one component, a constant of its class named kInfo.
struct ComponentInfo {
  const char* id = "";  ///< lower case, digits, '_': the `type` in TOML
  const char* summary = "";
  std::span<const OptionSpec> options = {};
  std::uint64_t capabilities = TENON_CAP_HOST | TENON_CAP_DETERMINISTIC;
  tenon_maturity maturity = TENON_STABLE;
  const char* const* aliases = nullptr;
  const char* const* requirements = nullptr;
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

/// What a plugin does beside offering components: a constant of namespace scope, named as .hooks = &kHooks.
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
};

TENON_ABI_END

#include <tenon/detail/plugin_glue.hpp>

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
