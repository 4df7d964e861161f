// A schema is a tree of tables, built from the specs of each table, and a definition per component. A table
// with a `type` takes any option of its kind, and the ones of the component that `type` names: the first part
// offers completion to editors that do not follow if/then, and judges a layer whose `type` is elsewhere.
#include "config_schema.hpp"

#include "ab/experiment.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"
#include "power/plan.hpp"
#include "reproduce/study_file.hpp"
#include "run/stages.hpp"
#include "simulate/plan.hpp"
#include "transform/plan.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace tenon::cli {
namespace {

using Json = nlohmann::ordered_json;
using config::TableSpecs;

/// A component with the texts that name it in `type`.
struct Named {
  ComponentRef ref;
  std::vector<std::string> types;  ///< the plain ones first
  std::size_t plain = 0;           ///< how many of them name no vendor
};

bool is_list(const tenon_option_v1& spec) {
  return (spec.type >= TENON_OPTION_INT_LIST && spec.type <= TENON_OPTION_TEXT_LIST) ||
         spec.type == TENON_OPTION_PATH_LIST;
}

Json bound(double value, bool whole) {
  return whole && std::abs(value) < 1e15 ? Json(static_cast<std::int64_t>(value)) : Json(value);
}

/// Nothing for what JSON has no number for.
std::optional<Json> json_of(const Value& value) {
  switch (value.type()) {
    case Value::Type::kBoolean:
      return Json(value.boolean());
    case Value::Type::kInteger:
      return Json(value.integer());
    case Value::Type::kReal:
      return std::isfinite(value.real()) ? std::optional(Json(value.real())) : std::nullopt;
    case Value::Type::kArray: {
      Json list = Json::array();
      for (const Value& element : value.array()) {
        const std::optional<Json> one = json_of(element);
        if (!one) return std::nullopt;
        list.push_back(*one);
      }
      return list;
    }
    default:
      return value.is_text() ? std::optional(Json(value.text())) : std::nullopt;
  }
}

bool serves(const PluginStatus& plugin) {
  return plugin.state == PluginStatus::State::kOffered || plugin.state == PluginStatus::State::kLoaded;
}

/// A single value, or an element of a list.
Json scalar_schema(const tenon_option_v1& spec) {
  Json schema;
  const bool whole = spec.type == TENON_OPTION_INT || spec.type == TENON_OPTION_INT_LIST;
  switch (spec.type) {
    case TENON_OPTION_BOOL:
      return {{"type", "boolean"}};
    case TENON_OPTION_INT:
    case TENON_OPTION_INT_LIST:
      schema["type"] = "integer";
      break;
    case TENON_OPTION_REAL:
    case TENON_OPTION_REAL_LIST:
      // Editors hand TOML's inf to the schema as JSON's null.
      schema["type"] = std::isnan(spec.max) ? Json({"number", "null"}) : Json("number");
      break;
    default:
      schema["type"] = "string";
      for (const char* const* choice = spec.choices; choice != nullptr && *choice != nullptr; ++choice)
        schema["enum"].push_back(*choice);
      return schema;
  }
  if (!std::isnan(spec.min)) schema["minimum"] = bound(spec.min, whole);
  if (!std::isnan(spec.max)) schema["maximum"] = bound(spec.max, whole);
  return schema;
}

void describe(Json& schema, const tenon_option_v1& spec) {
  std::string text = spec.doc;
  if (*spec.unit != '\0') text += fmt::format("{}[{}]", text.empty() ? "" : " ", spec.unit);
  if (spec.default_toml != nullptr) {
    if (const std::optional<Json> value = json_of(parse_value(spec.default_toml, {})))
      schema["default"] = *value;
    else
      text += fmt::format("{}default {}", text.empty() ? "" : "; ", spec.default_toml);
  } else if ((spec.flags & TENON_OPTION_REQUIRED) != 0) {
    text += text.empty() ? "mandatory" : "; mandatory";
  }
  if (!text.empty()) schema["description"] = text;
}

/// A line per table and component: a change of one is a change of its line.
std::string text_of(const Json& schema) {
  std::string text = "{";
  for (const auto& [key, value] : schema.items()) {
    text += fmt::format("{}\n{}: ", text.size() > 1 ? "," : "", Json(key).dump());
    if (key != "properties" && key != "definitions") {
      text += value.dump();
      continue;
    }
    std::string members;
    for (const auto& [name, member] : value.items())
      members += fmt::format("{}\n {}: {}", members.empty() ? "" : ",", Json(name).dump(), member.dump());
    text += "{" + members + "}";
  }
  return text + "\n}\n";
}

/// Properties of a table, and which of them it must have.
struct Table {
  Json properties = Json::object();
  std::set<std::string> required;
  bool open = false;

  Json schema() const {
    Json out{{"type", "object"}, {"properties", properties}, {"additionalProperties", open}};
    if (!required.empty()) out["required"] = required;
    return out;
  }
};

class SchemaWriter {
 public:
  SchemaWriter(Registry& registry, std::vector<TableSpecs> tables)
      : registry_(registry), tables_(std::move(tables)) {}

  ConfigSchema write(const std::string& title) {
    Table root = table_of("", false);
    root.properties["extends"] = {
        {"description", "layers below this file, relative to it, lowest first"},
        {"anyOf", {{{"type", "string"}}, {{"type", "array"}, {"items", {{"type", "string"}}}}}}};
    Json schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", title}};
    const Json tables = root.schema();
    for (const auto& [key, value] : tables.items()) schema[key] = value;
    schema["definitions"] = std::move(definitions_);
    return {text_of(schema), std::move(left_out_)};
  }

 private:
  static Json reference(const std::string& definition) { return {{"$ref", "#/definitions/" + definition}}; }

  const TableSpecs* specs_of(const std::string& path) const {
    const auto found = std::find_if(tables_.begin(), tables_.end(),
                                    [&](const TableSpecs& table) { return table.path == path; });
    return found == tables_.end() ? nullptr : &*found;
  }

  /// The keys of a table that belong to no component. `in_list`: it is, or is inside, an element of a list.
  Table table_of(const std::string& path, bool in_list) {
    Table table;
    if (const TableSpecs* specs = specs_of(path)) {
      table.open = specs->open;
      for (const OptionSpec& spec : specs->specs) add(table, spec, in_list);
    }
    const std::string before = path.empty() ? "" : path + ".";
    std::vector<std::string> children;
    for (const TableSpecs& other : tables_) {
      if (other.path.size() <= before.size() || !other.path.starts_with(before)) continue;
      const std::string child =
          other.path.substr(before.size(), other.path.find('.', before.size()) - before.size());
      if (std::find(children.begin(), children.end(), child) == children.end()) children.push_back(child);
    }
    for (const std::string& child : children) {
      const TableSpecs* specs = specs_of(before + child);
      const bool list = specs != nullptr && specs->is_list;
      Json schema = whole_table(before + child, in_list || list);
      if (list) schema = {{"type", "array"}, {"items", std::move(schema)}};
      if (list && !in_list) table.properties["+" + child] = schema;
      // A key that is a value or a table: seeds = [1, 2], seeds = { from = 1 }.
      if (table.properties.contains(child))
        schema = Json{{"anyOf", Json::array({table.properties[child], schema})}};
      table.properties[child] = std::move(schema);
    }
    return table;
  }

  /// With the component that it names, if it names one.
  Json whole_table(const std::string& path, bool in_list) {
    const TableSpecs* specs = specs_of(path);
    const Table own = table_of(path, in_list);
    if (specs == nullptr || specs->kind.empty()) return own.schema();
    return component_table(std::string(specs->kind), path, own, in_list, in_list && !specs->overrides);
  }

  /// `complete`: no other layer can add to the table.
  Json component_table(const std::string& kind, const std::string& name, const Table& own, bool in_list,
                       bool complete) {
    if (!made_.insert(name).second) return reference(name);
    Table any = own;
    Json whole{{"type", "object"}, {"allOf", Json::array({reference(name + ".any")})}};
    if (complete) any.required.insert("type");
    Json plain = Json::array();
    std::vector<std::string> all;
    std::map<std::string, std::vector<Json>> meanings;
    for (const Named& component : components(kind)) {
      Table table = own;
      table.properties["type"] = {{"type", "string"}, {"description", component.ref.component->summary}};
      for (const tenon_option_v1* spec : option_list(component.ref.component->options))
        add(table, *spec, in_list);
      for (const auto& [key, schema] : table.properties.items()) {
        std::vector<Json>& known = meanings[key];
        if (key == "type" || own.properties.contains(key)) continue;
        if (std::find(known.begin(), known.end(), schema) == known.end()) known.push_back(schema);
      }
      if (!complete) table.required = own.required;
      const std::string definition =
          fmt::format("{}.{}.{}", name, component.ref.plugin, component.ref.component->id);
      definitions_[definition] = table.schema();
      whole["allOf"].push_back(
          {{"if", {{"properties", {{"type", {{"enum", component.types}}}}}, {"required", {"type"}}}},
           {"then", reference(definition)}});
      for (std::size_t i = 0; i < component.types.size(); ++i)
        i < component.plain ? plain.push_back(component.types[i]) : all.push_back(component.types[i]);
    }
    for (const auto& [key, schemas] : meanings) {
      if (schemas.empty()) continue;
      any.properties[key] = schemas.size() == 1 ? schemas.front() : Json{{"anyOf", schemas}};
    }
    Json type{{"description", fmt::format("the component of kind {}", config::kind_name(kind))}};
    type["anyOf"] = {{{"enum", plain}}, {{"enum", all}}};
    any.properties["type"] = std::move(type);
    definitions_[name + ".any"] = any.schema();
    definitions_[name] = std::move(whole);
    return reference(name);
  }

  void add(Table& table, const tenon_option_v1& spec, bool in_list) {
    Json schema = option_schema(spec, in_list);
    describe(schema, spec);
    const bool mandatory = (spec.flags & TENON_OPTION_REQUIRED) != 0;
    bool renamed = false;
    for (const char* const* old = spec.old_names; old != nullptr && *old != nullptr; ++old) {
      Json former = schema;
      former["description"] = fmt::format("the former name of {}", spec.name);
      table.properties[*old] = std::move(former);
      renamed = true;
    }
    if (is_list(spec) && spec.length == 0 && !in_list)
      table.properties[std::string("+") + spec.name] = schema;
    table.properties[spec.name] = std::move(schema);
    if (mandatory && in_list && !renamed) table.required.insert(spec.name);
  }

  Json option_schema(const tenon_option_v1& spec, bool in_list) {
    if (is_list(spec)) {
      Json list = {{"type", "array"}, {"items", scalar_schema(spec)}};
      if (spec.length != 0) list["minItems"] = list["maxItems"] = spec.length;
      return list;
    }
    if (spec.type == TENON_OPTION_COMPONENT) {
      const std::string kind = spec.component_kind;
      const bool listed = (spec.flags & TENON_OPTION_LIST) != 0, of_list = in_list || listed;
      const std::string name =
          fmt::format("{}.{}", of_list ? "inner_of_list" : "inner", config::kind_name(kind));
      Json one{{"allOf", Json::array({component_table(kind, name, {}, of_list, of_list)})}};
      return listed ? Json{{"type", "array"}, {"items", std::move(one)}} : one;
    }
    if (spec.type != TENON_OPTION_SECTIONS && spec.type != TENON_OPTION_TABLES) return scalar_schema(spec);
    Table section;
    for (const tenon_option_v1* inner : option_list(spec.section_options)) add(section, *inner, in_list);
    if (spec.type == TENON_OPTION_TABLES) return {{"type", "array"}, {"items", section.schema()}};
    section.required.clear();  // a section has a value for what the user set, and for no more
    return {{"type", "object"}, {"additionalProperties", section.schema()}};
  }

  /// Every component of a kind with the texts that name it alone.
  const std::vector<Named>& components(const std::string& kind) {
    const auto [entry, is_new] = by_kind_.try_emplace(kind);
    std::vector<Named>& found = entry->second;
    if (!is_new) return found;
    std::map<std::string, int> offers;
    const std::vector<PluginStatus> plugins = registry_.plugins();
    const auto names_of = [](const PluginStatus::Offer& offer) {
      std::vector<std::string> names{offer.id};
      names.insert(names.end(), offer.aliases.begin(), offer.aliases.end());
      return names;
    };
    for (const PluginStatus& plugin : plugins) {
      for (const PluginStatus::Offer& offer : plugin.offers) {
        if (offer.kind != kind || !serves(plugin)) continue;
        for (const std::string& name : names_of(offer)) ++offers[name];
      }
    }
    for (const PluginStatus& plugin : plugins) {
      for (const PluginStatus::Offer& offer : plugin.offers) {
        if (offer.kind != kind || !serves(plugin)) continue;
        Named named;
        try {
          named.ref = registry_.find(kind, plugin.id + "/" + offer.id);
        } catch (const Error& error) {
          left_out_.push_back(fmt::format("{}.{}: {}", config::kind_name(kind), offer.id, error.what()));
          continue;
        }
        for (const std::string& name : names_of(offer))
          if (offers[name] == 1) named.types.push_back(name);
        named.plain = named.types.size();
        for (const std::string& owner : {plugin.id.substr(0, plugin.id.find('.')), plugin.id})
          for (const std::string& name : names_of(offer)) named.types.push_back(owner + "/" + name);
        found.push_back(std::move(named));
      }
    }
    std::sort(found.begin(), found.end(), [](const Named& a, const Named& b) {
      return std::string_view(a.ref.component->id) < b.ref.component->id;
    });
    return found;
  }

  Registry& registry_;
  std::vector<TableSpecs> tables_;
  Json definitions_ = Json::object();
  std::set<std::string> made_;
  std::map<std::string, std::vector<Named>> by_kind_;
  std::vector<std::string> left_out_;
};

}  // namespace

const std::vector<std::string>& schema_names() {
  static const std::vector<std::string> names{"run", "experiment", "study", "simulate", "power", "transform"};
  return names;
}

ConfigSchema config_schema(const std::string& name, Registry& registry) {
  if (name == "run") {
    std::vector<TableSpecs> tables = config::run_tables();
    for (TableSpecs& table : train::stage_tables()) tables.push_back(std::move(table));
    return SchemaWriter(registry, std::move(tables)).write("a run of tenon train");
  }
  if (name == "experiment")
    return SchemaWriter(registry, ab::experiment_tables()).write("an experiment of tenon ab");
  if (name == "study")
    return SchemaWriter(registry, reproduce::study_tables()).write("a study of tenon reproduce");
  if (name == "simulate")
    return SchemaWriter(registry, simulate::simulation_tables()).write("a simulation of tenon simulate");
  if (name == "power")
    return SchemaWriter(registry, power::power_tables())
        .write("a site of tenon power, or levels or limits for it");
  if (name == "transform")
    return SchemaWriter(registry, transform::transform_tables()).write("a transform of tenon transform");
  fail_config(fmt::format("tenon inspect --json-schema: there is no kind of file '{}'{} (known: {})", name,
                          config::suggestion(name, schema_names()), fmt::join(schema_names(), ", ")));
}

}  // namespace tenon::cli
