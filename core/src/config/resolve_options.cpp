// A whole table against the options of one owner: unknown, missing, renamed and deprecated keys, defaults,
// and inner components depth first. Problems are collected, so that one run of `tenon check` shows all of
// them.
#include <tenon/config.hpp>

#include "config/key_path.hpp"
#include "config/option_check.hpp"
#include "config/suggest.hpp"

#include <fmt/format.h>

#include <algorithm>

TENON_ABI_BEGIN
namespace {

std::string short_kind(std::string_view kind) {
  return std::string(kind.substr(0, kind.find('/')));
}

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
    if (spec.type > TENON_OPTION_SECTIONS) {
      fail_plugin(fmt::format("{} declares option '{}' with the unknown type {}", request_.owner, spec.name,
                              spec.type));
    }
    const auto type = static_cast<tenon_option_type>(spec.type);
    const Member* member = given(spec);
    if (member == nullptr) {
      fill_in(spec, type);
      return;
    }
    if (type == TENON_OPTION_COMPONENT) return resolve_component(spec, *member);
    if (type == TENON_OPTION_SECTIONS) return resolve_sections(spec, *member);
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
    if (spec.default_toml == nullptr || type >= TENON_OPTION_COMPONENT || !problems_.empty()) {
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
    if (type == TENON_OPTION_PATH && !checked.shown.text().empty()) {
      try {
        checked.datum = resolve_data_path(checked.shown.text());
      } catch (const Error& error) {
        problem(checked.shown.origin,
                fmt::format("option '{}' of {}: {}", spec.name, request_.owner, error.what()));
        return;
      }
    }
    const Origin written = checked.shown.origin;
    result_.table.set(spec.name, std::move(checked.shown), key_origin);
    result_.options->store(spec.name, type, std::move(checked.datum));
    result_.options->set_origin(spec.name, written);
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
    const Value* type = table.find("type");
    if (type == nullptr || !type->is_text()) {
      problem(type == nullptr ? table.origin : type->origin,
              fmt::format("option '{}' of {} needs a 'type' in quotes: the name of a component of kind {}",
                          spec.name, request_.owner, short_kind(spec.component_kind)));
      return;
    }
    if (request_.catalog == nullptr) {
      fail_plugin(fmt::format("option '{}' of {} is a component, but none can be looked up here", spec.name,
                              request_.owner));
    }
    ComponentSchema schema;
    try {
      schema = request_.catalog->describe(spec.component_kind, type->text());
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::kConfig) throw;
      problem(type->origin, error.what());
      return;
    }
    Resolution inner =
        resolve_options(component_request(table, std::move(schema), request_.catalog), problems_);
    result_.warnings.insert(result_.warnings.end(), inner.warnings.begin(), inner.warnings.end());
    result_.table.set(spec.name, std::move(inner.table), member.origin);
    InnerComponent made;
    made.kind = spec.component_kind;
    made.type = type->text();
    made.options = std::move(inner.options);
    result_.options->store(spec.name, std::move(made));
    result_.options->set_origin(spec.name, member.value.origin);
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
      OptionRequest inner{
          .table = section.value,
          .owner = fmt::format("{}.{}.{}", request_.owner, spec.name, config::quoted(section.key)),
          .specs = option_list(spec.section_options),
          .hint = request_.hint,
          .catalog = nullptr};
      Resolution resolved = resolve_options(inner, problems_);
      result_.warnings.insert(result_.warnings.end(), resolved.warnings.begin(), resolved.warnings.end());
      shown.set(section.key, std::move(resolved.table), section.origin);
      sections.emplace_back(section.key, std::move(resolved.options));
    }
    result_.table.set(spec.name, std::move(shown), member.origin);
    result_.options->store(spec.name, std::move(sections));
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

TENON_ABI_END
