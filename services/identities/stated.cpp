// Texts of identities as tables, and weights read back from checkpoints.
#include "identities/stated.hpp"

#include "config/layers.hpp"
#include "config/run_schema.hpp"
#include "config/words.hpp"
#include "plugin/descriptor.hpp"
#include "plugin/guard.hpp"
#include "run/evaluated_weights.hpp"

#include <tenon/checkpoint.hpp>
#include <tenon/error.hpp>
#include <tenon/identities.hpp>
#include <tenon/optimizer.hpp>
#include <tenon/recovery.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

namespace tenon::identities {
namespace {

/// Bounds of smaller tensors are those of a tensor whose largest weight is this share of the model's. A bias
/// that begins at zero is its first gradient, and a gradient jumps where a unit is at the kink of its
/// activation: relative to the bias itself no bound would hold.
constexpr double kSmallTensor = 0.1;

std::unique_ptr<ResolvedOptions> resolved(Registry& registry, std::string_view kind, const Value& table,
                                          Value* complete = nullptr) {
  OptionRequest request =
      component_request(table, registry.describe(kind, table.find("type")->text()), &registry);
  for (std::string& key : config::core_keys(config::kind_name(kind)))
    request.other_keys.push_back(std::move(key));
  Resolution resolution = resolve_options(request);
  if (complete != nullptr) *complete = std::move(resolution.table);
  return std::move(resolution.options);
}

Value typed(std::string_view type) {
  Value table;
  table.set("type", Value(std::string(type)), {});
  return table;
}

/// The texts of one identity, read.
class Reader {
 public:
  Reader(Registry& registry, std::string_view kind, const std::string& type, std::string name)
      : registry_(registry), kind_(kind), type_(type), name_(std::move(name)) {}

  Stated read(const Identity& identity) const {
    Stated stated{.why = std::string(identity.why),
                  .own = table("options", identity.options),
                  .other = table("other", identity.other),
                  .given = table("given", identity.given),
                  .within = identity.within};
    if (stated.why.empty()) fail("'why' is empty; expected the reason in one sentence");
    if (!std::isfinite(stated.within) || stated.within < 0)
      fail(fmt::format("'within' is {}; expected 0 for equal bits, or a positive bound", stated.within));
    if (stated.within > 0 && kind_ == Recovery::kKind)
      fail(fmt::format("'within' is {}; no recovery may change a weight where nothing fails: expected 0",
                       stated.within));
    if (stated.own.find("type") != nullptr)
      fail(fmt::format("'options' has a type; it holds options of '{}' alone", type_));
    const Value options = std::exchange(stated.own, typed(type_));
    for (const Member& member : options.table()) stated.own.set(member.key, member.value, member.origin);
    const Value* const other = stated.other.find("type");
    if (other == nullptr || !other->is_text()) fail("'other' has no type; expected a line type = \"...\"");
    const auto tables = config::top_level_tables();
    for (const Member& member : stated.given.table()) {
      if (std::find(tables.begin(), tables.end(), member.key) == tables.end())
        fail(fmt::format("'given' has '{}'; expected keys of a run such as optimizer.type = \"sgd\"{}",
                         member.key, config::suggestion(member.key, tables)));
    }
    const Value own = complete("options", stated.own), replaced = complete("other", stated.other);
    if (other->text() == type_ && own == replaced)
      fail("'options' and 'other' are the same settings of one component; a run is not compared with itself");
    return stated;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { fail_plugin(fmt::format("{}: {}", name_, what)); }

  Value table(const char* text, std::string_view toml) const {
    try {
      return Config::parse(toml, text, {}).root();
    } catch (const Error& error) {
      fail(fmt::format("'{}' is no TOML: {}", text, error.what()));
    }
  }
  Value complete(const char* text, const Value& table) const {
    try {
      Value whole;
      resolved(registry_, kind_, table, &whole);
      return whole;
    } catch (const Error& error) {
      fail(fmt::format("'{}' are no options: {}", text, error.what()));
    }
  }

  Registry& registry_;
  std::string_view kind_;
  const std::string& type_;
  std::string name_;
};

Value least_value(Registry& registry, std::string_view kind, std::string_view type,
                  const tenon_option_v1& option) {
  const double least = std::isnan(option.min) ? 0 : option.min;
  const bool single = (option.flags & TENON_OPTION_LIST) == 0;
  if (option.type == TENON_OPTION_BOOL) return Value(false);
  if (option.type == TENON_OPTION_INT) return Value(static_cast<std::int64_t>(least));
  if (option.type == TENON_OPTION_REAL) return Value(least);
  if (option.type == TENON_OPTION_TEXT && option.choices != nullptr)
    return Value(std::string(option.choices[0]));
  if (option.type == TENON_OPTION_COMPONENT && single) {
    for (const std::string& id : registry.ids(option.component_kind)) {
      const auto specs = registry.describe(option.component_kind, id).options;
      const bool needs = std::any_of(specs.begin(), specs.end(), [](const tenon_option_v1* spec) {
        return (spec->flags & TENON_OPTION_REQUIRED) != 0;
      });
      if (needs) continue;
      return typed(id);
    }
  }
  fail_config(fmt::format("{}.{} cannot be made without option '{}', of which no value is known",
                          config::kind_name(kind), type, option.name));
}

/// The table at a dotted place; null if something on the way is none.
Value* table_at(Value& root, std::string_view place) {
  Value* at = &root;
  while (at != nullptr && !place.empty()) {
    const std::size_t dot = std::min(place.find('.'), place.size());
    at = at->is_table() ? at->find(place.substr(0, dot)) : nullptr;
    place.remove_prefix(std::min(dot + 1, place.size()));
  }
  return at != nullptr && at->is_table() ? at : nullptr;
}

Config side(const Config& base, const std::string& place, const Value& table, const Stated& identity) {
  Value root = base.root();
  const std::size_t dot = place.rfind('.');
  const std::string key = dot == std::string::npos ? place : place.substr(dot + 1);
  Value* const parent = table_at(root, dot == std::string::npos ? "" : place.substr(0, dot));
  if (parent == nullptr)
    fail_config(fmt::format("an identity of [{}]: the configuration has no table around it", place));
  Value replaced = table;
  if (const Value* const before = parent->find(key); before != nullptr && before->is_table()) {
    for (const std::string& kept : config::core_keys(place)) {
      if (const Member* const member = before->find_member(kept))
        replaced.set(kept, member->value, member->origin);
    }
  }
  parent->set(key, std::move(replaced), {});
  if (identity.within > 0)
    root.set("recovery", Config::parse("type = 'full'\nasync = false", "identities", {}).root(), {});
  std::vector<Config::Dropped> dropped;
  config::merge_tables(root, Value(identity.given), "", dropped);
  return base.with_root(std::move(root));
}

/// The weights of a run's newest checkpoint.
class EndWeights {
 public:
  EndWeights(FileSystem& files, const std::string& folder) {
    const CheckpointStore store(files, folder + "/checkpoints", {});
    const auto steps = store.generations();
    if (steps.empty()) fail_run(fmt::format("{} has no checkpoint to read weights from", folder));
    reader_ = store.open(steps.back());
    weights_ = train::stored_weights(*reader_, doubt_);
  }

  std::vector<std::string> names() const { return weights_.front().parameters(); }
  bool is_real(const std::string& name) const {
    const DType dtype = reader_->find(weights_.front().tensor(name))->dtype;
    return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kC64 || dtype == DType::kC128;
  }
  /// Real numbers as doubles; other types byte by byte.
  std::vector<double> read(const std::string& name) {
    const TensorSpec& stored = *reader_->find(weights_.front().tensor(name));
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(dtype_bytes(stored.dtype, stored.shape.elements())));
    TensorView view;
    view.data = bytes.data();
    view.dtype = stored.dtype;
    view.shape = stored.shape;
    reader_->read(stored.name, view);
    const TensorView reals = flat_reals(view);
    if (reals.dtype == DType::kF64) return doubles(reals.as<double>(), reals.elements());
    if (reals.dtype == DType::kF32) return doubles(reals.as<float>(), reals.elements());
    return doubles(reinterpret_cast<const std::uint8_t*>(bytes.data()),
                   static_cast<std::int64_t>(bytes.size()));
  }

 private:
  template <typename T>
  static std::vector<double> doubles(const T* values, std::int64_t count) {
    return {values, values + count};
  }

  std::optional<CheckpointReader> reader_;
  std::vector<train::StoredWeights> weights_;
  std::string doubt_;
};

double largest_of(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

/// |a - b| of the two elements that differ most; infinite where one is not finite.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(a[i] - b[i]);
    if (!std::isfinite(difference)) return INFINITY;
    most = std::max(most, difference);
  }
  return most;
}

}  // namespace

std::vector<Stated> stated_by(Registry& registry, Host& host, std::string_view kind, const Value& table) {
  const Value* const named = table.find("type");
  if (named == nullptr || !named->is_text())
    fail_config(fmt::format("identities of a component of kind {}: the table has no type", kind));
  const std::string& type = named->text();
  const auto options = resolved(registry, kind, table);
  registry.create_inner(*options, host);
  const ComponentHandle made = registry.create(kind, type, *options, host);
  auto* const states = static_cast<ComponentIdentities*>(made.query(ComponentIdentities::kId));
  if (states == nullptr) return {};
  const ComponentRef& ref = made.ref();
  const auto all = GuardedCall<ComponentIdentities>(states, {ref.plugin, ref.name})->identities();
  std::vector<Stated> read;
  for (const Identity& identity : all) {
    const Reader reader(registry, kind, type,
                        fmt::format("identity {} of {} in plugin {}", read.size() + 1, ref.name, ref.plugin));
    read.push_back(reader.read(identity));
  }
  return read;
}

Value needed_options(Registry& registry, std::string_view kind, std::string_view type) {
  Value table = typed(type);
  for (const tenon_option_v1* option : registry.describe(kind, type).options) {
    if ((option->flags & TENON_OPTION_REQUIRED) == 0 || option->default_toml != nullptr) continue;
    table.set(option->name, least_value(registry, kind, type, *option), {});
  }
  return table;
}

Sides sides_of(const Config& base, const std::string& place, const Stated& identity) {
  return {side(base, place, identity.own, identity), side(base, place, identity.other, identity)};
}

std::string difference(FileSystem& files, const RunResult& own, const RunResult& other, double within) {
  for (const RunResult* run : {&own, &other}) {
    if (run->status != "completed" || run->weights_hash.empty())
      return fmt::format("the run with {} ended as {}: {}",
                         run == &own ? "its own settings" : "the other table", run->status, run->error);
  }
  if (own.steps != other.steps)
    return fmt::format("one run has {} slots, the other {}", own.steps, other.steps);
  if (own.weights_hash == other.weights_hash) return "";
  if (within == 0)
    return fmt::format("weights_hash is {} with its own settings, {} with the other table", own.weights_hash,
                       other.weights_hash);
  EndWeights left(files, own.folder), right(files, other.folder);
  const std::vector<std::string> names = left.names();
  if (names != right.names()) return "the runs have other parameters";
  double largest = 0;
  std::vector<std::vector<double>> weights;
  for (const std::string& name : names) {
    weights.push_back(left.read(name));
    if (left.is_real(name)) largest = std::max(largest, largest_of(weights.back()));
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    const std::vector<double>& a = weights[i];
    const std::vector<double> b = right.read(name);
    if (a.size() != b.size()) return fmt::format("'{}' has {} elements and {}", name, a.size(), b.size());
    const double scale = std::max({largest_of(a), largest_of(b), kSmallTensor * largest});
    const double found = distance(a, b);
    if (!std::isfinite(found) || found > within * scale)
      return fmt::format("'{}' differs by {:.3g}, expected at most {:.3g} of {:.3g}", name, found, within,
                         scale);
  }
  return "";
}

}  // namespace tenon::identities
