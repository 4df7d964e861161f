// Search for what a path names, in one order for every path: beside the file that says it, in the working
// directory, in the installed or the source tree.
#include "config/data_path.hpp"

#include <tenon/config.hpp>

#include "config/words.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <system_error>

TENON_ABI_BEGIN
namespace {

namespace fs = std::filesystem;

// Folder of the shared object (or program) that holds this function.
fs::path library_folder() {
  Dl_info info{};
  if (::dladdr(reinterpret_cast<const void*>(&data_directories), &info) == 0 || info.dli_fname == nullptr)
    return {};
  std::error_code error;
  const fs::path file = fs::weakly_canonical(info.dli_fname, error);
  return error ? fs::path() : file.parent_path();
}

}  // namespace

namespace config {

ShippedFolder shipped_folder() {
  const fs::path here = library_folder();
  if (here.empty()) return {};
  // Only a build tree has this file, so a library that was installed, even into a folder of the build tree,
  // knows nothing of the sources.
  std::string sources;
  if (std::getline(std::ifstream(here / "tenon" / "source_folder") >> std::ws, sources) && !sources.empty())
    return {sources, true};
  return {(here / TENON_DATA_FROM_LIBRARY).lexically_normal(), false};
}

}  // namespace config

std::vector<std::string> data_directories() {
  std::vector<std::string> folders;
  if (const char* folder = std::getenv("TENON_DATA_DIR"); folder != nullptr && *folder != '\0')
    folders.emplace_back(folder);
  const fs::path shipped = config::shipped_folder().path;
  if (!shipped.empty()) folders.push_back(shipped.string());
  return folders;
}

namespace config {

std::vector<fs::path> places_of(const std::string& text, const Origin& written) {
  const fs::path path(text);
  if (path.is_absolute()) return {path};
  std::vector<fs::path> places;
  // Only a value of a file has a line; one of the command line is written in the working directory.
  if (written.line > 0) places.push_back((fs::path(written.file).parent_path() / path).lexically_normal());
  places.push_back(path.lexically_normal());
  for (const std::string& folder : data_directories())
    places.push_back((fs::path(folder) / path).lexically_normal());
  const auto twice = [&](auto place) { return std::find(places.begin(), place, *place) != place; };
  for (auto place = places.begin(); place != places.end();)
    place = twice(place) ? places.erase(place) : place + 1;
  return places;
}

std::string resolve_entry(const std::string& text, const Origin& written, std::uint32_t flags) {
  if (text.empty()) return text;
  if ((flags & TENON_OPTION_LATER) != 0) {
    std::error_code error;
    const std::vector<fs::path> places = places_of(text, written);
    const bool there =
        std::any_of(places.begin(), places.end(), [&](const fs::path& p) { return fs::exists(p, error); });
    if (!there) return fs::absolute(text, error).lexically_normal().string();
  }
  if ((flags & TENON_OPTION_NAMED) == 0) return resolve_path(text, written);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) return text;
  const std::size_t colon = std::min(text.rfind(":/"), text.size());
  const std::size_t end = colon > equals ? colon : text.size();
  return text.substr(0, equals + 1) + resolve_path(text.substr(equals + 1, end - equals - 1), written) +
         text.substr(end);
}

std::string suggest_shipped(const std::string& text) {
  std::vector<std::string> names, paths;
  for (const std::string& folder : data_directories()) {
    std::error_code error;
    for (fs::recursive_directory_iterator entry(fs::path(folder) / "configs", error), end;
         !error && entry != end; entry.increment(error)) {
      if (entry->path().extension() != ".toml") continue;
      names.push_back(entry->path().filename().string());
      paths.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  const std::string near = nearest(fs::path(text).replace_extension(".toml").filename().string(), names);
  const auto found = std::find(names.begin(), names.end(), near);
  if (near.empty() || found == names.end()) return "";
  return fmt::format("; did you mean '{}'?", paths[found - names.begin()]);
}

}  // namespace config

std::string resolve_path(const std::string& text, const Origin& written) {
  std::string tried;
  for (const fs::path& place : config::places_of(text, written)) {
    std::error_code error;
    std::string path = fs::absolute(place, error).lexically_normal().string();
    if (!text.empty() && fs::exists(path, error)) return path;
    const std::string line = "\n  " + config::printable(path);
    if (tried.find(line + "\n") == std::string::npos && !tried.ends_with(line)) tried += line;
  }
  fail_config(fmt::format("cannot find '{}'; tried{}", config::printable(text), tried));
}

TENON_ABI_END
