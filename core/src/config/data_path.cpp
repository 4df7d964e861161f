// Search for data files: absolute, under the working directory, under the installed or the source tree.
#include "config/data_path.hpp"

#include <tenon/config.hpp>

#include "config/words.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

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
  if (const char* folder = std::getenv("TENON_DATA_DIR"); folder != nullptr && *folder != '\0')
    return {folder};
  const fs::path shipped = config::shipped_folder().path;
  if (shipped.empty()) return {};
  return {shipped.string()};
}

std::string resolve_data_path(const std::string& text) {
  std::vector<fs::path> tried;
  if (fs::path(text).is_absolute()) {
    tried = {text};
  } else {
    std::error_code error;
    tried.push_back(fs::current_path(error) / text);
    for (const std::string& folder : data_directories()) tried.push_back(fs::absolute(folder, error) / text);
  }
  std::string places;
  for (const fs::path& path : tried) {
    std::error_code error;
    if (!text.empty() && fs::exists(path, error)) return path.lexically_normal().string();
    places += "\n  " + config::printable(path.lexically_normal().string());
  }
  fail_config(fmt::format("cannot find '{}'; tried{}", config::printable(text), places));
}

TENON_ABI_END
