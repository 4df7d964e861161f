#include "plugin/search.hpp"

#include "config/words.hpp"
#include "plugin/descriptor.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

namespace tenon::plugin {
namespace {

namespace fs = std::filesystem;

// Next to the core in an installation and in a build tree; or beside a program that contains the core.
fs::path install_folder() {
  const fs::path here = core_folder();
  fs::path beside = here / "tenon" / "plugins";
  std::error_code ignored;
  if (fs::is_directory(beside, ignored)) return beside;
  fs::path across = (here / ".." / "lib" / "tenon" / "plugins").lexically_normal();
  return fs::is_directory(across, ignored) ? across : beside;
}

// Written by the build (cmake/TenonPlugin.cmake).
std::vector<LeftOut> read_left_out(const fs::path& folder) {
  std::vector<LeftOut> all;
  std::ifstream in(folder / "left_out");
  for (LeftOut line; in >> line.component >> line.plugin;) all.push_back(line);
  return all;
}

}  // namespace

fs::path core_folder() {
  Dl_info info{};
  link_map* object = nullptr;
  if (::dladdr1(reinterpret_cast<void*>(&core_folder), &info, reinterpret_cast<void**>(&object),
                RTLD_DL_LINKMAP) == 0)
    return {};
  // The program itself has no name in the link map, and argv[0] may be relative to anywhere.
  const bool is_program = object == nullptr || object->l_name == nullptr || *object->l_name == '\0';
  std::error_code failure;
  const fs::path file = fs::canonical(is_program ? "/proc/self/exe" : object->l_name, failure);
  return failure ? fs::path() : file.parent_path();
}

std::vector<SearchPlace> search_places(const std::vector<std::string>& configured) {
  std::vector<SearchPlace> places;
  const auto add = [&places](std::string_view origin, const fs::path& path) {
    places.push_back({std::string(origin), path, "", {}});
  };
  for (const std::string& path : configured) add("[plugins] paths", path);
  if (configured.empty()) add("[plugins] paths", {});

  const char* variable = std::getenv("TENON_PLUGIN_PATH");
  std::string_view rest = variable == nullptr ? "" : variable;
  const std::size_t before = places.size();
  while (!rest.empty()) {
    const std::size_t colon = rest.find(':');
    // An empty entry would mean the working directory elsewhere; here it means nothing.
    if (colon != 0) add("TENON_PLUGIN_PATH", rest.substr(0, colon));
    rest.remove_prefix(colon == std::string_view::npos ? rest.size() : colon + 1);
  }
  if (places.size() == before) add("TENON_PLUGIN_PATH", {});
  add("install folder", install_folder());
  return places;
}

void visit(SearchPlace& place) {
  std::error_code failure;
  if (place.path.empty()) {
    place.outcome = "not set";
  } else if (!place.path.is_absolute()) {
    place.outcome = "skipped: write an absolute path";
  } else if (!fs::exists(place.path, failure)) {
    place.outcome = failure ? failure.message() : "does not exist";
  } else if (fs::is_directory(place.path, failure)) {
    std::error_code unresolved;
    fs::path folder = fs::canonical(place.path, unresolved);
    if (unresolved) folder = place.path;
    for (fs::directory_iterator entry(place.path, failure), end; !failure && entry != end;
         entry.increment(failure)) {
      if (entry->path().extension() != ".so") continue;
      std::error_code dangling;
      fs::path file = entry->is_symlink(dangling) ? fs::canonical(entry->path(), dangling)
                                                  : folder / entry->path().filename();
      if (!dangling && fs::is_regular_file(file, dangling)) place.files.push_back(std::move(file));
    }
    std::sort(place.files.begin(), place.files.end());
    place.left_out = read_left_out(place.path);
    place.outcome =
        failure ? failure.message()
                : fmt::format("{} plugin file{}", place.files.size(), place.files.size() == 1 ? "" : "s");
  } else {
    fs::path file = fs::canonical(place.path, failure);
    place.outcome = failure ? failure.message() : "a file";
    if (!failure) place.files.push_back(std::move(file));
  }
}

std::string places_text(const std::vector<SearchPlace>& places) {
  std::string text;
  for (const SearchPlace& place : places) {
    text += place.path.empty()
                ? fmt::format("\n  {}: {}", place.origin, place.outcome)
                : fmt::format("\n  {}: {}: {}", place.origin, place.path.string(), place.outcome);
  }
  return text;
}

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
    if (!is_owned(plugins[p], wanted.owner)) continue;
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
    if (plugin.state == State::kFailed) continue;
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
