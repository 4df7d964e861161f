#include "plugin/search.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
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

}  // namespace tenon::plugin
