// Validates a whole run: every table against its owner's options, and the few rules between tables.
#include "config/core_reader.hpp"
#include "config/option_check.hpp"
#include "config/place_check.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN
namespace config {

namespace {

class RunChecker {
 public:
  RunChecker(const Config& config, const ComponentCatalog& catalog, std::span<const std::string> extra_tables)
      : config_(config), catalog_(catalog), extra_(extra_tables) {}

  CheckedRun run() {
    check_top_level();
    keep("run", core_.run(table_or_empty("run")), file_origin());
    if (const Member* member = member_of("init")) keep("init", core_.init(member->value), member->origin);
    keep("parallel", core_.parallel(table_or_empty("parallel")), file_origin());
    for (const ComponentSection& section : component_sections()) check_section(section);
    if (const Member* member = member_of("power")) check_power(*member);
    if (const Member* member = member_of("evaluate")) check_evaluations(*member);
    if (const Member* member = member_of("tables")) check_tables(*member);
    if (const Member* member = member_of("emulate"))
      keep("emulate", core_.emulate(member->value), member->origin);
    if (const Member* member = member_of("fault")) keep("fault", core_.faults(member->value), member->origin);
    if (const Member* member = member_of("plugins")) {
      keep("plugins", core_.plugins(member->value), member->origin);
      if (problems_.empty()) out_.core.plugin_paths = plugin_paths(config_);
    }
    for (const std::string& table : extra_) {
      if (const Member* member = member_of(table)) keep(table, member->value, member->origin);
    }
    check_world();
    return finish();
  }

  CheckedRun model() {
    for (const ComponentSection& section : component_sections())
      if (section.table == "model" || section.table == "precision" || section.table == "device")
        check_section(section);
    return finish();
  }

 private:
  CheckedRun finish() {
    throw_problems(problems_);
    out_.resolved = config_.with_root(std::move(root_));
    return std::move(out_);
  }

  const Member* member_of(std::string_view table) const { return config_.root().find_member(table); }

  void problem(const Origin& origin, const std::string& text) { problems_.push_back(place(origin) + text); }

  void keep(std::string_view table, Value value, const Origin& origin) {
    root_.set(table, std::move(value), origin);
  }

  // Where to point when a whole table is missing.
  Origin file_origin() const { return {config_.files().empty() ? "" : config_.files().back(), 0, 0}; }

  void check_top_level() {
    std::vector<std::string> known = top_level_tables();
    known.insert(known.end(), extra_.begin(), extra_.end());
    for (const Member& member : config_.root().table()) {
      if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
      problem(member.origin, fmt::format("a run has no table '{}'{} (known: {})", printable(member.key),
                                         suggestion(member.key, known), fmt::join(known, ", ")));
    }
  }

  // The table, or an empty one in its place.
  Value table_or_empty(std::string_view name) const {
    if (const Member* member = member_of(name)) return member->value;
    Value empty;
    empty.origin = file_origin();
    return empty;
  }

  // Edits name layers, whose options the graph checks when it is built: only there is the type of an
  // overridden node known. Here: the core's keys, and for layer and insert the layer's own options.
  Value check_model_edits(const Value& value) {
    Value resolved;
    for (const std::string& name : core_keys("model")) {
      const Member* member = value.find_member(name);
      if (member == nullptr) continue;
      const std::string path = "model." + name;
      if (!member->value.is_array()) {
        problem(member->origin, fmt::format("expected [[{}]], a list of tables, found {}", path,
                                            member->value.description()));
        continue;
      }
      for (const Value& edit : member->value.array()) {
        core_.model_edit(edit, path);
        if (edit.is_table() && (name == "layer" || name == "insert"))
          check_component(edit, {path, "layer/1", true, true}, path);
      }
      resolved.set(name, member->value, member->origin);
      out_.model_edits.set(name, member->value, member->origin);
    }
    return resolved;
  }

  // The core's part of a table that a component shares.
  Value check_shared(const Value& table, std::string_view name) {
    if (name == "device") return core_.device(table);
    if (name == "transport") return core_.transport(table);
    if (name == "sync") return core_.sync(table);
    if (name == "recovery") return core_.recovery(table);
    if (name == "model") return check_model_edits(table);
    return Value();
  }

  // Adds the component's own options to `problems_`; empty when its type is missing or unknown.
  std::optional<Resolution> check_component(const Value& table, const ComponentSection& section,
                                            const std::string& core_path) {
    const std::vector<std::string> keys = core_keys(core_path);
    const Value* type = table.find("type");
    const std::string brackets =
        section.is_list ? fmt::format("[[{}]]", section.table) : fmt::format("[{}]", section.table);
    const std::string names = fmt::format("a component of kind {}", kind_name(section.kind));
    if (type == nullptr || !type->is_text()) {
      // A misspelt `type` says more than a missing one.
      const auto close = std::find_if(table.table().begin(), table.table().end(), [&](const Member& item) {
        return std::find(keys.begin(), keys.end(), item.key) == keys.end() &&
               edit_distance(item.key, "type") <= 1;
      });
      if (type == nullptr && close != table.table().end()) {
        problem(close->origin,
                fmt::format("{} has no '{}'; did you mean 'type'? It names {} (see: tenon inspect)", brackets,
                            printable(close->key), names));
      } else {
        problem(type != nullptr ? type->origin : table.origin,
                fmt::format("{} needs 'type', the name of {}{} (see: tenon inspect)", brackets, names,
                            type != nullptr ? ", in quotes" : ""));
      }
      return std::nullopt;
    }
    ComponentSchema schema;
    try {
      schema = catalog_.describe(section.kind, type->text());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      problem(type->origin, error.what());
      return std::nullopt;
    }
    for (const tenon_option_v1* spec : schema.options) {
      if (std::find(keys.begin(), keys.end(), spec->name) != keys.end() ||
          std::string_view(spec->name) == "type") {
        fail_plugin(fmt::format("{} declares option '{}', which belongs to the core in {}", schema.id,
                                spec->name, brackets));
      }
    }
    OptionRequest request = component_request(table, std::move(schema), &catalog_);
    request.other_keys.insert(request.other_keys.end(), keys.begin(), keys.end());
    Resolution resolution = resolve_options(request, problems_);
    out_.warnings.insert(out_.warnings.end(), resolution.warnings.begin(), resolution.warnings.end());
    return resolution;
  }

  void check_section(const ComponentSection& section) {
    const Member* member = member_of(section.table);
    if (member == nullptr) {
      if (section.required) {
        problem(file_origin(),
                fmt::format(
                    "a run needs [{}] with a 'type': the name of a component of kind {} (see: tenon inspect)",
                    section.table, kind_name(section.kind)));
      }
      return;
    }
    if (section.is_list) {
      check_list(section, *member);
      return;
    }
    const Value& table = member->value;
    if (!table.is_table()) {
      problem(table.origin,
              fmt::format("expected the table [{}], found {}", section.table, table.description()));
      return;
    }
    Value resolved = check_shared(table, section.table);
    const std::vector<std::string> keys = core_keys(section.table);
    const bool only_core = std::all_of(table.table().begin(), table.table().end(), [&](const Member& item) {
      return std::find(keys.begin(), keys.end(), item.key) != keys.end();
    });
    if (section.required || !only_core) {
      if (auto component = check_component(table, section, std::string(section.table))) {
        add(section, std::string(section.table), *component, table, resolved);
      }
    }
    keep(section.table, std::move(resolved), member->origin);
  }

  void check_power(const Member& power) {
    const Value& table = power.value;
    if (!table.is_table())
      return problem(table.origin, fmt::format("expected the table [power], found {}", table.description()));
    Value resolved = core_.power(table);
    bool any = false;
    for (const ComponentSection& section : component_sections()) {
      if (!section.table.starts_with("power.")) continue;
      const std::string name(section.table.substr(section.table.find('.') + 1));
      const Member* member = table.find_member(name);
      if (member == nullptr) continue;
      any = true;
      if (!member->value.is_table()) {
        problem(member->origin,
                fmt::format("expected the table [{}], found {}", section.table, member->value.description()));
        continue;
      }
      Value shown;
      if (auto component = check_component(member->value, section, std::string(section.table)))
        add(section, std::string(section.table), *component, member->value, shown);
      resolved.set(name, std::move(shown), member->origin);
    }
    if (!any)
      problem(table.origin,
              "[power] has neither a source nor an actuator; add [power.source] or [power.actuator], each "
              "with a 'type'");
    keep("power", std::move(resolved), power.origin);
  }

  void check_evaluations(const Member& member) {
    keep("evaluate", check_elements(member, "evaluate", [&](const Value& e) { return core_.evaluate(e); }),
         member.origin);
  }

  void check_tables(const Member& member) {
    const Value& table = member.value;
    if (!table.is_table())
      return problem(table.origin, fmt::format("expected the table [tables], found {}", table.description()));
    Value resolved = core_.tables(table);
    if (const Member* list = table.find_member("place")) {
      resolved.set(
          "place",
          check_elements(*list, "tables.place", [&](const Value& e) { return core_.table_place(e); }),
          list->origin);
    }
    if (const Value* places = resolved.find("place")) {
      for (const auto& [origin, text] : contradictions(*places)) problem(origin, text);
    }
    if (const Member* list = table.find_member("budget")) {
      resolved.set(
          "budget",
          check_elements(*list, "tables.budget", [&](const Value& e) { return core_.table_budget(e); }),
          list->origin);
    }
    if (problems_.empty() && out_.core.tables.plan == out_.core.tables.budgets.empty()) {
      problem(table.origin,
              out_.core.tables.plan
                  ? "[tables] plan = 'auto' fills budgets, and there is none; add [[tables.budget]] with "
                    "'bytes' and 'tier', from the fastest tier to the slowest"
                  : "[[tables.budget]] is read with plan = 'auto' alone; set that, or leave the budgets out");
    }
    keep("tables", std::move(resolved), member.origin);
  }

  // A list of tables of the core, each with components within it: [[evaluate]] has [evaluate.data]. The first
  // component of an element must be there, others need not.
  template <typename Read>
  Value check_elements(const Member& member, const std::string& path, Read read) {
    Value list{Value::Array{}};
    list.origin = member.value.origin;
    list.earlier = member.value.earlier;
    if (!member.value.is_array()) {
      problem(member.value.origin,
              fmt::format("expected [[{}]], a list of tables, found {}", path, member.value.description()));
      return list;
    }
    for (const Value& element : member.value.array()) {
      if (!element.is_table()) {
        problem(element.origin,
                fmt::format("expected a table in [[{}]], found {}", path, element.description()));
        continue;
      }
      Value resolved = read(element);
      bool first = true;
      for (const ComponentSection& section : component_sections()) {
        if (section.table.substr(0, section.table.rfind('.')) != path) continue;
        const std::string name(section.table.substr(path.size() + 1));
        const Member* inner = element.find_member(name);
        const bool missing = inner == nullptr || !inner->value.is_table();
        if (missing && (first || inner != nullptr)) {
          problem(inner != nullptr ? inner->origin : element.origin,
                  fmt::format("[[{}]] needs [{}], a table with a 'type': the name of a component of kind {}",
                              path, section.table, kind_name(section.kind)));
        } else if (!missing) {
          Value shown;
          const std::string table = fmt::format("{}[{}].{}", path, list.array().size(), name);
          if (auto component = check_component(inner->value, section, std::string(section.table)))
            add(section, table, *component, inner->value, shown);
          resolved.set(name, std::move(shown), inner->origin);
        }
        first = false;
      }
      resolved.origin = element.origin;
      list.array().push_back(std::move(resolved));
    }
    return list;
  }

  void check_list(const ComponentSection& section, const Member& member) {
    if (!member.value.is_array()) {
      problem(member.value.origin, fmt::format("expected [[{}]], a list of tables, found {}", section.table,
                                               member.value.description()));
      return;
    }
    Value list{Value::Array{}};
    list.origin = member.value.origin;
    list.earlier = member.value.earlier;
    for (const Value& element : member.value.array()) {
      if (!element.is_table()) {
        problem(element.origin,
                fmt::format("expected a table in [[{}]], found {}", section.table, element.description()));
        continue;
      }
      Value resolved;
      if (auto component = check_component(element, section, std::string(section.table))) {
        add(section, fmt::format("{}[{}]", section.table, list.array().size()), *component, element,
            resolved);
      }
      resolved.origin = element.origin;
      list.array().push_back(std::move(resolved));
    }
    keep(section.table, std::move(list), member.origin);
  }

  // `type` first, then the component's options, then the core's keys.
  void add(const ComponentSection& section, std::string table, Resolution& component, const Value& written,
           Value& resolved) {
    Value merged = std::move(component.table);
    for (Member& member : resolved.table()) merged.set(member.key, std::move(member.value), member.origin);
    merged.origin = written.origin;
    resolved = std::move(merged);
    const Value& type = *written.find("type");
    CheckedComponent checked{std::move(table), std::string(section.kind), type.text(), type.origin,
                             std::move(component.options)};
    out_.components.push_back(std::move(checked));
  }

  void check_world() {
    const ParallelSettings& parallel = out_.core.parallel;
    const auto need = [&](std::int64_t count, std::string_view what, std::string_view table) {
      const Value* section = config_.root().find(table);
      if (count > 1 && (section == nullptr || section->find("type") == nullptr)) {
        problem(file_origin(),
                fmt::format("{} {} need [{}] with a 'type' (see: tenon inspect)", count, what, table));
      }
    };
    need(parallel.world(), "ranks", "transport");
    need(parallel.ranks, "replicas", "sync");
    if (parallel.servers > 0) need(parallel.servers + 1, "ranks, servers among them,", "sync");
  }

  const Config& config_;
  const ComponentCatalog& catalog_;
  std::span<const std::string> extra_;
  std::vector<std::string> problems_;
  Value root_;
  CheckedRun out_;
  CoreReader core_{out_.core, problems_, out_.warnings};
};

}  // namespace

CheckedComponent* find_component(std::span<CheckedComponent> components, std::string_view table) {
  for (CheckedComponent& item : components) {
    if (item.table == table) return &item;
  }
  return nullptr;
}

CheckedRun check_run(const Config& config, const ComponentCatalog& catalog,
                     std::span<const std::string> extra_tables) {
  return RunChecker(config, catalog, extra_tables).run();
}

CheckedRun check_model(const Config& config, const ComponentCatalog& catalog) {
  return RunChecker(config, catalog, {}).model();
}

std::vector<std::string> plugin_paths(const Config& config) {
  std::vector<std::string> paths;
  const Value* list = config.find("plugins.paths");
  if (list == nullptr) return paths;
  for (const Value& item : list->array()) {
    try {
      paths.push_back(resolve_path(item.text(), item.origin));
    } catch (const Error& error) {
      fail_config(fmt::format("{}[plugins] paths: {}", place(item.origin), error.what()));
    }
  }
  return paths;
}

}  // namespace config
TENON_ABI_END
