// The text of section .tenon_abi, built at compile time: what must match between plugin and program, what is
// only reported, and what the plugin offers. Reading it back: core/src/plugin/abi_tag.hpp. Call these
// functions only to initialise constexpr objects: called at run time, a plugin's inline function may be
// replaced by the program's copy, and would then describe the program.
#pragma once

#include <tenon/abi.hpp>

#include <array>
#include <cstddef>
#include <string_view>

#define TENON_STRINGIZE_(x) #x
#define TENON_STRINGIZE(x) TENON_STRINGIZE_(x)

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
#error "tenon: no name for this architecture yet; add it to tenon/detail/abi_text.hpp"
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
