// tenon inspect: shows what plugins offer. Without an argument only tags are read; an ID loads its plugin;
// for a FILE the tag is read, then it is loaded in a child process, which isolates crashes. With --tables: a
// run's use of its tables. First the tables of components and options, of which the plugin reference in docs/
// is the Markdown form; then the examination of a FILE; then the command.
#include "command_line.hpp"
#include "config_schema.hpp"
#include "offline_host.hpp"

#include "config/words.hpp"
#include "identities/stated.hpp"
#include "plugin/abi_tag.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/probe.hpp"
#include "record/run_folder.hpp"
#include "tables/table_record.hpp"

#include <tenon/error.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tenon::cli {
namespace {

enum class Format { kText, kMarkdown, kJson };

using Json = nlohmann::ordered_json;

constexpr const char* kTypeNames[] = {"true or false", "whole number",  "number",          "text",
                                      "path",          "whole numbers", "list of numbers", "list of texts",
                                      "component",     "tables",        "paths",           "list of tables"};

std::string join(const std::vector<std::string>& words, const char* between) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : between) + word;
  return out;
}

std::string range_of(const plugin::OptionDescription& option) {
  if (!option.choices.empty()) return join(option.choices, " | ");
  const bool low = !std::isnan(option.min), high = !std::isnan(option.max);
  std::string range;
  if (low && high)
    range = fmt::format("{} to {}", option.min, option.max);
  else if (low)
    range = fmt::format(">= {}", option.min);
  else if (high)
    range = fmt::format("<= {}", option.max);
  if (!option.unit.empty()) range += (range.empty() ? "" : " ") + option.unit;
  return range;
}

std::string default_of(const plugin::OptionDescription& option) {
  if (option.default_toml) return *option.default_toml;
  return (option.flags & TENON_OPTION_REQUIRED) != 0 ? "required" : "none";
}

std::string type_of(const plugin::OptionDescription& option) {
  if (option.type == TENON_OPTION_COMPONENT)
    return fmt::format("{}({})", (option.flags & TENON_OPTION_LIST) != 0 ? "components" : "component",
                       config::kind_name(option.component_kind));
  const std::string type = option.type < std::size(kTypeNames) ? kTypeNames[option.type] : "?";
  return option.length == 0 ? type : fmt::format("{} ({})", type, option.length);
}

bool is_output(const plugin::PortDescription& port) {
  return (port.flags & TENON_PORT_OUTPUT) != 0;
}

/// "x, optional": f32 f64 [..., width].
std::string port_name(const plugin::PortDescription& port) {
  return port.name + ((port.flags & TENON_PORT_OPTIONAL) != 0 ? ", optional" : "") +
         ((port.flags & TENON_PORT_REPEATED) != 0 ? ", repeated" : "");
}

std::string capabilities_of(std::uint64_t bits) {
  constexpr std::pair<std::uint64_t, const char*> kNames[] = {
      {TENON_CAP_HOST, "host memory only"},
      {TENON_CAP_NONDETERMINISTIC, "nondeterministic under a wall clock"},
      {TENON_CAP_HOGWILD, "hogwild"},
      {TENON_CAP_SURVIVES_DEATH, "survives a death"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((bits & bit) != 0) names.emplace_back(name);
  }
  return join(names, ", ");
}

std::string snippet_of(const plugin::ComponentDescription& component) {
  static const std::map<std::string, std::string> kTables = {
      {"dataset", "[data]"},
      {"observer", "[[observe]]"},
      {"layer", "[[model.layer]]"},
      {"reward", "[data.reward]"},
      {"tokenizer", "[data.tokenizer]"},
      {"tier", "[[tables.place]]\nmatch = \"*\"\n[tables.place.tier]"},
      {"power", "[[power.policy]]\nat = \"site\""}};
  const std::string kind(config::kind_name(component.kind));
  const auto table = kTables.find(kind);
  std::string out =
      (table != kTables.end() ? table->second : "[" + kind + "]") + "\ntype = \"" + component.id + "\"\n";
  for (const plugin::OptionDescription& option : component.options) {
    if (option.default_toml) out += option.name + " = " + *option.default_toml + "\n";
  }
  return out;
}

Json to_json(const std::vector<plugin::OptionDescription>& described) {
  Json options = Json::array();
  for (const plugin::OptionDescription& option : described) {
    Json entry = {
        {"name", option.name}, {"type", type_of(option)}, {"doc", option.doc}, {"since", option.since}};
    entry["default"] = option.default_toml ? Json(*option.default_toml) : Json();
    entry["required"] = (option.flags & TENON_OPTION_REQUIRED) != 0;
    entry["min"] = std::isnan(option.min) ? Json() : Json(option.min);
    entry["max"] = std::isnan(option.max) ? Json() : Json(option.max);
    if (!option.choices.empty()) entry["choices"] = option.choices;
    if (!option.unit.empty()) entry["unit"] = option.unit;
    if (!option.section.empty()) entry["section"] = to_json(option.section);
    if (option.length != 0) entry["length"] = option.length;
    options.push_back(std::move(entry));
  }
  return options;
}

Json to_json(const plugin::ComponentDescription& component) {
  Json json = {{"kind", component.kind},
               {"id", component.id},
               {"summary", component.summary},
               {"capabilities", capabilities_of(component.capabilities)},
               {"aliases", component.aliases},
               {"requirements", component.requirements},
               {"options", to_json(component.options)}};
  for (const plugin::PortDescription& port : component.ports) {
    json[is_output(port) ? "outputs" : "inputs"].push_back(
        {{"name", port.name},
         {"dtypes", port.dtypes},
         {"shape", port.shape},
         {"doc", port.doc},
         {"optional", (port.flags & TENON_PORT_OPTIONAL) != 0},
         {"repeated", (port.flags & TENON_PORT_REPEATED) != 0}});
  }
  return json;
}

/// An option under the name that a table shows: what sections hold follows as `site."NAME".option`.
using NamedOption = std::pair<std::string, const plugin::OptionDescription*>;

std::vector<NamedOption> named_options(const plugin::ComponentDescription& component) {
  std::vector<NamedOption> rows;
  for (const plugin::OptionDescription& option : component.options) {
    rows.emplace_back(option.name, &option);
    for (const plugin::OptionDescription& inner : option.section)
      rows.emplace_back(
          option.name + (option.type == TENON_OPTION_TABLES ? "[]." : ".\"NAME\".") + inner.name, &inner);
  }
  return rows;
}

std::string option_table(const plugin::ComponentDescription& component, bool markdown) {
  std::string out;
  if (markdown) out += "| option | type | default | range | meaning |\n|---|---|---|---|---|\n";
  std::size_t width = 0;
  const std::vector<NamedOption> rows = named_options(component);
  for (const auto& [name, option] : rows) width = std::max(width, name.size());
  for (const auto& [name, described] : rows) {
    const plugin::OptionDescription& option = *described;
    const std::string range = range_of(option);
    if (markdown) {
      std::string cell = range;
      for (std::size_t at = 0; (at = cell.find('|', at)) != std::string::npos; at += 2)
        cell.replace(at, 1, "\\|");
      out += fmt::format("| `{}` | {} | `{}` | {} | {} |\n", name, type_of(option), default_of(option), cell,
                         option.doc);
    } else {
      out += fmt::format("  {:<{}}  {}, default {}{}\n  {:<{}}  {}\n", name, width, type_of(option),
                         default_of(option), range.empty() ? "" : ", " + range, "", width, option.doc);
    }
  }
  return out;
}

/// What a layer takes and makes.
std::string port_table(const plugin::ComponentDescription& component, bool markdown) {
  std::string out;
  if (markdown) {
    out += "| | | dtype | shape | meaning |\n|---|---|---|---|---|\n";
    for (const plugin::PortDescription& port : component.ports) {
      out += fmt::format("| {} | `{}` | {} | `{}` | {} |\n", is_output(port) ? "output" : "input",
                         port_name(port), port.dtypes.empty() ? "any" : port.dtypes,
                         port.shape.empty() ? "any" : port.shape, port.doc);
    }
    return out;
  }
  std::size_t width = 0;
  for (const plugin::PortDescription& port : component.ports) width = std::max(width, port_name(port).size());
  const plugin::PortDescription* before = nullptr;
  for (const plugin::PortDescription& port : component.ports) {
    if (before == nullptr || is_output(*before) != is_output(port))
      out += is_output(port) ? "outputs:\n" : "inputs:\n";
    out += fmt::format("  {:<{}}  {} {}{}{}\n", port_name(port), width,
                       port.dtypes.empty() ? "any dtype," : port.dtypes,
                       port.shape.empty() ? "any shape" : port.shape, port.doc.empty() ? "" : ": ", port.doc);
    before = &port;
  }
  return out;
}

/// What an object of a component states of its runs; `reason` says why none could be asked.
struct StatedIdentities {
  std::vector<identities::Stated> all;
  std::string reason;
};

/// Asks only kinds whose objects may be made without a run.
std::optional<StatedIdentities> identities_of(Registry& registry, const std::string& kind,
                                              const std::string& type) {
  if (kind != "optimizer/1" && kind != "precision/1" && kind != "sync/1" && kind != "recovery/1") return {};
  StatedIdentities stated;
  OfflineHost host;
  try {
    stated.all =
        identities::stated_by(registry, host, kind, identities::needed_options(registry, kind, type));
  } catch (const Error& error) {
    stated.reason = error.what();
  }
  return stated;
}

std::string identity_lines(const StatedIdentities& stated) {
  if (!stated.reason.empty()) return "identities: none could be read: " + stated.reason + "\n";
  if (stated.all.empty()) return "states no identities\n";
  std::string out = "identities, which tenon fuzz trains both ways:\n";
  for (const identities::Stated& identity : stated.all) {
    out += fmt::format("  {}\n    {} is {}{}\n", identity.why, identity.own.inline_toml(),
                       identity.other.inline_toml(),
                       identity.within > 0 ? fmt::format(" within {:g}", identity.within) : ", to the bit");
    if (!identity.given.table().empty()) out += fmt::format("    with {}\n", identity.given.inline_toml());
  }
  return out;
}

Json to_json(const StatedIdentities& stated) {
  Json list = Json::array();
  for (const identities::Stated& identity : stated.all) {
    list.push_back({{"why", identity.why},
                    {"options", identity.own.inline_toml()},
                    {"other", identity.other.inline_toml()},
                    {"given", identity.given.inline_toml()},
                    {"within", identity.within}});
  }
  return list;
}

std::string print_component(const plugin::ComponentDescription& component,
                            const plugin::PluginDescription& plugin, Format format,
                            const std::optional<StatedIdentities>& stated = {}) {
  const std::string name = plugin::component_name(component.kind, component.id);
  if (format == Format::kJson) {
    Json json = to_json(component);
    json["plugin"] = plugin.id;
    json["version"] = plugin.version;
    if (stated) json["identities"] = to_json(*stated);
    return json.dump(2) + "\n";
  }
  if (format == Format::kMarkdown) {
    const std::string able = capabilities_of(component.capabilities);
    std::string out = fmt::format("### {}\n\n{} (plugin `{}` {}{})\n\n", name, component.summary, plugin.id,
                                  plugin.version, able.empty() ? "" : ", " + able);
    if (!component.ports.empty()) out += port_table(component, true) + "\n";
    if (!component.options.empty()) out += option_table(component, true) + "\n";
    return out + "```toml\n" + snippet_of(component) + "```\n\n";
  }
  std::string out = fmt::format("{}: {}\nplugin {} {}, {}\n", name, component.summary, plugin.id,
                                plugin.version, plugin.licence);
  if (component.capabilities != 0) out += "capabilities: " + capabilities_of(component.capabilities) + "\n";
  if (!component.aliases.empty()) out += "also called: " + join(component.aliases, ", ") + "\n";
  if (!component.requirements.empty()) out += "requires: " + join(component.requirements, ", ") + "\n";
  out += port_table(component, false);
  out += component.options.empty() ? "no options\n" : "options:\n" + option_table(component, false);
  if (stated) out += identity_lines(*stated);
  return out + "\n" + snippet_of(component);
}

/// A plugin with all its components.
std::string print_plugin(const plugin::PluginDescription& plugin, Format format) {
  if (format == Format::kJson) {
    Json components = Json::array();
    for (const plugin::ComponentDescription& component : plugin.components)
      components.push_back(to_json(component));
    return Json{{"plugin", plugin.id},     {"version", plugin.version}, {"summary", plugin.summary},
                {"vendor", plugin.vendor}, {"licence", plugin.licence}, {"url", plugin.url},
                {"needs", plugin.needs},   {"components", components}}
               .dump(2) +
           "\n";
  }
  std::string out = fmt::format("{}{} {}: {}\n", format == Format::kMarkdown ? "## " : "", plugin.id,
                                plugin.version, plugin.summary);
  for (const plugin::ComponentDescription& component : plugin.components) {
    out += "\n" + print_component(component, plugin, format);
  }
  return out;
}

/// All known plugins, failed ones with their reason.
std::string print_list(const std::vector<PluginStatus>& plugins, Format format) {
  if (format == Format::kJson) {
    Json list = Json::array();
    for (const PluginStatus& plugin : plugins) {
      Json offers = Json::array();
      for (const auto& offer : plugin.offers)
        offers.push_back({{"kind", offer.kind}, {"id", offer.id}, {"aliases", offer.aliases}});
      list.push_back({{"plugin", plugin.id},
                      {"version", plugin.version},
                      {"file", plugin.file},
                      {"origin", plugin.origin},
                      {"failed", plugin.state == PluginStatus::State::kFailed},
                      {"hidden", plugin.state == PluginStatus::State::kHidden},
                      {"reason", plugin.reason},
                      {"components", offers}});
    }
    return list.dump(2) + "\n";
  }
  std::map<std::string, std::vector<std::pair<std::string, std::string>>> kinds;
  std::string failed;
  for (const PluginStatus& plugin : plugins) {
    if (plugin.state == PluginStatus::State::kFailed)
      failed += fmt::format("\nfailed: {}\n  {}\n", plugin.file, plugin.reason);
    if (plugin.state == PluginStatus::State::kHidden) {
      failed += fmt::format("\nhidden: {}\n  {}\n", plugin.file, plugin.reason);
      continue;
    }
    for (const auto& offer : plugin.offers)
      kinds[std::string(config::kind_name(offer.kind))].emplace_back(offer.id, plugin.id);
  }
  std::string out;
  for (auto& [kind, offers] : kinds) {
    std::sort(offers.begin(), offers.end());
    out += format == Format::kMarkdown ? fmt::format("## {}\n\n", kind) : kind + "\n";
    for (const auto& [id, plugin] : offers) {
      out += format == Format::kMarkdown ? fmt::format("- `{}` (plugin `{}`)\n", id, plugin)
                                         : fmt::format("  {:<24} {}\n", id, plugin);
    }
    if (format == Format::kMarkdown) out += "\n";
  }
  if (format == Format::kText)
    out += "\n`tenon inspect KIND.ID` shows options, e.g. tenon inspect optimizer.adamw\n";
  return out + failed;
}

/// A file, examined: its tag, read without running any of its code, and the description from loading it in a
/// child process.
struct FileFacts {
  std::filesystem::path file;  ///< canonical
  plugin::AbiTag tag;
  std::optional<plugin::PluginDescription> description;  ///< present when it was loaded
  std::string reason;  ///< why this program cannot load it; "" = it can as far as is known
};

using Json = nlohmann::ordered_json;
using plugin::AbiTag;

constexpr std::pair<const char*, std::string AbiTag::*> kAbiFields[] = {
    {"epoch", &AbiTag::epoch},
    {"arch", &AbiTag::arch},
    {"stdlib", &AbiTag::stdlib},
    {"string-abi", &AbiTag::string_abi},
    {"debug-containers", &AbiTag::debug_containers},
    {"rtti", &AbiTag::rtti},
    {"exceptions", &AbiTag::exceptions},
    {"compiler", &AbiTag::compiler},
    {"sdk-version", &AbiTag::sdk_version},
    {"language", &AbiTag::language}};

std::string offers_text(const AbiTag& tag, const char* between) {
  std::vector<std::string> offers;
  for (const plugin::Offer& offer : tag.offers) {
    std::string& text = offers.emplace_back(plugin::component_name(offer.kind, offer.id));
    if (!offer.aliases.empty()) text += fmt::format(" (also called {})", fmt::join(offer.aliases, ", "));
  }
  return fmt::format("{}", fmt::join(offers, between));
}

std::string print_json(const FileFacts& facts) {
  Json json;
  if (facts.description) {
    json = Json::parse(print_plugin(*facts.description, Format::kJson));
  } else {
    json = {{"plugin", facts.tag.plugin_id}, {"version", facts.tag.plugin_version}};
    Json components = Json::array();
    for (const plugin::Offer& offer : facts.tag.offers)
      components.push_back({{"kind", offer.kind}, {"id", offer.id}, {"aliases", offer.aliases}});
    json["components"] = std::move(components);
  }
  json["file"] = facts.file.string();
  Json abi;
  for (const auto& [name, field] : kAbiFields) abi[name] = facts.tag.*field;
  json["abi"] = std::move(abi);
  json["loaded"] = facts.description.has_value();
  json["reason"] = facts.reason;
  return json.dump(2) + "\n";
}

std::string print_markdown(const FileFacts& facts) {
  if (facts.description) return print_plugin(*facts.description, Format::kMarkdown);
  return fmt::format("## {} {}\n\nabi: {}\n\n- {}\n", facts.tag.plugin_id, facts.tag.plugin_version,
                     plugin::abi_summary(facts.tag), offers_text(facts.tag, "\n- "));
}

/// Reads the tag. Throws Error(kPlugin) for a file without one. With `load`, also loads a file that fits this
/// program in a child process.
FileFacts read_file_facts(const std::filesystem::path& file, bool load) {
  std::error_code failure;
  FileFacts facts{std::filesystem::canonical(file, failure), {}, std::nullopt, ""};
  if (failure) throw Error(ErrorKind::kPlugin, plugin::cannot_load(file, failure.message() + "."));
  facts.tag = plugin::read_abi_tag(facts.file);
  facts.reason = plugin::abi_problem(facts.tag, plugin::host_abi_tag(), facts.file);
  if (!load || !facts.reason.empty()) return facts;
  plugin::ProbeResult probe = plugin::probe_plugin({.file = facts.file});
  if (probe.ok)
    facts.description = std::move(probe.description);
  else
    facts.reason = std::move(probe.reason);
  return facts;
}

/// Text and Markdown show which facts were read and which come from loading; JSON has "loaded".
std::string print_file(const FileFacts& facts, Format format) {
  if (format == Format::kJson) return print_json(facts);
  if (format == Format::kMarkdown) return print_markdown(facts);
  std::string out = fmt::format(
      "{} {}\nfile        {}\nabi         {}\ncomponents  {}\nThis much is read from the file; no code of it "
      "ran.\n",
      facts.tag.plugin_id, facts.tag.plugin_version, facts.file.string(), plugin::abi_summary(facts.tag),
      offers_text(facts.tag, ", "));
  if (!facts.description) return out;
  return out + "\nThe rest it said of itself, loaded and initialised in a child process.\n\n" +
         print_plugin(*facts.description, format);
}

Format format_of(const Parsed& parsed) {
  if (parsed.values.count("json") > 0) return Format::kJson;
  return parsed.values.count("markdown") > 0 ? Format::kMarkdown : Format::kText;
}

int inspect_file(const std::string& file, bool load, Format format) {
  const FileFacts facts = read_file_facts(file, load);
  std::cout << print_file(facts, format) << std::flush;
  if (!facts.reason.empty()) throw Error(ErrorKind::kPlugin, facts.reason);
  return 0;
}

/// Whether the word is a path, and not the id of a component, which may contain a slash as well.
bool is_file(const std::string& word) {
  std::error_code ignored;
  if (word.ends_with(".so") || word.starts_with("/") || word.starts_with(".")) return true;
  return word.find('/') != std::string::npos ? std::filesystem::exists(word, ignored)
                                             : std::filesystem::is_regular_file(word, ignored);
}

/// "optimizer.adamw", "adamw" or "vendor/adamw" -> descriptions; all kinds that have this id.
int inspect_component(Registry& registry, const std::string& word, Format format) {
  const auto dot = word.find('.');
  const std::string kind_word = dot == std::string::npos ? "" : word.substr(0, dot);
  const std::string type = dot == std::string::npos ? word : word.substr(dot + 1);
  const std::string plain = type.substr(type.rfind('/') == std::string::npos ? 0 : type.rfind('/') + 1);
  std::vector<std::string> known;
  std::string out;
  for (const PluginStatus& status : registry.plugins()) {
    if (status.state == PluginStatus::State::kHidden) continue;
    for (const PluginStatus::Offer& offer : status.offers) {
      const std::string kind(config::kind_name(offer.kind));
      known.push_back(kind + "." + offer.id);
      const bool alias = std::find(offer.aliases.begin(), offer.aliases.end(), plain) != offer.aliases.end();
      if ((!kind_word.empty() && kind != kind_word) || (offer.id != plain && !alias)) continue;
      const ComponentRef ref = registry.find(offer.kind, type);
      if (ref.plugin != status.id) continue;
      const plugin::PluginDescription whole = plugin::describe(*registry.descriptor(status.id));
      for (const plugin::ComponentDescription& component : whole.components) {
        if (component.kind != offer.kind || component.id != offer.id) continue;
        out += print_component(
            component, whole, format,
            format == Format::kMarkdown ? std::nullopt : identities_of(registry, offer.kind, type));
      }
    }
  }
  if (out.empty()) {
    fail_config(fmt::format("no plugin offers '{}'{}\nPlaces searched:\n{}", word,
                            config::suggestion(word, known), registry.places()));
  }
  std::cout << out;
  return 0;
}

int inspect_tables(const std::string& run, Format format) {
  if (format == Format::kMarkdown) fail_config("tenon inspect: --tables prints text or --json, no Markdown");
  const auto files = make_posix_files();
  const std::string attempt = open_newest_attempt(*files, run).path;
  train::RunTables tables;
  try {
    tables = train::read_tables(*files, attempt);
  } catch (const Error& error) {
    throw Error(error.kind(), std::string("tenon inspect: ") + error.what());
  }
  std::cout << (format == Format::kJson ? train::tables_json(tables) : train::tables_text(tables));
  return 0;
}

int print_schema(const std::string& name) {
  Runtime runtime;
  runtime.discover({});
  const ConfigSchema schema = config_schema(name, runtime.registry());
  std::cout << schema.json << std::flush;
  for (const std::string& reason : schema.left_out)
    std::cerr << "tenon inspect: not in the schema: " << reason << "\n";
  return 0;
}

void declare_inspect(po::options_description& options) {
  options.add_options()("json", "facts as JSON");
  options.add_options()("markdown", "reference pages as Markdown");
  options.add_options()("no-load", "of a FILE: only what can be read without running its code");
  options.add_options()("tables", "row tables of a RUN: size, touched share, hottest rows, placement");
  options.add_options()(
      "json-schema", po::value<std::string>(),
      "FILES  JSON schema of such files, for editors: run, experiment, study, simulate, power or transform");
}

int run_inspect(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kInspect, {"what"}, arguments);
  if (parsed.helped) return 0;
  if (parsed.values.count("json-schema") > 0)
    return print_schema(parsed.values["json-schema"].as<std::string>());
  const Format format = format_of(parsed);
  const bool tables = parsed.values.count("tables") > 0;
  if (tables && parsed.values.count("what") == 0)
    fail_config("tenon inspect: which RUN? usage: tenon inspect RUN --tables");
  if (parsed.values.count("what") > 0) {
    const std::string word = parsed.values["what"].as<std::vector<std::string>>()[0];
    if (tables) return inspect_tables(word, format);
    if (is_file(word)) return inspect_file(word, parsed.values.count("no-load") == 0, format);
    Runtime runtime;
    runtime.discover({});
    return inspect_component(runtime.registry(), word, format);
  }
  Runtime runtime;
  runtime.discover({});
  const auto plugins = runtime.registry().plugins();
  std::cout << print_list(plugins, format);
  if (plugins.empty())
    std::cerr << "no plugin found. Places searched:\n" << runtime.registry().places() << "\n";
  return 0;
}

}  // namespace

const Command kInspect{"inspect", "[ID | FILE.so] [options] | RUN --tables | --json-schema FILES",
                       "Show plugins, components and their options, or a run's tables.", run_inspect,
                       declare_inspect};

}  // namespace tenon::cli
