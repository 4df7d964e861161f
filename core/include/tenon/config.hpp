// Configuration: TOML values that know where they come from, files layered over one another, and the check of
// a table against option specs. It serves DESIGN 5; it knows no section and no plugin by name.
//
// A command uses it as follows for a file of its own kind, e.g. an experiment:
//
//   Config file = Config::load("experiments/rounding.toml", sets);
//   OptionRequest request{.table = file.root(), .owner = "experiment", .specs = option_list(kSpecs),
//                         .other_keys = {"arm", "budget"}};  // tables that are checked on their own
//   Resolution top = resolve_options(request);  // throws one Error(kConfig) with every problem
//   std::string metric(top.options->text("metric"));
//
// and for an arm, whose own files are layered over the base: Config::load(base, the arm's set, the arm's
// extends).
#pragma once

#include <tenon/error.hpp>
#include <tenon/options.hpp>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

TENON_ABI_BEGIN

/// Place where a value was written. Lines and columns count from 1; 0 = not from a file.
struct Origin {
  std::string file;  ///< path as reached from the working directory, "--set a.b=c", or "default"
  int line = 0;
  int column = 0;

  /// "configs/x.toml:14:9", "--set a.b=c" or "default".
  std::string text() const;
};

struct Member;

/// One TOML value with its origin and the earlier values that it replaced. Dates do not occur. A plain value
/// type: copying copies everything; equality compares data only (tables without regard to order, NaN equal to
/// NaN).
class Value {
 public:
  enum class Type : std::uint8_t { kBoolean, kInteger, kReal, kText, kArray, kTable };
  using Array = std::vector<Value>;
  using Table = std::vector<Member>;  ///< in order of first writing; keys are unique

  /// An earlier layer's value of the same key.
  struct Earlier {
    Origin origin;
    std::string text;       ///< the value as TOML on one line
    bool appended = false;  ///< true: the later layer added to this list instead of replacing it
  };

  Value();  ///< an empty table
  explicit Value(bool value);
  explicit Value(std::int64_t value);
  explicit Value(double value);
  explicit Value(std::string value);
  explicit Value(Array value);
  explicit Value(Table value);

  Type type() const;
  bool is_table() const { return type() == Type::kTable; }
  bool is_array() const { return type() == Type::kArray; }
  bool is_text() const { return type() == Type::kText; }

  /// Typed access; throws Error(kConfig) "<origin>: expected ..., found ..." on another type. real() takes
  /// integers.
  bool boolean() const;
  std::int64_t integer() const;
  double real() const;
  const std::string& text() const;
  const Array& array() const;
  Array& array();
  const Table& table() const;
  Table& table();

  /// Member of a table; null when absent or when this is no table.
  const Value* find(std::string_view key) const;
  Value* find(std::string_view key);
  const Member* find_member(std::string_view key) const;
  Member* find_member(std::string_view key);
  /// Adds or replaces a member of a table.
  Value& set(std::string_view key, Value value, Origin key_origin);
  void erase(std::string_view key);

  /// For error texts: `the string "fast"`, `the whole number 3`, `a table`.
  std::string description() const;
  /// The value as TOML on one line; tables inline.
  std::string inline_toml() const;

  friend bool operator==(const Value& a, const Value& b);

  Origin origin;
  std::vector<Earlier> earlier;  ///< oldest first

 private:
  std::variant<bool, std::int64_t, double, std::string, Array, Table> data_;
};

struct Member {
  std::string key;
  Origin origin;  ///< of the key; the value's own position is value.origin
  Value value;
};

/// A layered configuration. Layers, lowest first: what `extends` names (left to right, depth first, each file
/// once, found as resolve_path() does), the file itself, further files, all `--set` together. Tables
/// merge, scalars replace, lists replace unless the key is written "+key". A layer that changes the `type` of
/// a table drops the keys that earlier layers wrote for the old type; keys of the core ([sync] buffers) stay
/// (docs/decisions/0002-layers-and-type-changes.md).
class Config {
 public:
  /// A value that a change of `type` removed.
  struct Dropped {
    std::string key;  ///< dotted
    Value value;
    Origin cause;  ///< where the new type is written
  };

  Config() = default;
  /// `sets` as on the command line: "a.b=c", the value in TOML or else a bare string. `over`: files layered
  /// over the first one, each with its own extends. Throws Error(kConfig): unreadable, syntax, missing or
  /// cyclic extends (with the chain), dates, bad --set.
  static Config load(const std::string& path, const std::vector<std::string>& sets);
  static Config load(const std::string& path, const std::vector<std::string>& sets,
                     const std::vector<std::string>& over);
  /// `name` replaces the path in origins and as the base of relative extends.
  static Config parse(std::string_view text, const std::string& name, const std::vector<std::string>& sets);

  const Value& root() const { return root_; }
  /// The files that were read, in the order in which they apply.
  const std::vector<std::string>& files() const { return files_; }
  const std::vector<Dropped>& dropped() const { return dropped_; }
  /// The same history around another root, e.g. the one with defaults filled in.
  Config with_root(Value root) const;

  /// Looks up "precision.type" or "observe[0].type"; null when absent. Throws Error(kConfig) on a malformed
  /// key.
  const Value* find(std::string_view dotted) const;
  /// Returns what set a key, and what that overrode, one line per layer, latest first; for a table every leaf
  /// under it. For an absent key it says so, with a suggestion or with the change of type that removed it.
  std::string explain(std::string_view dotted) const;
  /// A line for each value that a change of `type` dropped, with its place. Where the new type has the key,
  /// too, the line ends in what it is now; `shared_only`: those alone, e.g. rates that two optimizers do not
  /// share.
  std::vector<std::string> dropped_lines(bool shared_only) const;

 private:
  Config(Value root, std::vector<std::string> files, std::vector<Dropped> dropped);

  Value root_;
  std::vector<std::string> files_;
  std::vector<Dropped> dropped_;
};

/// The value that `text` writes in TOML, e.g. "[0.9, 0.999]"; throws Error(kConfig) with `origin`.
Value parse_value(std::string_view text, const Origin& origin);
/// Returns a dotted key for messages and lookups; parts that are not bare keys are quoted.
std::string join_key(std::string_view parent, std::string_view key);
/// Canonical TOML, with the origin of each value as trailing comment if asked; parses back to an equal value.
std::string to_toml(const Value& root, bool with_origins);
/// "a.b[0].c" -> value as TOML; an empty list or table counts as a leaf.
std::map<std::string, std::string> flatten(const Value& root);

struct Difference {
  std::string key;
  std::string left;  ///< "" = absent there
  std::string right;
};
/// Leaves in which two configurations differ, sorted by key.
std::vector<Difference> differences(const Value& left, const Value& right);

/// Finds the file or folder that a configuration names: an absolute path, else beside the file that says it
/// (`written`), else under the working directory, else under data_directories(). Options of paths are found
/// so before a component is made. Returns an absolute path; throws Error(kConfig) that lists every place
/// tried.
std::string resolve_path(const std::string& text, const Origin& written = {});
/// TENON_DATA_DIR if set, and share/tenon of this installation; in a build tree, the source tree.
std::vector<std::string> data_directories();

using OptionList = std::vector<const tenon_option_v1*>;
OptionList option_list(std::span<const OptionSpec> specs);
OptionList option_list(const tenon_option_v1* const* null_terminated);

/// Id and options of a component named in a table.
struct ComponentSchema {
  std::string id;  ///< as errors name it and `tenon inspect` takes it: "KIND.ID"
  OptionList options;
};

/// Tells the check which options an inner component has. The registry answers in a run, a fake one in a test.
class ComponentCatalog {
 public:
  virtual ~ComponentCatalog();
  /// kind "optimizer/1", type as written; throws Error(kConfig) with suggestions when nothing of that type
  /// exists.
  virtual ComponentSchema describe(std::string_view kind, std::string_view type) const = 0;
};

class ResolvedOptions;

/// The validated inner component of a component(kind) option, before and after its creation.
struct InnerComponent {
  std::string kind;
  std::string type;
  std::unique_ptr<ResolvedOptions> options;
  std::unique_ptr<void, void (*)(void*)> instance{nullptr, nullptr};  ///< null until the component is made
};

/// Options of one component, read from a table and complete. It owns its inner components, so it must outlive
/// the component made from it.
class ResolvedOptions final : public Options {
 public:
  using Datum = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<std::string>>;

  /// One table of a sections option, under the user's name for it, or of a tables option, under its index.
  using Section = std::pair<std::string, std::unique_ptr<ResolvedOptions>>;

  explicit ResolvedOptions(std::string owner);
  ~ResolvedOptions() override;

  bool has(std::string_view name) const override;
  bool boolean(std::string_view name) const override;
  std::int64_t integer(std::string_view name) const override;
  double real(std::string_view name) const override;
  std::string_view text(std::string_view name) const override;
  std::span<const std::int64_t> integers(std::string_view name) const override;
  std::span<const double> reals(std::string_view name) const override;
  std::span<const std::string_view> texts(std::string_view name) const override;
  void* component_pointer(std::string_view name, std::string_view kind) const override;
  std::span<const std::string_view> section_names(std::string_view name) const override;
  const Options& section(std::string_view name, std::string_view section) const override;

  /// The same options, for another component: inner components are not made yet.
  std::unique_ptr<ResolvedOptions> unmade() const;

  const std::string& owner() const { return owner_; }
  /// Sets where the table is written.
  void set_origin(const Origin& table) { origin_ = table; }
  /// Sets where a declared option is written.
  void set_origin(std::string_view name, const Origin& origin);
  /// For errors that a component finds after the check. Returns where the option that `message` names is
  /// written, else where the table is; as Origin::text, "" when neither is known.
  std::string place_of(std::string_view message) const;
  /// Declares an option that has no value.
  void declare(std::string_view name, tenon_option_type type);
  void store(std::string_view name, tenon_option_type type, Datum datum);
  void store(std::string_view name, InnerComponent inner);
  void store(std::string_view name, tenon_option_type type, std::vector<Section> tables);
  /// Inner components in the order of their specs, by option name.
  std::vector<std::pair<std::string, InnerComponent*>> inner();

 private:
  struct Entry;
  const Entry& entry(std::string_view name, tenon_option_type type) const;
  const Entry* look_up(std::string_view name) const;

  std::string owner_;
  Origin origin_;
  std::vector<std::unique_ptr<Entry>> entries_;  // addresses stay put: views point into them
};

/// One table to check against the options of one owner.
struct OptionRequest {
  const Value& table;
  std::string owner;  ///< "KIND.ID", or the section: "[run]"
  OptionList specs;
  std::vector<std::string> other_keys =
      {};                 ///< legal here, but read elsewhere: "type", core keys of the table
  std::string hint = {};  ///< ends the message on an unknown key: "see: tenon inspect KIND.ID"
  const ComponentCatalog* catalog = nullptr;  ///< needed only where a spec is a component
};

struct Resolution {
  std::unique_ptr<ResolvedOptions> options;
  Value table;                        ///< own keys only, defaults filled in, origins kept
  std::vector<std::string> warnings;  ///< old names, deprecated options
};

/// Checks a table and fills in defaults. Throws Error(kConfig) with one line per problem: unknown key (with
/// the nearest one), wrong type, out of range, not a choice, missing, old and new name together. A default
/// that does not satisfy its own spec is Error(kPlugin).
Resolution resolve_options(const OptionRequest& request);
/// The same without an error: adds problems to the list, and the result is usable only if none were added.
Resolution resolve_options(const OptionRequest& request, std::vector<std::string>& problems);
/// Request for the table of a component: owner, specs and hint from its schema, "type" among the other keys.
OptionRequest component_request(const Value& table, ComponentSchema schema, const ComponentCatalog* catalog);
/// Throws Error(kConfig) with one problem per line, unless the list is empty.
void throw_problems(const std::vector<std::string>& problems);

TENON_ABI_END
