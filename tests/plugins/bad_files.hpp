// The plugin files of bad/ that are refused, and the full text of each refusal: the same from the loader and
// from the program. {file}, {sdk} and {compiler} (of the host) are filled in.
#pragma once

#include <ostream>

namespace fixture {

struct BadFile {
  const char* file;
  const char* message;
};

// So that gtest prints the name.
inline void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.file;
}

inline constexpr BadFile kBadFiles[] = {
    {"no_section",
     "Cannot load '{file}': it has no section .tenon_abi, so it is not a Tenon plugin (or was built without "
     "TENON_PLUGIN). "
     "No plugin code was run."},
    {"cut_section",
     "Cannot load '{file}': section .tenon_abi is damaged: it breaks off before the line 'end'. No plugin "
     "code was run."},
    {"old_epoch",
     "Cannot load '{file}': built for plugin ABI 0, this program has ABI 1 (plugin SDK 0.0.9 gcc-11.4.0; "
     "host SDK {sdk} "
     "{compiler}). First difference: abi 0 != 1. Rebuild against SDK 0.1.x, see docs/plugins/abi.md. No "
     "plugin code "
     "was run."},
    {"new_epoch",
     "Cannot load '{file}': built for plugin ABI 4095, this program has ABI 0 (plugin SDK 0.0.9 gcc-11.4.0; "
     "host SDK {sdk} "
     "{compiler}). First difference: abi 4095 != 0. Rebuild against SDK 0.1.x, see docs/plugins/abi.md. No "
     "plugin "
     "code was run."},
    {"string_abi",
     "Cannot load '{file}': built for string-abi old, this program has string-abi cxx11 (plugin SDK 0.0.9 "
     "gcc-11.4.0; host "
     "SDK {sdk} {compiler}). First difference: string-abi old != cxx11. Rebuild without setting "
     "_GLIBCXX_USE_CXX11_ABI, see "
     "docs/plugins/abi.md. No plugin code was run."},
    {"glibcxx_debug",
     "Cannot load '{file}': built for debug-containers on, this program has debug-containers off (plugin SDK "
     "{sdk} {compiler}; "
     "host SDK {sdk} {compiler}). First difference: debug-containers on != off. Rebuild with _GLIBCXX_DEBUG "
     "off, see "
     "docs/plugins/abi.md. No plugin code was run."},
    {"undefined_symbol",
     "Cannot load '{file}': undefined symbol: tenon_nobody_defines_this. Link it with -Wl,-z,defs to find "
     "this when "
     "building it."},
    {"no_symbol",
     "Cannot load '{file}': it does not export the symbol tenon_plugin_v1. Define it with TENON_PLUGIN, "
     "once, in one "
     "source file."},
    {"wrong_magic",
     "Cannot load '{file}': its descriptor is wrong: magic is 0x0000000000000001, expected "
     "0x54454e4f4e763131. Static "
     "initialisers were run, nothing else."},
    {"wrong_size",
     "Cannot load '{file}': its descriptor is wrong: struct_size is 16, expected at least 104. Static "
     "initialisers were "
     "run, nothing else."},
    {"missing_field",
     "Cannot load '{file}': its descriptor is wrong: licence is missing. Static initialisers were run, "
     "nothing else."},
    {"other_section",
     "Cannot load '{file}': its descriptor is wrong: id is 'bad.another_section', section says "
     "'bad.other_section'. Static "
     "initialisers were run, nothing else."},
    {"duplicate_id",
     "Cannot load '{file}': its descriptor is wrong: component toy.plain: the id is declared twice. Static "
     "initialisers "
     "were run, nothing else."},
    {"bad_schema",
     "Cannot load '{file}': its descriptor is wrong: component toy.shy: option 'lr': the default 1e-3 is "
     "below the minimum "
     "0.01. Static initialisers were run, nothing else."},
    {"option_empty_range",
     "Cannot load '{file}': its descriptor is wrong: component toy.torn: option 'lr': the range 1 to 0 is "
     "empty. Static "
     "initialisers were run, nothing else."},
    {"option_twice",
     "Cannot load '{file}': its descriptor is wrong: component toy.torn: option 'lr': the name is declared "
     "twice. Static "
     "initialisers were run, nothing else."},
    {"option_no_such_choice",
     "Cannot load '{file}': its descriptor is wrong: component toy.torn: option 'way': the default 'left' is "
     "not among the "
     "choices. Static initialisers were run, nothing else."},
    {"option_required_with_default",
     "Cannot load '{file}': its descriptor is wrong: component toy.torn: option 'lr': a required option "
     "takes no default. "
     "Static initialisers were run, nothing else."},
    {"option_of_another_type",
     "Cannot load '{file}': its descriptor is wrong: component toy.torn: option 'steps': the default 1.5 is "
     "not a whole number. "
     "Static initialisers were run, nothing else."},
    {"throws_in_init",
     "Cannot load '{file}': its init failed: plugin bad.throws_in_init: no device of mine here"},
    {"fails_in_init", "Cannot load '{file}': its init failed: plugin bad.fails_in_init: gave no reason"},
#if defined(__x86_64__)
    {"changes_mxcsr",
     "Cannot load '{file}': loading it changed the floating-point control word (MXCSR 0x1f80 to 0x9fc0), "
     "which would "
     "change the results of everything else; it was put back. Build it without -ffast-math and without "
     "setting rounding "
     "or flush-to-zero."},
    {"rounds_in_init",
     "Cannot load '{file}': its init changed the floating-point control word (MXCSR 0x1f80 to 0x7f80), which "
     "would change "
     "the results of everything else; it was put back. Build it without -ffast-math and without setting "
     "rounding or "
     "flush-to-zero."},
#endif
};

}  // namespace fixture
