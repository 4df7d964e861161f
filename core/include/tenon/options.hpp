// Options of a component: how it declares them (constexpr specs) and how it reads them (validated values).
// The core validates TOML against the specs before `create`, so a component never sees an unknown key, a
// wrong type or a value out of range, and every default is filled in.
#pragma once

#include <tenon/abi.hpp>
#include <tenon/error.hpp>

#include <array>
#include <cstddef>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

TENON_ABI_BEGIN

/// Read-only, resolved options of one component. Views live as long as the component.
/// Asking for a name that the component did not declare is the author's mistake and throws Error(kPlugin).
class Options {
 public:
  virtual ~Options();
  /// False only for an option without default that the user left out.
  virtual bool has(std::string_view name) const = 0;
  virtual bool boolean(std::string_view name) const = 0;
  virtual std::int64_t integer(std::string_view name) const = 0;
  virtual double real(std::string_view name) const = 0;
  virtual std::string_view text(std::string_view name) const = 0;  ///< text, path (already resolved)
  virtual std::span<const std::int64_t> integers(std::string_view name) const = 0;
  virtual std::span<const double> reals(std::string_view name) const = 0;
  virtual std::span<const std::string_view> texts(std::string_view name) const = 0;  ///< texts, paths
  /// The inner component of a component(kind) option, made by the core and owned by it; it outlives the
  /// caller. Null when the option is optional and absent. Prefer the typed form below.
  virtual void* component_pointer(std::string_view name, std::string_view kind) const = 0;
  /// The names that the user gave to the tables of a sections option, in the order of the files; empty when
  /// there are none.
  virtual std::span<const std::string_view> section_names(std::string_view name) const = 0;
  /// One of these tables; an option of it has a value when the user set it, or when it has a default. The
  /// tables of a tables option are called "0", "1", ...
  virtual const Options& section(std::string_view name, std::string_view section) const = 0;

  /// A text option that counts bytes: "2GiB", "64MiB", "4096". Throws Error(kConfig) that names the option
  /// for other texts, and for 0.
  std::int64_t bytes(std::string_view name) const;

  /// The tables of a tables option, in the order of the file; empty when there are none.
  std::vector<const Options*> tables(std::string_view name) const {
    std::vector<const Options*> all;
    for (const std::string_view index : section_names(name)) all.push_back(&section(name, index));
    return all;
  }

  /// Returns the value that the name of a text option stands for: see option::choice.
  template <typename Choices>
  auto choice(std::string_view name, const Choices& choices) const {
    return choices.of(text(name));
  }
  /// Inner component as its interface, e.g. options.component<Sync>("inner").
  template <typename Interface>
  Interface* component(std::string_view name) const {
    return static_cast<Interface*>(component_pointer(name, Interface::kKind));
  }
  /// The inner components of a components(kind) option, in the order of the file; empty when there are none.
  template <typename Interface>
  std::vector<Interface*> components(std::string_view name) const {
    std::vector<Interface*> all;
    for (const std::string_view index : section_names(name)) {
      const std::string one = std::string(name) + "." + std::string(index);
      all.push_back(static_cast<Interface*>(component_pointer(one, Interface::kKind)));
    }
    return all;
  }
};

/// The names that a text option may have, with their values; made by option::choice.
template <typename Value, std::size_t Count>
struct Choices {
  std::array<const char*, Count + 1> names;  ///< null-terminated
  std::array<Value, Count> values;

  Value of(std::string_view name) const {
    for (std::size_t i = 0; i < Count; ++i)
      if (name == names[i]) return values[i];
    fail_plugin("a choice has no '" + std::string(name) + "'; declare the option with one_of(choices)");
  }
  const char* name(Value value) const {
    for (std::size_t i = 0; i < Count; ++i)
      if (value == values[i]) return names[i];
    fail_plugin("a choice has a value without a name");
  }
};

/// Declares one option; chain the setters, e.g. `real("lr", "1e-3").at_least(0).doc("learning rate")`.
class OptionSpec : public tenon_option_v1 {
 public:
  constexpr OptionSpec(tenon_option_type option_type, const char* option_name, const char* default_value)
      : tenon_option_v1{sizeof(tenon_option_v1),
                        static_cast<std::uint32_t>(option_type),
                        0u,
                        option_name,
                        default_value,
                        std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::quiet_NaN(),
                        nullptr,
                        "",
                        "",
                        "0.1.0",
                        nullptr,
                        nullptr,
                        nullptr,
                        0u} {}

  constexpr OptionSpec at_least(double bound) const {
    OptionSpec s = *this;
    s.min = bound;
    return s;
  }
  constexpr OptionSpec at_most(double bound) const {
    OptionSpec s = *this;
    s.max = bound;
    return s;
  }
  constexpr OptionSpec between(double low, double high) const { return at_least(low).at_most(high); }
  /// For a list: it has exactly `count` entries.
  constexpr OptionSpec length(std::uint32_t count) const {
    OptionSpec s = *this;
    s.tenon_option_v1::length = count;
    return s;
  }
  /// `list` is a NULL-terminated static array.
  constexpr OptionSpec one_of(const char* const* list) const {
    OptionSpec s = *this;
    s.choices = list;
    return s;
  }
  /// `choices` is static.
  template <typename Value, std::size_t Count>
  constexpr OptionSpec one_of(const Choices<Value, Count>& choices) const {
    return one_of(choices.names.data());
  }
  constexpr OptionSpec in_unit(const char* text) const {
    OptionSpec s = *this;
    s.unit = text;
    return s;
  }
  constexpr OptionSpec doc_text(const char* text) const {
    OptionSpec s = *this;
    s.doc = text;
    return s;
  }
  constexpr OptionSpec added_in(const char* version) const {
    OptionSpec s = *this;
    s.since = version;
    return s;
  }
  constexpr OptionSpec mandatory() const {
    OptionSpec s = *this;
    s.flags |= TENON_OPTION_REQUIRED;
    return s;
  }
  /// For a path: what it names may be made after the configuration was checked. Where nothing is found it
  /// counts from the working directory.
  constexpr OptionSpec made_later() const {
    OptionSpec s = *this;
    s.flags |= TENON_OPTION_LATER;
    return s;
  }
  constexpr OptionSpec formerly(const char* const* names) const {
    OptionSpec s = *this;
    s.old_names = names;
    return s;
  }
  constexpr OptionSpec of_kind(const char* kind) const {
    OptionSpec s = *this;
    s.component_kind = kind;
    return s;
  }
  constexpr OptionSpec holding(const tenon_option_v1* const* options) const {
    OptionSpec s = *this;
    s.section_options = options;
    return s;
  }
};

/// Builders. `default_toml` is written as in TOML; nullptr means absent unless given.
namespace option {
constexpr OptionSpec boolean(const char* name, const char* default_toml) {
  return {TENON_OPTION_BOOL, name, default_toml};
}
constexpr OptionSpec integer(const char* name, const char* default_toml) {
  return {TENON_OPTION_INT, name, default_toml};
}
constexpr OptionSpec real(const char* name, const char* default_toml) {
  return {TENON_OPTION_REAL, name, default_toml};
}
constexpr OptionSpec text(const char* name, const char* default_toml) {
  return {TENON_OPTION_TEXT, name, default_toml};
}
constexpr OptionSpec path(const char* name, const char* default_toml) {
  return {TENON_OPTION_PATH, name, default_toml};
}
constexpr OptionSpec integers(const char* name, const char* default_toml) {
  return {TENON_OPTION_INT_LIST, name, default_toml};
}
constexpr OptionSpec reals(const char* name, const char* default_toml) {
  return {TENON_OPTION_REAL_LIST, name, default_toml};
}
constexpr OptionSpec texts(const char* name, const char* default_toml) {
  return {TENON_OPTION_TEXT_LIST, name, default_toml};
}
/// Several paths, read by Options::texts.
constexpr OptionSpec paths(const char* name, const char* default_toml) {
  return {TENON_OPTION_PATH_LIST, name, default_toml};
}
/// The same under names: "NAME=PATH" each. PATH may end in ":/PART", which names something inside the file.
constexpr OptionSpec named_paths(const char* name, const char* default_toml) {
  OptionSpec s = paths(name, default_toml);
  s.flags |= TENON_OPTION_NAMED;
  return s;
}
/// Names for one_of, with their values:
///   static constexpr auto kForms = option::choice<Form>({{"pencil", Form::kPencil}, {"slab", Form::kSlab}});
///   option::text("form", "\"pencil\"").one_of(kForms)      ...      options.choice("form", kForms)
template <typename Value, std::size_t Count>
constexpr Choices<Value, Count> choice(const std::pair<const char*, Value> (&choices)[Count]) {
  Choices<Value, Count> table{};
  for (std::size_t i = 0; i < Count; ++i) {
    table.names[i] = choices[i].first;
    table.values[i] = choices[i].second;
  }
  return table;
}
/// An inner component, created from the nested table of this name.
constexpr OptionSpec component(const char* name, const char* kind) {
  return OptionSpec(TENON_OPTION_COMPONENT, name, nullptr).of_kind(kind);
}
/// An array of tables [[kind.name]], each of which is an inner component: read by Options::components.
constexpr OptionSpec components(const char* name, const char* kind) {
  OptionSpec s = component(name, kind);
  s.flags |= TENON_OPTION_LIST;
  return s;
}

namespace detail {
template <std::size_t Count>
struct OptionPointers {
  const tenon_option_v1* list[Count + 1] = {};
  constexpr explicit OptionPointers(const OptionSpec (&specs)[Count]) {
    for (std::size_t i = 0; i < Count; ++i) list[i] = &specs[i];
  }
};
template <const auto& Specs>
inline constexpr OptionPointers kOptionPointers{Specs};
}  // namespace detail

/// Tables [kind.name."..."] under names that the user chooses (patterns, groups), each of which may hold the
/// options of `Specs`, a static constexpr array: option::sections<kSiteOptions>("site").
template <const auto& Specs>
constexpr OptionSpec sections(const char* name) {
  return OptionSpec(TENON_OPTION_SECTIONS, name, nullptr).holding(detail::kOptionPointers<Specs>.list);
}
/// An array of tables [[kind.name]], each of which may hold the options of `Specs`, a static constexpr array:
/// option::tables<kPhaseOptions>("phase"), read by Options::tables.
template <const auto& Specs>
constexpr OptionSpec tables(const char* name) {
  return OptionSpec(TENON_OPTION_TABLES, name, nullptr).holding(detail::kOptionPointers<Specs>.list);
}
}  // namespace option

/// Whether `pattern`, as configurations and command lines write it ("h.*.mlp.*"), describes all of `name`: *
/// stands for any characters, also none, and ? for one character.
constexpr bool matches_pattern(std::string_view pattern, std::string_view name) noexcept {
  // Position after the last star, and the position in the name when the star was reached: retry there with
  // one character more.
  std::size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      from = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

TENON_ABI_END
