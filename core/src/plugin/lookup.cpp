#include "plugin/lookup.hpp"

#include "config/words.hpp"
#include "plugin/descriptor.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace tenon::plugin {
namespace {

using State = PluginStatus::State;

struct Wanted {
  std::string_view kind, owner, id;  // owner "" = any
};

bool is_owned(const PluginStatus& plugin, std::string_view owner) {
  return owner.empty() || plugin.id == owner || vendor_of(plugin.id) == owner;
}

// 2 = by id, 1 = by alias, 0 = not at all.
int match(const PluginStatus::Offer& offer, const Wanted& wanted) {
  if (config::kind_name(offer.kind) != config::kind_name(wanted.kind)) return 0;
  if (offer.id == wanted.id) return 2;
  return std::find(offer.aliases.begin(), offer.aliases.end(), wanted.id) != offer.aliases.end() ? 1 : 0;
}

std::vector<Choice> matches(const std::vector<PluginStatus>& plugins, const Wanted& wanted, int strength) {
  std::vector<Choice> found;
  for (std::size_t p = 0; p < plugins.size(); ++p) {
    if (plugins[p].state == State::kHidden || !is_owned(plugins[p], wanted.owner)) continue;
    for (std::size_t o = 0; o < plugins[p].offers.size(); ++o) {
      if (match(plugins[p].offers[o], wanted) == strength) found.push_back({p, o});
    }
  }
  return found;
}

[[noreturn]] void ambiguous(const std::vector<PluginStatus>& plugins, const std::vector<Choice>& found,
                            const Wanted& wanted) {
  std::vector<std::string> owners, ways;
  bool vendors_differ = true;
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      vendors_differ =
          vendors_differ && vendor_of(plugins[found[i].plugin].id) != vendor_of(plugins[found[k].plugin].id);
    }
  }
  for (const Choice& choice : found) {
    const PluginStatus& plugin = plugins[choice.plugin];
    const std::string_view owner = vendors_differ ? vendor_of(plugin.id) : std::string_view(plugin.id);
    owners.push_back(fmt::format("{} ({})", plugin.id, plugin.file));
    ways.push_back(fmt::format("type = \"{}/{}\"", owner, plugin.offers[choice.offer].id));
  }
  fail_config(fmt::format("{} is offered by {} plugins: {}. Write {}.",
                          component_name(wanted.kind, wanted.id), found.size(), fmt::join(owners, " and "),
                          fmt::join(ways, " or ")));
}

// Under another owner the id may exist; else it suggests the nearest id.
std::string hint(const std::vector<PluginStatus>& plugins, const Wanted& wanted,
                 const std::vector<std::string>& ids) {
  if (!wanted.owner.empty()) {
    for (const Choice& choice : matches(plugins, {wanted.kind, "", wanted.id}, 2)) {
      if (plugins[choice.plugin].state != State::kFailed) {
        return fmt::format("; did you mean '{}/{}'?", plugins[choice.plugin].id, wanted.id);
      }
    }
  }
  return config::suggestion(wanted.id, ids);
}

// "" unless the build left out the plugin that offers it.
std::string left_out_text(const Wanted& wanted, const std::vector<SearchPlace>& places) {
  const std::string component = component_name(wanted.kind, wanted.id);
  for (const SearchPlace& place : places) {
    for (const LeftOut& left : place.left_out) {
      if (left.component != component) continue;
      return fmt::format(
          "there is no {} here: this build leaves out its plugin {}. Add it with `cmake --build BUILD "
          "--target {}` "
          "(BUILD: the folder of this build), or build with the preset `package`.",
          component, left.plugin, left.plugin);
    }
  }
  return "";
}

[[noreturn]] void missing(const std::vector<PluginStatus>& plugins, const Wanted& wanted,
                          const std::vector<SearchPlace>& places) {
  if (const std::string text = left_out_text(wanted, places); !text.empty()) fail_config(text);
  const std::vector<std::string> ids = offered_ids(plugins, wanted.kind);
  std::string text = fmt::format("there is no {}{}{}", component_name(wanted.kind, wanted.id),
                                 wanted.owner.empty() ? "" : fmt::format(" of '{}'", wanted.owner),
                                 hint(plugins, wanted, ids));
  if (text.back() != '?') text += '.';
  text += ids.empty() ? fmt::format(" No plugin offers a {}.", config::kind_name(wanted.kind))
                      : fmt::format(" Offered: {}.", fmt::join(ids, ", "));
  text += " Places searched:" + places_text(places);
  for (const PluginStatus& plugin : plugins) {
    if (plugin.state == State::kFailed) text += "\n  failed: " + plugin.reason;
  }
  fail_config(text);
}

}  // namespace

std::vector<std::string> offered_ids(const std::vector<PluginStatus>& plugins, std::string_view kind) {
  std::vector<std::string> ids;
  for (const PluginStatus& plugin : plugins) {
    if (plugin.state == State::kFailed || plugin.state == State::kHidden) continue;
    for (const PluginStatus::Offer& offer : plugin.offers) {
      if (offer.kind == kind) ids.push_back(offer.id);
    }
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Choice choose(const std::vector<PluginStatus>& plugins, std::string_view kind, std::string_view type,
              const std::vector<SearchPlace>& places) {
  const std::size_t slash = type.find('/');
  const bool owned = slash != std::string_view::npos;
  const Wanted wanted{kind, owned ? type.substr(0, slash) : "", owned ? type.substr(slash + 1) : type};

  std::vector<Choice> other_version, failed;
  for (const int strength : {2, 1}) {
    std::vector<Choice> working;
    for (const Choice& choice : matches(plugins, wanted, strength)) {
      const PluginStatus& plugin = plugins[choice.plugin];
      const bool usable = plugin.offers[choice.offer].kind == kind;
      (!usable ? other_version : plugin.state == State::kFailed ? failed : working).push_back(choice);
    }
    if (working.size() > 1) ambiguous(plugins, working, wanted);
    if (working.size() == 1) return working[0];
  }
  if (!failed.empty()) {
    std::string text = fmt::format("{} is offered, but its plugin failed: {}",
                                   component_name(kind, wanted.id), plugins[failed[0].plugin].reason);
    for (std::size_t i = 1; i < failed.size(); ++i) text += "\n" + plugins[failed[i].plugin].reason;
    fail_plugin(text);
  }
  if (!other_version.empty()) {
    const PluginStatus& plugin = plugins[other_version[0].plugin];
    fail_config(
        fmt::format("{} of plugin {} ({}) is of kind {}, this program knows {}. Use a version of the plugin "
                    "that offers {}.",
                    component_name(kind, wanted.id), plugin.id, plugin.file,
                    plugin.offers[other_version[0].offer].kind, kind, kind));
  }
  missing(plugins, wanted, places);
}

}  // namespace tenon::plugin
