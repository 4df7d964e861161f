#include "inspect_file.hpp"

#include "plugin/descriptor.hpp"
#include "plugin/probe.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <utility>

namespace tenon::cli {
namespace {

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

}  // namespace

FileFacts look_at_file(const std::filesystem::path& file, bool load) {
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

}  // namespace tenon::cli
