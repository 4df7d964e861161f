// Options of a component: a table is resolved against them, and the component reads the result.
#include <tenon/config.hpp>

#include "config/data_path.hpp"
#include "config/option_check.hpp"
#include "config/words.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

TENON_ABI_BEGIN

// ResolvedOptions: what a component reads. Asking for something undeclared or of another type is the author's
// mistake and says so with both sides.

namespace {

constexpr const char* kTypeNames[] = {"boolean", "integer", "real",      "text",     "path",  "integers",
                                      "reals",   "texts",   "component", "sections", "paths", "tables"};

}  // namespace

struct ResolvedOptions::Entry {
  std::string name;
  tenon_option_type type;
  bool present = false;
  Datum datum;
  std::vector<std::string_view> views;  // into datum or sections, for texts() and section_names()
  // A list of components is an entry NAME, whose datum is the texts "0", "1", ..., and before it an entry
  // NAME.0, NAME.1, ... for each of them.
  bool lists_components() const {
    return type == TENON_OPTION_COMPONENT && std::holds_alternative<std::vector<std::string>>(datum);
  }
  InnerComponent inner;
  std::vector<Section> sections;
  Origin origin;
};

namespace {

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

bool is_value(char c) {
  return (c >= '0' && c <= '9') || c == '=' || c == '-' || c == '[' || c == '"';
}

/// Where `text` names the option `name`, npos if nowhere. `marked`: in quotes, or after a dot as part of a
/// key; else with its value after it ("width 16", "width = 16", `site "h.*"`), because an option's name may
/// be any word.
std::size_t named_at(std::string_view text, std::string_view name, bool marked) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    const char before = at > 0 ? text[at - 1] : ' ';
    const std::string_view rest = text.substr(at + name.size());
    const char after = rest.empty() ? ' ' : rest.front();
    if (in_word(before) || in_word(after) || before == '/' || after == '/') continue;  // of a path
    if (marked ? before == '\'' || before == '`' || before == '.'
               : after == ':' || after == '=' || (rest.size() > 1 && after == ' ' && is_value(rest[1])))
      return at;
  }
  return std::string_view::npos;
}

constexpr bool holds_tables(std::uint32_t type) {
  return type == TENON_OPTION_SECTIONS || type == TENON_OPTION_TABLES;
}

bool is_written(const Origin& origin) {
  return !origin.file.empty() && origin.file != "default";
}

}  // namespace

ResolvedOptions::ResolvedOptions(std::string owner) : owner_(std::move(owner)) {}
// Later options may refer to earlier inner components, so destruction runs backwards.
ResolvedOptions::~ResolvedOptions() {
  while (!entries_.empty()) entries_.pop_back();
}

const ResolvedOptions::Entry* ResolvedOptions::look_up(std::string_view name) const {
  const auto found =
      std::find_if(entries_.begin(), entries_.end(), [&](const auto& item) { return item->name == name; });
  if (found == entries_.end())
    fail_plugin(fmt::format("{} asks for option '{}', which it does not declare", owner_, name));
  return found->get();
}

const ResolvedOptions::Entry& ResolvedOptions::entry(std::string_view name, tenon_option_type type) const {
  const Entry& found = *look_up(name);
  const bool both_text = (type == TENON_OPTION_TEXT && found.type == TENON_OPTION_PATH) ||
                         (type == TENON_OPTION_TEXT_LIST && found.type == TENON_OPTION_PATH_LIST);
  if (found.type != type && !both_text) {
    fail_plugin(fmt::format("{} declares option '{}' as {} and reads it as {}", owner_, name,
                            kTypeNames[found.type], kTypeNames[type]));
  }
  if (!found.present) {
    fail_plugin(fmt::format("{} reads option '{}', which was left out and has no default; ask has() first",
                            owner_, name));
  }
  return found;
}

bool ResolvedOptions::has(std::string_view name) const {
  return look_up(name)->present;
}

bool ResolvedOptions::boolean(std::string_view name) const {
  return std::get<bool>(entry(name, TENON_OPTION_BOOL).datum);
}

std::int64_t ResolvedOptions::integer(std::string_view name) const {
  return std::get<std::int64_t>(entry(name, TENON_OPTION_INT).datum);
}

double ResolvedOptions::real(std::string_view name) const {
  return std::get<double>(entry(name, TENON_OPTION_REAL).datum);
}

std::string_view ResolvedOptions::text(std::string_view name) const {
  return std::get<std::string>(entry(name, TENON_OPTION_TEXT).datum);
}

std::span<const std::int64_t> ResolvedOptions::integers(std::string_view name) const {
  return std::get<std::vector<std::int64_t>>(entry(name, TENON_OPTION_INT_LIST).datum);
}

std::span<const double> ResolvedOptions::reals(std::string_view name) const {
  return std::get<std::vector<double>>(entry(name, TENON_OPTION_REAL_LIST).datum);
}

std::span<const std::string_view> ResolvedOptions::texts(std::string_view name) const {
  return entry(name, TENON_OPTION_TEXT_LIST).views;
}

void* ResolvedOptions::component_pointer(std::string_view name, std::string_view kind) const {
  const Entry& found = *look_up(name);
  if (found.type != TENON_OPTION_COMPONENT) {
    fail_plugin(fmt::format("{} declares option '{}' as {} and reads it as component", owner_, name,
                            kTypeNames[found.type]));
  }
  if (!found.present) return nullptr;
  if (found.lists_components()) {
    fail_plugin(fmt::format("{} declares option '{}' as a list of components and reads it as component",
                            owner_, name));
  }
  if (found.inner.kind != kind) {
    fail_plugin(fmt::format("{} declares option '{}' as a component of kind {} and reads it as {}", owner_,
                            name, found.inner.kind, kind));
  }
  if (found.inner.instance == nullptr) {
    fail_plugin(fmt::format("{} reads option '{}' before its component was made", owner_, name));
  }
  return found.inner.instance.get();
}

void ResolvedOptions::set_origin(std::string_view name, const Origin& origin) {
  for (const auto& entry : entries_) {
    if (entry->name == name) entry->origin = origin;
  }
}

std::string ResolvedOptions::place_of(std::string_view message) const {
  for (const bool marked : {true, false}) {
    const Entry* first = nullptr;
    std::size_t where = std::string_view::npos;
    for (const auto& entry : entries_) {
      const std::size_t at = is_written(entry->origin) ? named_at(message, entry->name, marked) : where;
      if (at >= where) continue;
      where = at;
      first = entry.get();
    }
    if (first == nullptr) continue;
    for (const Section& section : first->sections) {
      // Tables are called 0, 1, ..., which may be any number of the message: they follow the option's name.
      const bool numbered = first->type == TENON_OPTION_TABLES;
      const std::string called =
          numbered ? fmt::format("{}' {} ", first->name, section.first) : std::string(section.first);
      if (message.find(called) == std::string_view::npos) continue;
      if (std::string inner = section.second->place_of(message); !inner.empty()) return inner;
    }
    return first->origin.text();
  }
  return is_written(origin_) ? origin_.text() : "";
}

void ResolvedOptions::declare(std::string_view name, tenon_option_type type) {
  auto entry = std::make_unique<Entry>();
  entry->name = name;
  entry->type = type;
  entries_.push_back(std::move(entry));
}

void ResolvedOptions::store(std::string_view name, tenon_option_type type, Datum datum) {
  declare(name, type);
  Entry& entry = *entries_.back();
  entry.present = true;
  entry.datum = std::move(datum);
  if (const auto* texts = std::get_if<std::vector<std::string>>(&entry.datum)) {
    entry.views.assign(texts->begin(), texts->end());
  }
}

void ResolvedOptions::store(std::string_view name, InnerComponent inner) {
  declare(name, TENON_OPTION_COMPONENT);
  entries_.back()->present = true;
  entries_.back()->inner = std::move(inner);
}

std::unique_ptr<ResolvedOptions> ResolvedOptions::unmade() const {
  auto copy = std::make_unique<ResolvedOptions>(owner_);
  copy->origin_ = origin_;
  for (const auto& entry : entries_) {
    if (!entry->present) {
      copy->declare(entry->name, entry->type);
    } else if (entry->type == TENON_OPTION_COMPONENT && !entry->lists_components()) {
      const InnerComponent& inner = entry->inner;
      copy->store(entry->name, InnerComponent{inner.kind, inner.type,
                                              inner.options == nullptr ? nullptr : inner.options->unmade()});
    } else if (holds_tables(entry->type)) {
      std::vector<Section> sections;
      for (const Section& section : entry->sections)
        sections.emplace_back(section.first, section.second->unmade());
      copy->store(entry->name, entry->type, std::move(sections));
    } else {
      copy->store(entry->name, entry->type, entry->datum);
    }
    copy->entries_.back()->origin = entry->origin;
  }
  return copy;
}

std::vector<std::pair<std::string, InnerComponent*>> ResolvedOptions::inner() {
  std::vector<std::pair<std::string, InnerComponent*>> out;
  for (const auto& entry : entries_) {
    if (entry->type == TENON_OPTION_COMPONENT && entry->present && !entry->lists_components())
      out.emplace_back(entry->name, &entry->inner);
  }
  return out;
}

void ResolvedOptions::store(std::string_view name, tenon_option_type type, std::vector<Section> sections) {
  declare(name, type);
  Entry& entry = *entries_.back();
  entry.present = true;
  entry.sections = std::move(sections);
  for (const Section& section : entry.sections) entry.views.push_back(section.first);
}

std::span<const std::string_view> ResolvedOptions::section_names(std::string_view name) const {
  const Entry& found = *look_up(name);
  const tenon_option_type type = found.type;
  if ((holds_tables(type) || type == TENON_OPTION_COMPONENT) && !found.present) return {};
  if (found.lists_components()) return found.views;
  return entry(name, holds_tables(type) ? type : TENON_OPTION_SECTIONS).views;
}

const Options& ResolvedOptions::section(std::string_view name, std::string_view section) const {
  const tenon_option_type type = look_up(name)->type;
  for (const Section& held : entry(name, holds_tables(type) ? type : TENON_OPTION_SECTIONS).sections) {
    if (held.first == section) return *held.second;
  }
  fail_plugin(fmt::format("{} reads the section '{}' of option '{}', which the user did not write", owner_,
                          section, name));
}

ComponentCatalog::~ComponentCatalog() = default;

// A whole table against the options of one owner: unknown, missing, renamed and deprecated keys, defaults,
// and inner components depth first. Problems are collected, so that one run of `tenon check` shows all of
// them.

namespace {

class Resolver {
 public:
  Resolver(const OptionRequest& request, std::vector<std::string>& problems)
      : request_(request), problems_(problems) {
    result_.options = std::make_unique<ResolvedOptions>(request.owner);
    result_.options->set_origin(request.table.origin);
    result_.table.origin = request.table.origin;
  }

  Resolution run() {
    if (!request_.table.is_table()) {
      problem(request_.table.origin,
              fmt::format("{} takes a table, found {}", request_.owner, request_.table.description()));
      return std::move(result_);
    }
    keep_type();
    for (const Member& member : request_.table.table()) refuse_unknown(member);
    for (const tenon_option_v1* spec : request_.specs) resolve(*spec);
    return std::move(result_);
  }

 private:
  void problem(const Origin& origin, const std::string& text) {
    problems_.push_back(config::place(origin) + text);
  }

  void keep_type() {
    const auto& others = request_.other_keys;
    const Member* type = request_.table.find_member("type");
    if (type != nullptr && std::find(others.begin(), others.end(), "type") != others.end()) {
      result_.table.set("type", type->value, type->origin);
    }
  }

  // The member that sets the option, under its name or a former one.
  const Member* given(const tenon_option_v1& spec) {
    const Member* found = request_.table.find_member(spec.name);
    for (const char* const* old = spec.old_names; old != nullptr && *old != nullptr; ++old) {
      const Member* former = request_.table.find_member(*old);
      if (former == nullptr) continue;
      if (found != nullptr) {
        problem(former->origin,
                fmt::format("'{}' is the former name of option '{}' of {}, which is set too ({}); keep one",
                            *old, spec.name, request_.owner, found->origin.text()));
      } else {
        found = former;
        result_.warnings.push_back(fmt::format("{}option '{}' of {} is now called '{}'",
                                               config::place(former->origin), *old, request_.owner,
                                               spec.name));
      }
    }
    return found;
  }

  void resolve(const tenon_option_v1& spec) {
    if (spec.type > TENON_OPTION_TABLES) {
      fail_plugin(fmt::format("{} declares option '{}' with the unknown type {}", request_.owner, spec.name,
                              spec.type));
    }
    const auto type = static_cast<tenon_option_type>(spec.type);
    const Member* member = given(spec);
    if (member == nullptr) {
      fill_in(spec, type);
      return;
    }
    if (type == TENON_OPTION_COMPONENT) {
      const bool listed = (spec.flags & TENON_OPTION_LIST) != 0;
      return listed ? resolve_components(spec, *member) : resolve_component(spec, *member);
    }
    if (type == TENON_OPTION_SECTIONS) return resolve_sections(spec, *member);
    if (type == TENON_OPTION_TABLES) return resolve_tables(spec, *member);
    if (auto checked = config::check_value(spec, member->value, request_.owner, problems_)) {
      store(spec, type, std::move(*checked), member->origin);
    }
  }

  void fill_in(const tenon_option_v1& spec, tenon_option_type type) {
    if ((spec.flags & TENON_OPTION_REQUIRED) != 0) {
      problem(request_.table.origin,
              fmt::format("{} needs option '{}': {}{}{}", request_.owner, spec.name,
                          config::expectation(spec), *spec.doc != '\0' ? ", " : "", spec.doc));
      return;
    }
    // After a problem the result is not read, and reading TOML is the slow part.
    const bool of_tables = type == TENON_OPTION_COMPONENT || holds_tables(type);
    if (spec.default_toml == nullptr || of_tables || !problems_.empty()) {
      result_.options->declare(spec.name, type);
      return;
    }
    const Origin origin{"default", 0, 0};
    std::vector<std::string> faults;
    std::optional<config::CheckedValue> checked;
    try {
      checked = config::check_value(spec, parse_value(spec.default_toml, origin), request_.owner, faults);
    } catch (const Error& error) {
      faults.emplace_back(error.what());
    }
    if (!checked) {
      fail_plugin(fmt::format("{} declares option '{}' with a default that does not fit its own rules: {}",
                              request_.owner, spec.name, faults.front()));
    }
    store(spec, type, std::move(*checked), origin);
  }

  void store(const tenon_option_v1& spec, tenon_option_type type, config::CheckedValue checked,
             const Origin& key_origin) {
    if ((type == TENON_OPTION_PATH || type == TENON_OPTION_PATH_LIST) && !make_absolute(spec, checked))
      return;
    const Origin written = checked.shown.origin;
    result_.table.set(spec.name, std::move(checked.shown), key_origin);
    result_.options->store(spec.name, type, std::move(checked.datum));
    result_.options->set_origin(spec.name, written);
  }

  /// Paths are absolute from here on, also in the table that a run records.
  bool make_absolute(const tenon_option_v1& spec, config::CheckedValue& checked) {
    const std::size_t before = problems_.size();
    const auto resolved = [&](Value& value) {
      try {
        Value found(config::resolve_entry(value.text(), value.origin, spec.flags));
        found.origin = value.origin;
        found.earlier = value.earlier;
        value = std::move(found);
      } catch (const Error& error) {
        problem(value.origin, fmt::format("option '{}' of {}: {}", spec.name, request_.owner, error.what()));
      }
      return value.text();
    };
    if (spec.type == TENON_OPTION_PATH) {
      checked.datum = resolved(checked.shown);
    } else {
      std::vector<std::string> all;
      for (Value& entry : checked.shown.array()) all.push_back(resolved(entry));
      checked.datum = std::move(all);
    }
    return problems_.size() == before;
  }

  void resolve_component(const tenon_option_v1& spec, const Member& member) {
    const Value& table = member.value;
    if (!table.is_table()) {
      const std::string help =
          table.is_text() ? fmt::format("; write {} = {{type = {}}}", spec.name, config::quoted(table.text()))
                          : "";
      problem(table.origin, fmt::format("option '{}' of {}: expected a table with its own 'type', found {}{}",
                                        spec.name, request_.owner, table.description(), help));
      return;
    }
    if (auto shown = resolve_inner(spec, spec.name, table))
      result_.table.set(spec.name, std::move(*shown), member.origin);
  }

  void resolve_components(const tenon_option_v1& spec, const Member& member) {
    const Value& tables = member.value;
    if (!tables.is_array()) {
      problem(tables.origin,
              fmt::format("option '{}' of {}: expected an array of tables, [[...{}]] for each, "
                          "each with its own 'type', found {}",
                          spec.name, request_.owner, spec.name, tables.description()));
      return;
    }
    Value shown = tables;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < tables.array().size(); ++i) {
      const Value& table = tables.array()[i];
      if (!table.is_table()) {
        problem(table.origin,
                fmt::format("option '{}[{}]' of {}: expected a table with its own 'type', found {}",
                            spec.name, i, request_.owner, table.description()));
        continue;
      }
      names.push_back(std::to_string(i));
      if (auto resolved = resolve_inner(spec, fmt::format("{}.{}", spec.name, i), table))
        shown.array()[i] = std::move(*resolved);
    }
    result_.table.set(spec.name, std::move(shown), member.origin);
    result_.options->store(spec.name, TENON_OPTION_COMPONENT, std::move(names));
    result_.options->set_origin(spec.name, member.value.origin);
  }

  /// Stores the component of a table under `name`. Returns the table with defaults; nothing after a problem.
  std::optional<Value> resolve_inner(const tenon_option_v1& spec, const std::string& name,
                                     const Value& table) {
    const Value* type = table.find("type");
    if (type == nullptr || !type->is_text()) {
      problem(type == nullptr ? table.origin : type->origin,
              fmt::format("option '{}' of {} needs a 'type' in quotes: the name of a component of kind {}",
                          name, request_.owner, config::kind_name(spec.component_kind)));
      return std::nullopt;
    }
    if (request_.catalog == nullptr) {
      fail_plugin(fmt::format("option '{}' of {} is a component, but none can be looked up here", name,
                              request_.owner));
    }
    ComponentSchema schema;
    try {
      schema = request_.catalog->describe(spec.component_kind, type->text());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      problem(type->origin, error.what());
      return std::nullopt;
    }
    Resolution inner =
        resolve_options(component_request(table, std::move(schema), request_.catalog), problems_);
    result_.warnings.insert(result_.warnings.end(), inner.warnings.begin(), inner.warnings.end());
    InnerComponent made;
    made.kind = spec.component_kind;
    made.type = type->text();
    made.options = std::move(inner.options);
    result_.options->store(name, std::move(made));
    result_.options->set_origin(name, table.origin);
    return std::move(inner.table);
  }

  void resolve_sections(const tenon_option_v1& spec, const Member& member) {
    const Value& tables = member.value;
    if (!tables.is_table()) {
      problem(tables.origin,
              fmt::format("option '{}' of {}: expected tables under names of your own, such as {}.\"NAME\" = "
                          "{{...}}, found {}",
                          spec.name, request_.owner, spec.name, tables.description()));
      return;
    }
    Value shown = tables;
    std::vector<ResolvedOptions::Section> sections;
    for (const Member& section : tables.table()) {
      Resolution resolved =
          resolve_held(spec, section.value,
                       fmt::format("{}.{}.{}", request_.owner, spec.name, config::quoted(section.key)));
      shown.set(section.key, std::move(resolved.table), section.origin);
      sections.emplace_back(section.key, std::move(resolved.options));
    }
    store_tables(spec, member, std::move(shown), std::move(sections));
  }

  /// Option of TENON_OPTION_TABLES: [[name]] several times, or [name] for one.
  void resolve_tables(const tenon_option_v1& spec, const Member& member) {
    Value tables = member.value;
    if (tables.is_table()) {
      const Origin origin = tables.origin;
      tables = Value(Value::Array{std::move(tables)});
      tables.origin = origin;
    }
    if (!tables.is_array()) {
      problem(tables.origin,
              fmt::format("option '{}' of {}: expected an array of tables, [[...{}]] for each, "
                          "found {}",
                          spec.name, request_.owner, spec.name, tables.description()));
      return;
    }
    Value shown = tables;
    std::vector<ResolvedOptions::Section> entries;
    for (std::size_t i = 0; i < tables.array().size(); ++i) {
      Resolution resolved =
          resolve_held(spec, tables.array()[i], fmt::format("{}.{}[{}]", request_.owner, spec.name, i));
      shown.array()[i] = std::move(resolved.table);
      entries.emplace_back(std::to_string(i), std::move(resolved.options));
    }
    store_tables(spec, member, std::move(shown), std::move(entries));
  }

  /// One of the tables that an option holds.
  Resolution resolve_held(const tenon_option_v1& spec, const Value& table, std::string owner) {
    const OptionRequest inner{.table = table,
                              .owner = std::move(owner),
                              .specs = option_list(spec.section_options),
                              .hint = request_.hint,
                              .catalog = nullptr};
    Resolution resolved = resolve_options(inner, problems_);
    result_.warnings.insert(result_.warnings.end(), resolved.warnings.begin(), resolved.warnings.end());
    return resolved;
  }

  void store_tables(const tenon_option_v1& spec, const Member& member, Value shown,
                    std::vector<ResolvedOptions::Section> tables) {
    result_.table.set(spec.name, std::move(shown), member.origin);
    result_.options->store(spec.name, static_cast<tenon_option_type>(spec.type), std::move(tables));
    result_.options->set_origin(spec.name, member.value.origin);
  }

  static bool is_named(const tenon_option_v1& spec, std::string_view key) {
    if (key == spec.name) return true;
    for (const char* const* old = spec.old_names; old != nullptr && *old != nullptr; ++old) {
      if (key == *old) return true;
    }
    return false;
  }

  void refuse_unknown(const Member& member) {
    const auto& others = request_.other_keys;
    const auto declares = [&](const tenon_option_v1* spec) { return is_named(*spec, member.key); };
    if (std::any_of(request_.specs.begin(), request_.specs.end(), declares)) return;
    if (std::find(others.begin(), others.end(), member.key) != others.end()) return;
    std::vector<std::string> known;
    for (const tenon_option_v1* spec : request_.specs) known.emplace_back(spec->name);
    known.insert(known.end(), others.begin(), others.end());
    problem(member.origin, fmt::format("{} has no option '{}'{}{}", request_.owner,
                                       config::printable(member.key), config::suggestion(member.key, known),
                                       request_.hint.empty() ? "" : " (" + request_.hint + ")"));
  }

  const OptionRequest& request_;
  std::vector<std::string>& problems_;
  Resolution result_;
};

}  // namespace

OptionList option_list(std::span<const OptionSpec> specs) {
  OptionList out;
  for (const OptionSpec& spec : specs) out.push_back(&spec);
  return out;
}

OptionList option_list(const tenon_option_v1* const* null_terminated) {
  OptionList out;
  for (; null_terminated != nullptr && *null_terminated != nullptr; ++null_terminated)
    out.push_back(*null_terminated);
  return out;
}

OptionRequest component_request(const Value& table, ComponentSchema schema, const ComponentCatalog* catalog) {
  return {.table = table,
          .owner = schema.id,
          .specs = std::move(schema.options),
          .other_keys = {"type"},
          .hint = "see: tenon inspect " + schema.id,
          .catalog = catalog};
}

Resolution resolve_options(const OptionRequest& request, std::vector<std::string>& problems) {
  return Resolver(request, problems).run();
}

Resolution resolve_options(const OptionRequest& request) {
  std::vector<std::string> problems;
  Resolution resolution = resolve_options(request, problems);
  throw_problems(problems);
  return resolution;
}

void throw_problems(const std::vector<std::string>& problems) {
  if (problems.empty()) return;
  fail_config(fmt::format("{}", fmt::join(problems, "\n")));
}

std::int64_t Options::bytes(std::string_view name) const {
  struct Unit {
    std::string_view suffix;
    int shift;
  };
  constexpr Unit kUnits[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}, {"", 0}};
  const std::string_view text = this->text(name);
  std::int64_t count = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view suffix = text.substr(end - text.data());
  for (const Unit& unit : kUnits) {
    if (code != std::errc() || suffix != unit.suffix) continue;
    if (count < 1 || count > std::numeric_limits<std::int64_t>::max() >> unit.shift) break;
    return count << unit.shift;
  }
  fail_config(fmt::format(
      "{} = '{}': expected a number of bytes above 0 as a whole number with KiB, MiB, GiB, TiB or nothing "
      "after it: \"64MiB\"",
      name, config::printable(text)));
}

TENON_ABI_END
