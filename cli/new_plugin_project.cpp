// Templates are real files with the suffix .in and a few words in @...@; scripts become executable.
#include "new_plugin_project.hpp"

#include "config/data_path.hpp"
#include "record/build_info.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>

#include <fmt/format.h>
#include <unistd.h>

#include <system_error>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kLargestTemplate = std::int64_t{1} << 20;
constexpr std::string_view kSuffix = ".in";
constexpr std::string_view kCommon = "common";

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// The first remaining @WORD@ in capitals, "" if there is none.
std::string placeholder_in(const std::string& text) {
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at + 1)) {
    const std::size_t end = text.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_", at + 1);
    if (end != std::string::npos && end > at + 1 && text[end] == '@') return text.substr(at, end - at + 1);
  }
  return {};
}

std::map<std::string, std::string> values_of(const ProjectNames& names) {
  const std::string version = build_info().version;
  return {{"@NAME@", names.name},
          {"@CLASS@", class_name(names.name)},
          {"@VENDOR@", names.vendor},
          {"@KIND@", names.kind},
          {"@TENON_VERSION@", version.substr(0, version.rfind('.'))}};
}

/// Absolute, with links resolved as far as the path exists.
fs::path resolved(const fs::path& folder) {
  std::error_code failure;
  fs::path path = fs::weakly_canonical(fs::absolute(folder), failure);
  if (failure) path = fs::absolute(folder).lexically_normal();
  return path.has_filename() ? path : path.parent_path();  // without a slash at the end
}

/// The outermost folder of `path` that does not exist yet, which is removed on failure.
fs::path first_missing(const fs::path& path) {
  fs::path missing = path;
  std::error_code failure;
  while (missing.has_parent_path() && missing != missing.parent_path() &&
         !fs::exists(missing.parent_path(), failure) && !failure)
    missing = missing.parent_path();
  return missing;
}

[[noreturn]] void fail_to_write(const fs::path& folder, const std::string& reason) {
  fail_config(fmt::format("tenon new-plugin: cannot write the project to '{}': {}", folder.string(), reason));
}

void check_target(const fs::path& folder) {
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(folder, failure);
  if (status.type() == fs::file_type::not_found) return;
  if (!fs::is_directory(status)) {
    fail_to_write(folder, failure ? failure.message() : "it exists and is no folder; choose another --out");
  }
  if (!fs::is_empty(folder, failure)) {
    fail_to_write(folder,
                  failure ? failure.message() : "the folder is not empty; choose another --out, or empty it");
  }
}

}  // namespace

fs::path template_folder() {
  const config::ShippedFolder shipped = config::shipped_folder();
  fs::path folder = shipped.path / (shipped.is_source_tree ? "sdk/templates" : "templates");
  std::error_code failure;
  if (!fs::is_directory(folder / kCommon, failure)) {
    fail_run(fmt::format("tenon new-plugin: there are no templates in '{}'; install Tenon again",
                         folder.string()));
  }
  return folder;
}

std::vector<std::string> template_kinds(const fs::path& templates) {
  std::vector<std::string> kinds;
  for (const DirectoryEntry& entry : make_posix_files()->list(templates.string())) {
    if (entry.is_directory && entry.name != kCommon) kinds.push_back(entry.name);
  }
  return kinds;
}

std::string class_name(const std::string& name) {
  std::string result;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') result += begins && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins = c == '_';
  }
  return result;
}

std::map<std::string, std::string> project_files(const fs::path& templates, const ProjectNames& names) {
  const auto files = make_posix_files();
  const auto values = values_of(names);
  std::map<std::string, std::string> project;
  for (const fs::path& folder : {templates / kCommon, templates / names.kind}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
      std::string path = entry.path().lexically_relative(folder).string();
      if (!entry.is_regular_file() || !path.ends_with(kSuffix)) continue;
      path = replaced(path.substr(0, path.size() - kSuffix.size()), "component.", names.name + ".");
      std::string text = read_text(*files, entry.path().string(), kLargestTemplate);
      for (const auto& [placeholder, value] : values) text = replaced(std::move(text), placeholder, value);
      if (const std::string left = placeholder_in(text); !left.empty()) {
        fail_run(fmt::format("tenon new-plugin: template '{}': there is no placeholder {}",
                             entry.path().string(), left));
      }
      project[path] = std::move(text);
    }
  }
  return project;
}

void write_project(const fs::path& folder, const std::map<std::string, std::string>& project) {
  const fs::path target = resolved(folder);
  check_target(target);
  const auto files = make_posix_files();
  const fs::path draft = target.parent_path() / fmt::format(".{}.{}", target.filename().string(), ::getpid());
  const fs::path made = first_missing(draft);
  try {
    for (const auto& [path, text] : project) {
      const fs::path file = draft / path;
      files->make_directories(file.parent_path().string());
      const auto out = files->create(file.string());
      out->append(std::as_bytes(std::span(text)));
      out->close();
      if (path.ends_with(".sh")) {
        fs::permissions(file, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                        fs::perm_options::add);
      }
    }
    files->rename(draft.string(), target.string());
  } catch (const std::exception& error) {
    try {
      remove_tree(*files, made.string());
    } catch (const Error&) {
      // The first failure is the one to report.
    }
    fail_to_write(target, error.what());
  }
}

}  // namespace tenon::cli
