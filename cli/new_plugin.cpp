// tenon new-plugin: a project that builds against the installed package and passes its tests. First the files
// of a project, made from the templates shipped with Tenon: real files with the suffix .in and a few words in
// @...@. That part knows no kind by name, as a kind is a folder of templates; it uses no registry and prints
// nothing. Then the command, which checks names and prints the next commands.
#include "command_line.hpp"

#include "config/data_path.hpp"
#include "config/words.hpp"
#include "record/build_info.hpp"

#include <tenon/error.hpp>
#include <tenon/files.hpp>
#include <tenon/registry.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <iostream>
#include <map>
#include <string>
#include <system_error>
#include <vector>

namespace tenon::cli {
namespace {

namespace fs = std::filesystem;

/// Values of the placeholders in a template.
struct ProjectNames {
  std::string kind;    ///< "optimizer"
  std::string name;    ///< "my_lion": @NAME@, and `component` in names of files
  std::string vendor;  ///< "example": @VENDOR@
};

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

/// "MyLion" of "my_lion".
std::string class_name(const std::string& name) {
  std::string result;
  bool begins = true;
  for (const char c : name) {
    if (c != '_') result += begins && c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    begins = c == '_';
  }
  return result;
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

/// Folder of the templates: share/tenon/templates of the installation, sdk/templates of the sources. Throws
/// Error(kRun) if there are none.
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

/// Kinds that have templates, sorted.
std::vector<std::string> template_kinds(const fs::path& templates) {
  std::vector<std::string> kinds;
  for (const DirectoryEntry& entry : make_posix_files()->list(templates.string())) {
    if (entry.is_directory && entry.name != kCommon) kinds.push_back(entry.name);
  }
  return kinds;
}

/// Relative path -> text of every file of the project: those of common/, then those of the kind. Throws
/// Error(kRun) for a template that holds an unknown placeholder.
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

/// Writes all files or none: they are made in a folder beside `folder`, which then takes its name. `folder`
/// must be absent or an empty folder. Throws Error(kConfig).
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

constexpr std::size_t kLongestName = 30;  // vendor.name fits into a plugin's id

/// CMake reserves the first ones; Tenon's own targets have the last two.
constexpr std::array kTakenTargets{"all",     "clean",   "edit_cache",     "help",
                                   "install", "package", "package_source", "rebuild_cache",
                                   "test",    "tenon",   "tenon_core"};

bool is_word(const std::string& name) {
  const auto allowed = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.size() <= kLongestName && name[0] >= 'a' && name[0] <= 'z' &&
         std::all_of(name.begin(), name.end(), allowed);
}

/// The value of an option that may be given once.
std::string given(const Parsed& parsed, const char* option) {
  return parsed.values.count(option) > 0 ? parsed.values[option].as<std::string>() : "";
}

void check_kind(const std::string& kind, const std::vector<std::string>& kinds) {
  if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
  const std::string list = fmt::format("{}", fmt::join(kinds, ", "));
  if (kind.empty()) fail_config(fmt::format("tenon new-plugin: --kind is missing (known: {})", list));
  fail_config(fmt::format("tenon new-plugin: there is no kind '{}'{} (known: {})", kind,
                          config::suggestion(kind, kinds), list));
}

void check_word(const char* option, const std::string& word) {
  if (is_word(word)) return;
  const std::string rule =
      fmt::format("expected at most {} of lower case, digits and '_', a letter first", kLongestName);
  if (word.empty()) fail_config(fmt::format("tenon new-plugin: {} is missing; {}", option, rule));
  fail_config(fmt::format("tenon new-plugin: {} '{}': {}", option, word, rule));
}

void check_name(const std::string& name) {
  check_word("--name", name);
  if (std::find(kTakenTargets.begin(), kTakenTargets.end(), name) == kTakenTargets.end()) return;
  fail_config(fmt::format(
      "tenon new-plugin: --name '{}': builds have a target of this name already; choose another one", name));
}

/// Two components of one id could be named in TOML only together with their vendor.
void check_is_new(const std::string& kind, const std::string& name) {
  Runtime runtime;
  runtime.discover({});
  for (const PluginStatus& plugin : runtime.registry().plugins()) {
    for (const PluginStatus::Offer& offer : plugin.offers) {
      if (!offer.kind.starts_with(kind + "/")) continue;
      const bool alias = std::find(offer.aliases.begin(), offer.aliases.end(), name) != offer.aliases.end();
      if (offer.id != name && !alias) continue;
      fail_config(fmt::format(
          "tenon new-plugin: --name '{}': {}.{} is offered by {} already ({}); choose another one", name,
          kind, offer.id, plugin.id, plugin.file));
    }
  }
}

/// CMake option that locates this installation; "" if CMake finds it by itself.
std::string prefix_option() {
  const config::ShippedFolder shipped = config::shipped_folder();
  if (shipped.is_source_tree) return " -DCMAKE_PREFIX_PATH=PREFIX";
  const fs::path prefix = shipped.path.parent_path().parent_path();
  if (prefix == "/usr" || prefix == "/usr/local") return {};
  return fmt::format(" -DCMAKE_PREFIX_PATH={}", prefix.string());
}

/// The command that shows the component at work, after the build.
std::string example_of(const std::string& kind) {
  if (kind == "reward") return "build/release/score \"two words\" \"words = 2\"";
  if (kind == "tokenizer")
    return "tenon tokenize compare --tokenizer base.toml --tokenizer run.toml README.md";
  const bool has_own = kind == "power" || kind == "transform";
  return fmt::format("tenon {} run.toml", kind == "simulator" ? "simulate" : has_own ? kind : "train");
}

void print_next(const fs::path& folder, const std::string& kind,
                const std::map<std::string, std::string>& files) {
  std::cout << fmt::format("wrote {} files to {}\n", files.size(), folder.string());
  for (const auto& [path, text] : files) std::cout << fmt::format("  {}\n", path);
  const std::string prefix = prefix_option();
  std::cout << fmt::format(
      "\nnext:\n"
      "  cd {}\n"
      "  cmake --preset release{}\n"
      "  cmake --build --preset release\n"
      "  ctest --preset release\n"
      "{}"
      "  TENON_PLUGIN_PATH=$PWD/build/release {}\n",
      folder.string(), prefix, kind == "transform" ? "  tenon train base.toml\n" : "", example_of(kind));
  if (prefix.ends_with("=PREFIX"))
    std::cout << "PREFIX is where Tenon is installed: cmake --install BUILD --prefix PREFIX\n";
}

void declare_new_plugin(po::options_description& options) {
  const auto text = [&](const char* name, const char* help) {
    options.add_options()(name, po::value<std::string>(), help);
  };
  text("kind",
       "KIND  layer, model, precision, optimizer, schedule, sync, recovery, device, transport, dataset, "
       "simulator, power, transform, tokenizer, reward, tier or observer");
  text("name", "NAME  the component's `type` in TOML: lower case, digits, '_'");
  text("vendor", "WORD  of the plugin's id, WORD.NAME; default: example");
  text("out", "DIR  folder of the project, new or empty; default: NAME");
}

int run_new_plugin(const std::vector<std::string>& arguments) {
  const Parsed parsed = parse(kNewPlugin, {}, arguments);
  if (parsed.helped) return 0;
  const fs::path templates = template_folder();
  ProjectNames names{given(parsed, "kind"), given(parsed, "name"), "example"};
  check_kind(names.kind, template_kinds(templates));
  check_name(names.name);
  if (parsed.values.count("vendor") > 0) names.vendor = given(parsed, "vendor");
  check_word("--vendor", names.vendor);
  check_is_new(names.kind, names.name);
  const fs::path folder = parsed.values.count("out") > 0 ? given(parsed, "out") : names.name;
  if (folder.empty()) fail_config("tenon new-plugin: --out is empty; name a folder, new or empty");
  const auto files = project_files(templates, names);
  write_project(folder, files);
  print_next(folder, names.kind, files);
  return 0;
}

}  // namespace

const Command kNewPlugin{"new-plugin", "--kind KIND --name NAME [options]",
                         "Start a plugin of your own: a project that builds, passes its tests and trains.",
                         run_new_plugin, declare_new_plugin};

}  // namespace tenon::cli
