// The text of section .tenon_abi as data: what a plugin was built with and what it offers, known without
// running it. The other direction is <tenon/plugin.hpp>.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tenon::plugin {

/// One component as the tag lists it.
struct Offer {
  std::string kind;  ///< "optimizer/1"
  std::string id;
  std::vector<std::string> aliases;
  bool operator==(const Offer&) const = default;
};

struct AbiTag {
  // Must match the program.
  std::string epoch, arch, stdlib, string_abi, debug_containers, rtti, exceptions;
  // Reported only.
  std::string compiler, sdk_version, language;

  std::string plugin_id, plugin_version;
  std::vector<Offer> offers;
  std::string text;  ///< as found, up to and with the line "end"
};

struct TagResult {
  AbiTag tag;
  std::string problem;  ///< "" when the text is well formed
};

/// Parses a section's bytes; unknown keys are left alone, so that later SDKs may add lines.
TagResult parse_abi_tag(std::string_view bytes);
/// Reads and parses the section of a file. Throws Error(kPlugin); no code of the file runs.
AbiTag read_abi_tag(const std::filesystem::path& file);
/// The tag of this program.
const AbiTag& host_abi_tag();
/// Why a plugin with `tag` cannot run in a program with `host`: both sides, first difference, fix, effect. ""
/// = it can.
std::string abi_problem(const AbiTag& tag, const AbiTag& host, const std::filesystem::path& file);

/// "epoch 0, x86_64, libstdc++, string-abi cxx11, ..., gcc-12.2.0, sdk 0.1.0": one line for records.
std::string abi_summary(const AbiTag& tag);

/// "Cannot load '<file>': " + text.
std::string cannot_load(const std::filesystem::path& file, std::string_view text);

}  // namespace tenon::plugin
