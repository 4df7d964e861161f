// Checks of a plugin file as a whole: it loads, exports one symbol, and init and shutdown nest and repeat.
#include "subject.hpp"

#include "base/file_descriptor.hpp"
#include "plugin/loader.hpp"

#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>
#include <link.h>

#include <cstring>
#include <string>

namespace tenon::conformance {
namespace {

void loads(Subject& subject) {
  const plugin::OpenPlugin plugin = plugin::open_plugin(subject.file());
  plugin::init_plugin(*plugin.descriptor, plugin.file);
  plugin::shutdown_plugin(*plugin.descriptor);
}

/// Dynamic symbols that are defined and visible, from the section table of the file.
std::vector<std::string> exported(const std::filesystem::path& file) {
  const std::string bytes = base::read_file(file).value_or("");
  std::vector<std::string> names;
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto section = [&](std::size_t i) {
    Elf64_Shdr result;
    std::memcpy(&result, bytes.data() + header.e_shoff + i * header.e_shentsize, sizeof result);
    return result;
  };
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const Elf64_Shdr table = section(i);
    if (table.sh_type != SHT_DYNSYM) continue;
    const Elf64_Shdr strings = section(table.sh_link);
    for (std::size_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, bytes.data() + table.sh_offset + at, sizeof symbol);
      const bool visible = ELF64_ST_VISIBILITY(symbol.st_other) == STV_DEFAULT;
      const bool defined = symbol.st_shndx != SHN_UNDEF && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
      if (visible && defined) names.emplace_back(bytes.data() + strings.sh_offset + symbol.st_name);
    }
  }
  return names;
}

// `loads` has already checked this file, so its section table is trusted here.
void exports_one_symbol(Subject& subject) {
  std::string others;
  for (const std::string& name : exported(subject.file())) {
    if (name != TENON_PLUGIN_SYMBOL) others += " " + name;
  }
  if (!others.empty()) {
    fail(
        fmt::format("it exports more than {}:{}. Build it with tenon_add_plugin, or with the version script "
                    "of the package.",
                    TENON_PLUGIN_SYMBOL, others.substr(0, 400)));
  }
}

void begins_and_ends_in_pairs(Subject& subject) {
  const plugin::OpenPlugin plugin = plugin::open_plugin(subject.file());
  const tenon_plugin_v1_t& descriptor = *plugin.descriptor;
  for (int round = 0; round < 2; ++round) {
    plugin::init_plugin(descriptor, plugin.file);
    plugin::init_plugin(descriptor, plugin.file);  // a second runtime in the process
    plugin::shutdown_plugin(descriptor);
    plugin::shutdown_plugin(descriptor);
  }
}

constexpr Check kPluginChecks[] = {
    {"plugin.loads", nullptr, "the file is a plugin for this program; init and shutdown succeed", loads},
    {"plugin.exports_one_symbol", nullptr, "nothing but the descriptor is visible to others",
     exports_one_symbol},
    {"plugin.begins_and_ends", nullptr, "init and shutdown come in pairs, which nest and repeat",
     begins_and_ends_in_pairs},
};

}  // namespace

std::span<const Check> plugin_checks() {
  return kPluginChecks;
}

}  // namespace tenon::conformance
