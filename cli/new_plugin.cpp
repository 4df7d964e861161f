// tenon new-plugin: a project that builds against the installed package and passes its tests. It checks names
// and prints the next commands; the files come from the templates (new_plugin_project.hpp).
#include "command_line.hpp"
#include "new_plugin_project.hpp"

#include "config/data_path.hpp"
#include "config/suggest.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <iostream>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 30;  // vendor.name fits into a plugin's id

/// CMake reserves the first ones; Tenon's own targets have the last two.
constexpr std::array kTakenTargets{"all",     "clean",   "edit_cache",     "help",
                                   "install", "package", "package_source", "rebuild_cache",
                                   "test",    "tenon",   "tenon_core"};

bool is_word(const std::string& name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongestName && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), allowed);
}

/// The value of an option that may be given once.
std::string given(const Parsed& parsed, const char* option) {
  return parsed.values.count(option) > 0 ? parsed.values[option].as<std::string>() : "";
}

void check_kind(const std::string& kind, const std::vector<std::string>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  const std::string list = fmt::format("{}", fmt::join(kinds, ", "));
  if (kind.empty()) fail_config(fmt::format("tenon new-plugin: --kind is missing (known: {})", list));
  fail_config(fmt::format("tenon new-plugin: there is no kind '{}'{} (known: {})", kind,
                          config::suggestion(kind, kinds), list));
}

void check_word(const char* option, const std::string& word) {
  if (is_word(word)) return;
  const std::string rule =
      fmt::format("expected at most {} of lower case, digits and '_', a letter first", kLongestName);
  if (word.empty()) fail_config(fmt::format("tenon new-plugin: {} is missing; {}", option, rule));
  fail_config(fmt::format("tenon new-plugin: {} '{}': {}", option, word, rule));
}

void check_name(const std::string& name) {
  check_word("--name", name);
  if (std::find(kTakenTargets.begin(), kTakenTargets.end(), name) == kTakenTargets.end()) return;
  fail_config(fmt::format(
      "tenon new-plugin: --name '{}': builds have a target of this name already; choose another one", name));
}

/// Two components of one id could be named in TOML only together with their vendor.
void check_is_new(const std::string& kind, const std::string& name) {
  Runtime runtime;
  runtime.discover({});
  for (const PluginStatus& plugin : runtime.registry().plugins()) {
    for (const PluginStatus::Offer& offer : plugin.offers) {
      if (!offer.kind.starts_with(kind + "/")) continue;
      const bool alias = std::find(offer.aliases.begin(), offer.aliases.end(), name) != offer.aliases.end();
      if (offer.id != name && !alias) continue;
      fail_config(fmt::format(
          "tenon new-plugin: --name '{}': {}.{} is offered by {} already ({}); choose another one", name,
          kind, offer.id, plugin.id, plugin.file));
    }
  }
}

/// CMake option that locates this installation; "" if CMake finds it by itself.
std::string prefix_option() {
  const config::ShippedFolder shipped = config::shipped_folder();
  if (shipped.is_source_tree) return " -DCMAKE_PREFIX_PATH=PREFIX";
  const fs::path prefix = shipped.path.parent_path().parent_path();
  if (prefix == "/usr" || prefix == "/usr/local") return {};
  return fmt::format(" -DCMAKE_PREFIX_PATH={}", prefix.string());
}

void print_next(const fs::path& folder, const std::string& kind,
                const std::map<std::string, std::string>& files) {
  std::cout << fmt::format("wrote {} files to {}\n", files.size(), folder.string());
  for (const auto& [path, text] : files) std::cout << fmt::format("  {}\n", path);
  const std::string prefix = prefix_option();
  std::cout << fmt::format(
      "\nnext:\n"
      "  cd {}\n"
      "  cmake --preset release{}\n"
      "  cmake --build --preset release\n"
      "  ctest --preset release\n"
      "  TENON_PLUGIN_PATH=$PWD/build/release tenon {} run.toml\n",
      folder.string(), prefix, kind == "simulator" ? "simulate" : "train");
  if (prefix.ends_with("=PREFIX"))
    std::cout << "PREFIX is where Tenon is installed: cmake --install BUILD --prefix PREFIX\n";
}

void declare_new_plugin(po::options_description& options) {
  const auto text = [&](const char* name, const char* help) {
    options.add_options()(name, po::value<std::string>(), help);
  };
  text("kind",
       "KIND  layer, model, precision, optimizer, schedule, sync, recovery, device, transport, dataset, "
       "simulator or observer");
  text("name", "NAME  the component's `type` in TOML: lower case, digits, '_'");
  text("vendor", "WORD  of the plugin's id, WORD.NAME; default: example");
  text("out", "DIR  folder of the project, new or empty; default: NAME");
}

int run_new_plugin(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kNewPlugin, {}, arguments);
  if (parsed.helped) return 0;
  const fs::path templates = template_folder();
  ProjectNames names{given(parsed, "kind"), given(parsed, "name"), "example"};
  check_kind(names.kind, template_kinds(templates));
  check_name(names.name);
  if (parsed.values.count("vendor") > 0) names.vendor = given(parsed, "vendor");
  check_word("--vendor", names.vendor);
  check_is_new(names.kind, names.name);
  const fs::path folder = parsed.values.count("out") > 0 ? given(parsed, "out") : names.name;
  if (folder.empty()) fail_config("tenon new-plugin: --out is empty; name a folder, new or empty");
  const auto files = project_files(templates, names);
  write_project(folder, files);
  print_next(folder, names.kind, files);
  return 0;
}

}  // namespace

const Command kNewPlugin{"new-plugin", "--kind KIND --name NAME [options]",
                         "Start a plugin of your own: a project that builds, passes its tests and trains.",
                         run_new_plugin, declare_new_plugin};

}  // namespace tenon::cli
