// Tables of components and options. The plugin reference in docs/ is made from the Markdown form.
#include "inspect_print.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>

namespace tenon::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kTypeNames[] = {"true or false", "whole number",  "number",          "text",
                                      "path",          "whole numbers", "list of numbers", "list of texts",
                                      "component",     "tables"};

std::string short_kind(const std::string& kind) {
  return kind.substr(0, kind.find('/'));
}

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
  if (option.type == TENON_OPTION_COMPONENT) return "component(" + short_kind(option.component_kind) + ")";
  return option.type < std::size(kTypeNames) ? kTypeNames[option.type] : "?";
}

std::string capabilities_of(std::uint64_t bits) {
  constexpr std::pair<std::uint64_t, const char*> kNames[] = {
      {TENON_CAP_HOST, "host memory"},
      {TENON_CAP_CUDA, "CUDA memory"},
      {TENON_CAP_DETERMINISTIC, "deterministic"},
      {TENON_CAP_NONDETERMINISTIC, "nondeterministic under a wall clock"},
      {TENON_CAP_HOGWILD, "hogwild"},
      {TENON_CAP_COLLECTIVE, "collective"},
      {TENON_CAP_STATEFUL, "stateful"},
      {TENON_CAP_SURVIVES_DEATH, "survives a death"}};
  std::vector<std::string> names;
  for (const auto& [bit, name] : kNames) {
    if ((bits & bit) != 0) names.emplace_back(name);
  }
  return join(names, ", ");
}

std::string snippet_of(const plugin::ComponentDescription& component) {
  static const std::map<std::string, std::string> kTables = {
      {"dataset", "[data]"}, {"observer", "[[observe]]"}, {"layer", "[[model.layer]]"}};
  const std::string kind = short_kind(component.kind);
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
    options.push_back(std::move(entry));
  }
  return options;
}

Json to_json(const plugin::ComponentDescription& component) {
  return {{"kind", component.kind},
          {"id", component.id},
          {"summary", component.summary},
          {"capabilities", capabilities_of(component.capabilities)},
          {"aliases", component.aliases},
          {"requirements", component.requirements},
          {"options", to_json(component.options)}};
}

/// An option under the name that a table shows: what sections hold follows as `site."NAME".option`.
using NamedOption = std::pair<std::string, const plugin::OptionDescription*>;

std::vector<NamedOption> named_options(const plugin::ComponentDescription& component) {
  std::vector<NamedOption> rows;
  for (const plugin::OptionDescription& option : component.options) {
    rows.emplace_back(option.name, &option);
    for (const plugin::OptionDescription& inner : option.section)
      rows.emplace_back(fmt::format("{}.\"NAME\".{}", option.name, inner.name), &inner);
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

}  // namespace

std::string print_component(const plugin::ComponentDescription& component,
                            const plugin::PluginDescription& plugin, Format format) {
  const std::string name = short_kind(component.kind) + "." + component.id;
  if (format == Format::kJson) {
    Json json = to_json(component);
    json["plugin"] = plugin.id;
    json["version"] = plugin.version;
    return json.dump(2) + "\n";
  }
  if (format == Format::kMarkdown) {
    std::string out = fmt::format("### {}\n\n{} (plugin `{}` {}, {})\n\n", name, component.summary, plugin.id,
                                  plugin.version, capabilities_of(component.capabilities));
    if (!component.options.empty()) out += option_table(component, true) + "\n";
    return out + "```toml\n" + snippet_of(component) + "```\n\n";
  }
  std::string out = fmt::format("{}: {}\nplugin {} {}, {}\n", name, component.summary, plugin.id,
                                plugin.version, plugin.licence);
  out += "capabilities: " + capabilities_of(component.capabilities) + "\n";
  if (!component.aliases.empty()) out += "also called: " + join(component.aliases, ", ") + "\n";
  if (!component.requirements.empty()) out += "requires: " + join(component.requirements, ", ") + "\n";
  out += component.options.empty() ? "no options\n" : "options:\n" + option_table(component, false);
  return out + "\n" + snippet_of(component);
}

std::string print_plugin(const plugin::PluginDescription& plugin, Format format) {
  if (format == Format::kJson) {
    Json components = Json::array();
    for (const plugin::ComponentDescription& component : plugin.components)
      components.push_back(to_json(component));
    return Json{{"plugin", plugin.id},     {"version", plugin.version}, {"summary", plugin.summary},
                {"vendor", plugin.vendor}, {"licence", plugin.licence}, {"url", plugin.url},
                {"components", components}}
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
    for (const auto& offer : plugin.offers) kinds[short_kind(offer.kind)].emplace_back(offer.id, plugin.id);
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

}  // namespace tenon::cli
