// Walks a configuration beside the specs of its tables, so that a renaming to another legal key is not
// counted.
#include "config/testing/key_mutations.hpp"
#include "config/run_schema.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

TENON_ABI_BEGIN
namespace config {
namespace {

using Keys = std::set<std::string, std::less<>>;

class Mutator {
 public:
  Mutator(const Config& config, const ComponentCatalog& catalog, std::set<std::string>& proven,
          std::size_t every)
      : config_(config), catalog_(catalog), proven_(proven), every_(every), root_(config.root()) {}

  MutationReport run() {
    // Were the configuration refused as it is, every renaming would seem to be refused too.
    if (const std::string answer = check(); !answer.empty()) fail_config(answer);
    const std::vector<std::string> tables = top_level_tables();
    rename_all(root_, "", "run file", Keys(tables.begin(), tables.end()));
    for (const char* table : {"run", "parallel", "plugins", "transport.link", "transport.clock", "emulate"}) {
      if (Value* value = find(table)) rename_all(*value, table, table, core(table));
    }
    for (const ComponentSection& section : component_sections()) {
      visit_list_or_table(std::string(section.table), section.table, section.kind);
    }
    visit_list_or_table("emulate.failure", "emulate.failure", "");
    visit_list_or_table("fault", "fault", "");
    if (Value* value = find("tables")) rename_all(*value, "tables", "tables", core("tables"));
    for (const char* list : {"evaluate", "tables.place", "tables.budget"}) visit_list_with_parts(list);
    visit_list_or_table("model.layer", "model.layer", "layer/1");
    visit_list_or_table("model.insert", "model.insert", "layer/1");
    return std::move(report_);
  }

 private:
  Value* find(std::string_view dotted) {
    Value* value = &root_;
    for (std::size_t start = 0; value != nullptr && start <= dotted.size();) {
      const std::size_t end = std::min(dotted.find('.', start), dotted.size());
      value = value->find(dotted.substr(start, end - start));
      start = end + 1;
    }
    return value;
  }

  static Keys core(std::string_view table) {
    const std::vector<std::string> keys = core_keys(table);
    return Keys(keys.begin(), keys.end());
  }

  void visit_list_or_table(const std::string& path, std::string_view core_table, std::string_view kind) {
    Value* value = find(path);
    if (value == nullptr) return;
    if (!value->is_array()) return visit_component(*value, path, core_table, core(core_table), kind);
    for (std::size_t i = 0; i < value->array().size(); ++i) {
      visit_component(value->array()[i], fmt::format("{}[{}]", path, i), core_table, core(core_table), kind);
    }
  }

  // A list of the core whose elements have components: [[evaluate]] with its data.
  void visit_list_with_parts(const std::string& path) {
    visit_list_or_table(path, path, "");
    Value* const list = find(path);
    for (std::size_t i = 0; list != nullptr && i < list->array().size(); ++i) {
      for (const ComponentSection& section : component_sections()) {
        if (section.table.substr(0, section.table.rfind('.')) != path) continue;
        const std::string name(section.table.substr(path.size() + 1));
        if (Value* part = list->array()[i].find(name))
          visit_component(*part, fmt::format("{}[{}].{}", path, i, name), section.table, {}, section.kind);
      }
    }
  }

  // Renames inside one component's table and goes on into its inner components. kind "" = no component, core
  // keys only.
  void visit_component(Value& table, const std::string& path, std::string_view core_table, Keys legal,
                       std::string_view kind) {
    if (kind.empty()) return rename_all(table, path, core_table, legal);
    const Value* type = table.find("type");
    if (type == nullptr) return;
    legal.insert("type");
    const ComponentSchema schema = catalog_.describe(kind, type->text());
    for (const tenon_option_v1* spec : schema.options) {
      legal.insert(spec->name);
      for (const char* const* old = spec->old_names; old != nullptr && *old != nullptr; ++old)
        legal.insert(*old);
    }
    rename_all(table, path, fmt::format("{} in {}", schema.id, core_table), legal);
    for (const tenon_option_v1* spec : schema.options) {
      Value* inner = spec->type == TENON_OPTION_COMPONENT ? table.find(spec->name) : nullptr;
      if (inner != nullptr && inner->is_array()) {
        for (std::size_t i = 0; i < inner->array().size(); ++i)
          visit_component(inner->array()[i], fmt::format("{}[{}]", join_key(path, spec->name), i), "inner",
                          {}, spec->component_kind);
      } else if (inner != nullptr) {
        visit_component(*inner, join_key(path, spec->name), "inner", {}, spec->component_kind);
      }
      const bool holds = spec->type == TENON_OPTION_SECTIONS || spec->type == TENON_OPTION_TABLES;
      Value* held = holds ? table.find(spec->name) : nullptr;
      if (held == nullptr) continue;
      Keys of_section;
      for (const tenon_option_v1* option : option_list(spec->section_options))
        of_section.insert(option->name);
      const std::string key = join_key(path, spec->name);
      if (spec->type == TENON_OPTION_TABLES) {
        for (std::size_t i = 0; i < held->array().size(); ++i)
          rename_all(held->array()[i], fmt::format("{}[{}]", key, i), "section", of_section);
        continue;
      }
      for (Member& section : held->table())
        rename_all(section.value, join_key(key, section.key), "section", of_section);
    }
  }

  void rename_all(Value& table, const std::string& path, std::string_view owner, const Keys& legal) {
    for (std::size_t i = 0; i < table.table().size(); ++i) {
      const std::string key = table.table()[i].key;
      if (!proven_.insert(fmt::format("{} {}", owner, key)).second) continue;
      ++report_.keys;
      std::string example;
      for (const std::string& mutation : one_edit_mutations(key, every_)) {
        if (legal.contains(mutation)) continue;
        ++report_.tried;
        table.table()[i].key = mutation;
        const std::string answer = check();
        if (answer.empty()) {
          report_.accepted.push_back(fmt::format("{} -> {}", join_key(path, key), mutation));
        } else if (answer.find(fmt::format("did you mean '{}'?", key)) == std::string::npos) {
          if (example.empty()) example = fmt::format("{} -> {}: {}", join_key(path, key), mutation, answer);
        }
      }
      table.table()[i].key = key;
      if (key.size() >= 4) {
        ++report_.long_keys;
        if (!example.empty()) report_.misguided.push_back(example);
      }
    }
  }

  // The error text; "" when the configuration passed.
  std::string check() {
    try {
      check_run(config_.with_root(root_), catalog_, {});
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  const Config& config_;
  const ComponentCatalog& catalog_;
  std::set<std::string>& proven_;
  std::size_t every_;
  Value root_;
  MutationReport report_;
};

}  // namespace

std::vector<std::string> one_edit_mutations(std::string_view word, std::size_t every) {
  static constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789_-";
  std::set<std::string> out;
  const std::string original(word);
  for (std::size_t i = 0; i <= word.size(); ++i) {
    for (const char letter : kLetters) {
      out.insert(std::string(original).insert(i, 1, letter));
      if (i < word.size()) out.insert(std::string(original).replace(i, 1, 1, letter));
    }
    if (i < word.size()) out.insert(std::string(original).erase(i, 1));
    if (i + 1 < word.size()) {
      std::string swapped = original;
      std::swap(swapped[i], swapped[i + 1]);
      out.insert(swapped);
    }
  }
  out.erase(original);
  out.erase("");
  std::size_t place = 0;
  for (const char letter : word) place += static_cast<unsigned char>(letter);
  std::vector<std::string> taken;
  for (const std::string& mutation : out)
    if (place++ % every == 0) taken.push_back(mutation);
  return taken;
}

MutationReport mutate_keys(const Config& config, const ComponentCatalog& catalog,
                           std::set<std::string>& proven, std::size_t every) {
  return Mutator(config, catalog, proven, every).run();
}

}  // namespace config
TENON_ABI_END
