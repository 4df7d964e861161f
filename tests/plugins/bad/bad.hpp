// For fixtures that the macro would refuse: the section and the descriptor written by hand.
#pragma once

#include "../toy.hpp"

#include <cstdlib>

// The lines that must match, with one place for a wrong value; `epoch` is text.
#define BAD_PLATFORM(epoch, string_abi)                                             \
  "tenon-abi 1\nepoch " epoch "\narch " TENON_ABI_ARCH "\nstdlib " TENON_ABI_STDLIB \
  "\nstring-abi " string_abi "\ndebug-containers " TENON_ABI_DEBUG                  \
  "\nrtti on\nexceptions on\ncompiler gcc-11.4.0\nsdk-version 0.0.9\n"              \
  "language c++20\n"
#define BAD_EPOCH "0"
#define BAD_OFFER(id) "plugin " id " 1.0.0\ncomponent toy/1 plain\nend\n"

#define BAD_SECTION(text) \
  __attribute__((section(TENON_ABI_SECTION), used)) static const char bad_text[] = text;

#define BAD_SYMBOL(...)                                                                  \
  extern "C" {                                                                           \
  extern const tenon_plugin_v1_t tenon_plugin_v1 __attribute__((visibility("default"))); \
  __attribute__((used)) const tenon_plugin_v1_t tenon_plugin_v1 = __VA_ARGS__;           \
  }

namespace {

class BadComponent : public toy::Plain {
 public:
  static constexpr tenon::ComponentInfo kInfo{.id = "plain", .summary = "plain"};
  using Plain::Plain;
};

/// A descriptor without fault; fixtures change one field of it.
[[maybe_unused]] constexpr tenon_plugin_v1_t sound_descriptor(const char* text, const char* id) {
  return {TENON_PLUGIN_ABI_MAGIC,
          sizeof(tenon_plugin_v1_t),
          TENON_ABI_EPOCH,
          text,
          id,
          "1.0.0",
          "bad",
          "Acme",
          "MIT",
          "",
          nullptr,
          nullptr,
          tenon::detail::kComponentList<BadComponent>.data(),
          nullptr};
}

}  // namespace

/// For a fixture that must be refused before any of its code runs: if it runs, the test ends here.
#define BAD_MUST_NOT_RUN                                              \
  __attribute__((constructor, used)) static void bad_must_not_run() { \
    std::abort();                                                     \
  }
