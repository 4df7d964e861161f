#include "sample_set.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

namespace tenon::simulated {
namespace {

constexpr std::int64_t kLargest = std::int64_t{1} << 30;

std::string settled_text(const SimulationManifest& manifest) {
  return fmt::format("{} of {} samples are finished, {} failed", manifest.finished.size(), manifest.samples,
                     manifest.failed.size());
}

void check_name(const std::string& set) {
  const bool plain = set.size() <= 64 && set[0] != '.' && std::all_of(set.begin(), set.end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                              c == '_' || c == '-' || c == '.';
                     });
  if (!plain)
    fail_config(fmt::format(
        "data.simulated: set is '{}'; expected letters, digits, '-', '_' and '.', at most 64", set));
}

/// Creates the file complete, and only if it does not exist: a link to a finished file fails when the name
/// exists.
void record(FileSystem& files, const std::string& path, const std::string& text) {
  const std::string own = fmt::format("{}.{}", path, ::gettid());  // ranks may be threads
  files.make_directories(parent_path(path));
  write_text_atomically(files, own, text);
  const int status = ::link(own.c_str(), path.c_str());
  const int code = status == 0 ? 0 : errno;
  files.remove(own);
  if (code != 0 && code != EEXIST)
    throw FileError(code, fmt::format("cannot record the sample set {}: {}", path,
                                      std::generic_category().message(code)));
}

}  // namespace

SimulationManifest sample_set(FileSystem& files, const std::string& folder, const std::string& set) {
  if (!set.empty()) check_name(set);
  const std::string path = simulation_set_path(folder, set);
  if (!set.empty() && files.exists(path))
    return parse_simulation_manifest(read_text(files, path, kLargest), path);
  const SimulationManifest now = read_simulation(files, folder);
  if (set.empty()) {
    if (now.complete()) return now;
    fail_config(fmt::format(
        "data.simulated: the simulation in '{}' is not complete: {}; wait for it, continue it with `tenon "
        "simulate`, or train on what is there now with [data] set = \"NAME\", which records it",
        folder, settled_text(now)));
  }
  if (now.finished.empty()) {
    fail_config(fmt::format("data.simulated: the simulation in '{}' has nothing to train on yet: {}", folder,
                            settled_text(now)));
  }
  record(files, path, simulation_manifest_text(now));
  return parse_simulation_manifest(read_text(files, path, kLargest), path);
}

std::string sample_set_hash(const SimulationManifest& manifest, std::span<const std::int64_t> indices) {
  std::string text = manifest.config_hash() + "\n";
  for (const std::int64_t index : indices) text += fmt::format("{} {}\n", index, manifest.finished.at(index));
  return sha256_of(std::as_bytes(std::span(text)));
}

}  // namespace tenon::simulated
