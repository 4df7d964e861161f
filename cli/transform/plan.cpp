// Keys, types and misspellings go through the core's configuration layer.
#include "transform/plan.hpp"

#include "config/words.hpp"

#include <tenon/error.hpp>
#include <tenon/transform.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace tenon::transform {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTransformTables[] = {"transform", "plugins"};

constexpr OptionSpec kTransformOptions[] = {
    option::paths("from", nullptr)
        .mandatory()
        .made_later()
        .doc_text("models to read, in the order in which the transform takes them: folders of runs, "
                  "attempts, stages or "
                  "models"),
    option::integers("step", "[]")
        .at_least(0)
        .in_unit("slots")
        .doc_text("checkpoints: one for all of `from`, one for each of it, or several of a single folder; "
                  "[]: the newest "
                  "of each"),
    option::text("to", nullptr)
        .doc_text("folder of the result, which must be new; models/ and the file's name unless given"),
};

constexpr OptionSpec kPluginOptions[] = {
    option::paths("paths", "[]").doc_text("files and folders to search for plugins first"),
};

/// Keys of the table that are not the component's.
Value own_keys(const Value& table) {
  Value own;
  own.origin = table.origin;
  for (const Member& member : table.table()) {
    const auto is = [&](const OptionSpec& spec) { return member.key == spec.name; };
    if (std::ranges::any_of(kTransformOptions, is)) own.set(member.key, member.value, member.origin);
  }
  return own;
}

std::vector<Source> sources_of(const Options& options, const Origin& place,
                               std::vector<std::string>& problems) {
  const auto folders = options.texts("from");
  const auto steps = options.integers("step");
  std::vector<Source> sources;
  if (folders.empty())
    problems.push_back(fmt::format("{}: option 'from' of [transform] names no folder", place.text()));
  if (steps.size() > 1 && folders.size() > 1 && steps.size() != folders.size())
    problems.push_back(
        fmt::format("{}: option 'step' of [transform] has {} numbers, and 'from' has {} folders; expected "
                    "one number for all, one for each, or several of one folder",
                    place.text(), steps.size(), folders.size()));
  if (!problems.empty()) return sources;
  const std::size_t count = std::max(folders.size(), steps.size());
  for (std::size_t i = 0; i < count; ++i) {
    Source source{std::string(folders[folders.size() == 1 ? 0 : i]), std::nullopt};
    if (!steps.empty()) source.step = steps[steps.size() == 1 ? 0 : i];
    sources.push_back(std::move(source));
  }
  return sources;
}

void check_tables(const Config& config, std::vector<std::string>& problems) {
  const std::vector<std::string> known(std::begin(kTransformTables), std::end(kTransformTables));
  for (const Member& member : config.root().table()) {
    if (std::ranges::find(known, member.key) != known.end()) continue;
    problems.push_back(fmt::format("{}: a transform has no table '{}'{} (known: {})", member.origin.text(),
                                   member.key, config::suggestion(member.key, known),
                                   fmt::join(known, ", ")));
  }
}

/// A misspelt `type` is a better message than a missing one.
std::string missing_type(const Value& table) {
  for (const Member& member : table.table()) {
    if (config::edit_distance(member.key, "type") == 1)
      return fmt::format("{}: [transform] has no option '{}'; did you mean 'type'?", member.origin.text(),
                         member.key);
  }
  return fmt::format("{}: [transform] has no type; name a component of kind transform (see: tenon inspect)",
                     table.origin.text());
}

/// Absolute, with links resolved as far as the path exists.
fs::path resolved(const std::string& folder) {
  std::error_code failure;
  const fs::path path = fs::weakly_canonical(fs::absolute(folder), failure);
  return failure ? fs::absolute(folder).lexically_normal() : path;
}

bool is_inside(const fs::path& path, const fs::path& folder) {
  const auto [end, other] = std::mismatch(folder.begin(), folder.end(), path.begin(), path.end());
  return end == folder.end();
}

}  // namespace

bool is_transform(const Config& config) {
  return config.find("transform") != nullptr && config.find("stage") == nullptr;
}

std::vector<config::TableSpecs> transform_tables() {
  return {{"transform", kTransformOptions, false, Transform::kKind}, {"plugins", kPluginOptions}};
}

Plan read_plan(const Config& config, const ComponentCatalog& catalog, const std::string& path,
               const std::string& to) {
  Plan plan;
  std::vector<std::string> problems;
  check_tables(config, problems);
  const Value* table = config.find("transform");
  if (table == nullptr || !table->is_table()) {
    problems.push_back(
        fmt::format("{}: there is no table [transform]; write one with `type = ...` and `from = [...]`",
                    table == nullptr ? path : table->origin.text()));
    throw_problems(problems);
  }
  if (const Value* plugins = config.find("plugins")) {
    resolve_options({.table = *plugins, .owner = "[plugins]", .specs = option_list(kPluginOptions)},
                    problems);
    if (problems.empty()) plan.plugin_paths = config::plugin_paths(config);
  }
  const Value own = own_keys(*table);
  const Resolution core = resolve_options({.table = own,
                                           .owner = "[transform]",
                                           .specs = option_list(kTransformOptions),
                                           .hint = "see docs/transforms.md"},
                                          problems);
  if (problems.empty()) plan.sources = sources_of(*core.options, table->origin, problems);
  const Value* type = table->find("type");
  if (type == nullptr || !type->is_text()) {
    problems.push_back(missing_type(*table));
    throw_problems(problems);
  }
  plan.type = type->text();
  OptionRequest request = component_request(*table, catalog.describe(Transform::kKind, plan.type), &catalog);
  for (const OptionSpec& spec : kTransformOptions) request.other_keys.emplace_back(spec.name);
  Resolution found = resolve_options(request, problems);
  throw_problems(problems);
  plan.options = std::move(found.options);
  plan.warnings = std::move(found.warnings);
  plan.to = !to.empty()               ? to
            : core.options->has("to") ? std::string(core.options->text("to"))
                                      : "models/" + fs::path(path).stem().string();
  while (plan.to.size() > 1 && plan.to.back() == '/') plan.to.pop_back();
  if (plan.to.empty())
    fail_config(
        fmt::format("{}: option 'to' of [transform] is empty; name a new folder", table->origin.text()));
  return plan;
}

void require_new(const Plan& plan) {
  const fs::path target = resolved(plan.to);
  for (const Source& source : plan.sources) {
    const fs::path folder = resolved(source.folder);
    if (target == folder)
      fail_config(fmt::format(
          "transform {}: '{}' is a source and the folder of the result; a transform never writes over "
          "its source, so name another folder",
          plan.type, plan.to));
    if (is_inside(target, folder))
      fail_config(fmt::format(
          "transform {}: the folder of the result, '{}', is inside the source '{}'; name one outside "
          "of it",
          plan.type, plan.to, source.folder));
  }
  std::error_code failure;
  if (fs::symlink_status(target, failure).type() != fs::file_type::not_found)
    fail_config(
        fmt::format("transform {}: '{}' exists; nothing is written over, so name a new folder or remove it",
                    plan.type, plan.to));
}

}  // namespace tenon::transform
