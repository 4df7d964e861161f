#include "case_file.hpp"

#include <tenon/options.hpp>

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

namespace tenon::conformance {
namespace {

constexpr OptionSpec kCase[] = {option::text("component", nullptr).mandatory(), option::text("name", "\"\""),
                                option::texts("set", "[]")};
constexpr OptionSpec kInput[] = {option::integers("shape", nullptr).at_least(1).mandatory(),
                                 option::text("dtype", "\"real\""),
                                 option::integer("below", "2").at_least(1)};
constexpr OptionSpec kSample[] = {option::text("prompt", "\"\""),
                                  option::text("answer", nullptr).mandatory()};
constexpr OptionSpec kSuppress[] = {option::text("check", nullptr).mandatory(),
                                    option::text("component", "\"\""),
                                    option::text("reason", nullptr).mandatory()};
constexpr OptionSpec kConformanceTable[] = {option::texts("plugins", "[]")};
constexpr OptionSpec kNothing[] = {option::boolean("unused", "false")};

/// The tables of a list, e.g. of [[case]].
std::vector<const Value*> tables(const Value& root, const char* key) {
  std::vector<const Value*> found;
  const Value* list = root.find(key);
  if (list == nullptr) return found;
  if (!list->is_array())
    fail_config(fmt::format("{}: write [[{}]], not [{}]", list->origin.text(), key, key));
  for (const Value& entry : list->array()) {
    if (!entry.is_table())
      fail_config(fmt::format("{}: expected a table, found {}", entry.origin.text(), entry.description()));
    found.push_back(&entry);
  }
  return found;
}

Resolution resolve(const Value& table, const char* owner, std::span<const OptionSpec> specs,
                   std::vector<std::string> other_keys) {
  return resolve_options({.table = table,
                          .owner = owner,
                          .specs = option_list(specs),
                          .other_keys = std::move(other_keys),
                          .hint = "see: docs/plugins/testing.md",
                          .catalog = nullptr});
}

Input read_input(const Value& table) {
  const auto resolved = resolve(table, "[[case]] inputs", kInput, {});
  const Options& options = *resolved.options;
  const std::string_view dtype = options.text("dtype");
  if (dtype != "real" && dtype != "i32" && dtype != "loss") {
    fail_config(fmt::format("{}: dtype of an input is \"real\", \"i32\" or \"loss\", found \"{}\"",
                            table.origin.text(), dtype));
  }
  const auto shape = options.integers("shape");
  if (shape.empty())
    fail_config(fmt::format("{}: the shape of an input begins with the batch", table.origin.text()));
  return {{shape.begin(), shape.end()}, dtype != "i32", options.integer("below"), dtype == "loss"};
}

RewardCase read_sample(const Value& table) {
  const auto resolved = resolve(table, "[[case]] samples", kSample, {"sample"});
  RewardCase result{
      std::string(resolved.options->text("prompt")), std::string(resolved.options->text("answer")), {}};
  if (const Value* sample = table.find("sample")) {
    sample->table();  // throws if it is not a table
    result.sample = *sample;
  }
  return result;
}

Case read_case(const Value& table) {
  const auto resolved = resolve(table, "[[case]]", kCase, {"options", "inputs", "samples"});
  Case result;
  result.component = resolved.options->text("component");
  result.name = resolved.options->text("name");
  for (const std::string_view set : resolved.options->texts("set")) result.sets.emplace_back(set);
  if (const Value* options = table.find("options")) {
    options->table();  // throws if it is not a table
    result.options = *options;
  }
  for (const Value* sample : tables(table, "samples")) result.samples.push_back(read_sample(*sample));
  if (table.find("inputs") == nullptr) return result;
  for (const Value* input : tables(table, "inputs")) result.inputs.push_back(read_input(*input));
  for (const Input& input : result.inputs) {
    if (input.shape[0] != result.inputs[0].shape[0]) {
      fail_config(fmt::format("{}: all inputs begin with the same batch, found {} and {}",
                              table.origin.text(), result.inputs[0].shape[0], input.shape[0]));
    }
  }
  return result;
}

std::vector<std::string> read_plugins(const Value& table, const std::string& path) {
  const auto resolved = resolve(table, "[conformance]", kConformanceTable, {});
  std::vector<std::string> plugins;
  for (const std::string_view word : resolved.options->texts("plugins")) {
    const std::filesystem::path file = std::filesystem::absolute(path).parent_path() / word;
    std::error_code failure;
    if (!std::filesystem::exists(file, failure)) {
      fail_config(fmt::format(
          "{}: plugins names '{}', which does not exist; expected a plugin file or a folder of them",
          table.origin.text(), file.lexically_normal().string()));
    }
    plugins.push_back(file.lexically_normal().string());
  }
  return plugins;
}

}  // namespace

CaseFile read_case_file(const std::string& path) {
  CaseFile file;
  if (path.empty()) return file;
  const Config config = Config::load(path, {});
  resolve(config.root(), path.c_str(), std::span(kNothing).first(0), {"conformance", "case", "suppress"});
  if (const Value* table = config.root().find("conformance")) file.plugins = read_plugins(*table, path);
  for (const Value* table : tables(config.root(), "case")) file.cases.push_back(read_case(*table));
  for (const Value* table : tables(config.root(), "suppress")) {
    const auto resolved = resolve(*table, "[[suppress]]", kSuppress, {});
    const Options& options = *resolved.options;
    file.suppressions.push_back({std::string(options.text("check")), std::string(options.text("component")),
                                 std::string(options.text("reason"))});
    if (file.suppressions.back().reason.empty())
      fail_config(fmt::format("{}: a suppression needs a reason", table->origin.text()));
  }
  return file;
}

void put_scratch(Value& options, const std::string& scratch) {
  constexpr std::string_view kPlace = "SCRATCH/";
  if (options.is_text() && options.text().starts_with(kPlace)) {
    options = Value(scratch + "/" + options.text().substr(kPlace.size()));
  } else if (options.is_array()) {
    for (Value& entry : options.array()) put_scratch(entry, scratch);
  } else if (options.is_table()) {
    for (Member& member : options.table()) put_scratch(member.value, scratch);
  }
}

std::vector<Case> cases_of(const CaseFile& file, const std::string& component) {
  std::vector<Case> found;
  for (const Case& entry : file.cases) {
    if (entry.component == component) found.push_back(entry);
  }
  if (found.empty()) found.push_back({component, "", Value(), {}, {}, {}});
  return found;
}

const std::string* suppressed(const CaseFile& file, const std::string& check, const std::string& component) {
  for (const Suppression& entry : file.suppressions) {
    const bool meant = entry.component.empty() || entry.component == component;
    if (meant && matches_pattern(entry.check, check)) return &entry.reason;
  }
  return nullptr;
}

}  // namespace tenon::conformance
