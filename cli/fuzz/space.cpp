#include "fuzz/space.hpp"

#include "config/run_schema.hpp"
#include "config/words.hpp"
#include "fuzz/draws.hpp"
#include "fuzz/option_values.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <utility>

namespace tenon::fuzz {
namespace {

constexpr std::int64_t kMostRanks = 4;

/// How often a component is drawn until it can be made.
constexpr int kComponentDraws = 40;

/// An attempt to draw a composition that `check` accepts.
struct Attempt {
  double options,
      sizes;    ///< shares of the options of components, and of the model and its data, that are drawn
  bool plain;   ///< without the parts that a run can do without
  bool server;  ///< with a server in any case
  bool alone;   ///< one replica, which accepts what several refuse
  bool other_base;
  double turns;      ///< share of the components that take turns; the others are drawn, or left out
  std::size_t kept;  ///< components of the pair that stay
};
/// In order: with the composition's own base, with other ones, and at last without its pair.
constexpr Attempt kAttemptsWithOwnBase[] = {
    {0.4, 0.06, false, false, false, false, 1, 2}, {0.2, 0, false, true, false, false, 1, 2},
    {0.3, 0, false, false, false, false, 0.8, 2},  {0.15, 0, true, false, true, false, 0.8, 2},
    {0, 0, true, false, false, false, 0.7, 2},     {0.1, 0, true, true, false, false, 0.7, 2},
};
constexpr Attempt kLastAttempts[] = {
    {0.2, 0, true, false, false, true, 0.3, 1}, {0.1, 0, true, true, false, true, 0.3, 1},
    {0.2, 0, true, false, false, true, 0.4, 0}, {0.1, 0, true, true, false, true, 0.3, 0},
    {0.1, 0, true, false, false, true, 0.2, 0}, {0, 0, true, false, true, true, 0.1, 0},
};

Attempt attempt_of(int attempt) {
  constexpr int kFirst = std::size(kAttemptsWithOwnBase), kLast = std::size(kLastAttempts);
  if (attempt < kFirst) return kAttemptsWithOwnBase[attempt];
  if (attempt >= Space::kAttempts - kLast) return kLastAttempts[attempt - (Space::kAttempts - kLast)];
  const int number = attempt - kFirst;
  return {std::array{0.2, 0.1, 0.3, 0.0}[static_cast<std::size_t>(number % 4)],
          0,
          true,
          number % 3 == 2,
          number % 3 == 1,
          true,
          number < 3 ? 0.6 : 0.3,
          2};
}

/// "optimizer/1" -> "optimizer".
std::string_view kind_word(std::string_view kind) {
  return kind.substr(0, kind.find('/'));
}

/// A kind that a run names in a table, and how the table is drawn.
struct DrawnKind {
  const char* kind;
  const char* table;
  const char* otherwise = nullptr;  ///< type of a required table that neither the base nor the draw has
};

/// Tables that hold one component each; tiers, observers and power are drawn by themselves.
constexpr DrawnKind kSingle[] = {
    {"device/1", "device", "cpu"}, {"precision/1", "precision"}, {"optimizer/1", "optimizer", "sgd"},
    {"schedule/1", "schedule"},    {"sync/1", "sync", "ddp"},    {"recovery/1", "recovery"},
};
/// Kinds that refuse much of what may stand beside them: a pair has one of theirs. Runs without row tables
/// have no tiers.
constexpr const char* kPairedWithRows[] = {"tier/1"};
constexpr const char* kPairedWithoutRows[] = {"recovery/1", "sync/1", "power/1"};
constexpr const char* kTaken[] = {"device/1",   "precision/1", "optimizer/1", "schedule/1", "sync/1",
                                  "recovery/1", "observer/1",  "tier/1",      "power/1"};

std::int64_t integer_at(const Value& root, std::string_view dotted, std::int64_t otherwise) {
  const Value* const value = find_member(root, dotted);
  return value == nullptr ? otherwise : value->integer();
}

/// Ranks of one replica.
std::int64_t mesh_of(const Value& root) {
  const Value* const grid = find_member(root, "parallel.grid");
  std::int64_t ranks = 1;
  if (grid != nullptr)
    for (const Value& axis : grid->array()) ranks *= axis.integer();
  return ranks;
}

/// The keys of the core that a component's table has beside its own.
Value core_part(const Value* table, std::string_view name) {
  Value kept;
  if (table == nullptr) return kept;
  for (const std::string& key : config::core_keys(name))
    if (const Member* const member = table->find_member(key)) kept.set(key, member->value, member->origin);
  return kept;
}

/// Whether its recovery policy saves anything.
bool saves(const Value& root) {
  const Value* const type = find_member(root, "recovery.type");
  return type != nullptr && type->text() != "none";
}

void draw_link(Value& root, Draws& draws, std::int64_t world, bool plain) {
  Value transport;
  transport.set("type", Value(std::string("thread")), {});
  // Sensors and fillers live in real time.
  if (!plain && root.find("power") == nullptr && draws.chance(0.35)) {
    Value clock;
    clock.set("type", Value(std::string("simulated")), {});
    clock.set("compute_seconds", Value(std::vector<double>{0.0, 0.001, 0.02}[draws.below(3)]), {});
    if (draws.chance(0.3))
      clock.set("backward_share", Value(std::vector<double>{0, 0.5, 1}[draws.below(3)]), {});
    if (draws.chance(0.3)) clock.set("optimizer_seconds", Value(0.001), {});
    if (draws.chance(0.3)) clock.set("mix_seconds", Value(0.001), {});
    if (draws.chance(0.3)) {
      Value::Array speed;
      for (std::int64_t rank = 0; rank < world; ++rank)
        speed.push_back(Value(std::vector<double>{0.5, 1, 2}[draws.below(3)]));
      clock.set("speed", Value(std::move(speed)), {});
    }
    transport.set("clock", std::move(clock), {});
  }
  if (!plain && draws.chance(0.25)) {
    Value link;
    if (draws.chance(0.5)) link.set("latency", Value(0.0001), {});
    if (draws.chance(0.5)) link.set("bandwidth", Value(std::vector<double>{1e7, 1e9}[draws.below(2)]), {});
    if (draws.chance(0.5)) link.set("jitter", Value(0.0001), {});
    transport.set("link", std::move(link), {});
  }
  if (!plain && draws.chance(0.15)) {
    Value straggler;
    straggler.set("ranks", Value(Value::Array{Value(draws.between(0, world - 1))}), {});
    const std::uint64_t kind = draws.below(4);
    straggler.set("kind", Value(std::vector<std::string>{"factor", "exponential", "pause", "link"}[kind]),
                  {});
    if (kind == 0) straggler.set("factor", Value(1.5), {});
    if (kind == 1) straggler.set("mean", Value(0.5), {});
    if (kind == 2) straggler.set("step", Value(draws.between(0, 5)), {});
    if (kind == 2) straggler.set("seconds", Value(0.01), {});
    if (kind == 3) straggler.set("factor", Value(0.5), {});
    transport.set("straggler", Value(Value::Array{std::move(straggler)}), {});
  }
  root.set("transport", std::move(transport), {});
}

/// Faults that a run lives with: slow ranks and links that come back.
void draw_fault(Value& root, Draws& draws, std::int64_t world, std::int64_t steps) {
  Value fault;
  fault.set("rank", Value(draws.between(0, world - 1)), {});
  fault.set("step", Value(draws.between(0, steps - 1)), {});
  fault.set("kind", Value(std::vector<std::string>{"slow", "hang", "link"}[draws.below(3)]), {});
  fault.set(
      "phase",
      Value(std::vector<std::string>{"slot", "forward", "backward", "collective", "update"}[draws.below(5)]),
      {});
  fault.set("seconds", Value(0.01), {});
  root.set("fault", Value(Value::Array{std::move(fault)}), {});
}

void add_components(const Value& table, std::string_view kind, const ComponentCatalog& catalog,
                    std::set<std::string>& found) {
  const Value* const type = table.find("type");
  if (type == nullptr || !type->is_text()) return;
  ComponentSchema schema;
  try {
    schema = catalog.describe(kind, type->text());
  } catch (const Error&) {
    return;
  }
  found.insert(schema.id);
  for (const tenon_option_v1* const spec : schema.options) {
    const Value* const inner = spec->type == TENON_OPTION_COMPONENT ? table.find(spec->name) : nullptr;
    if (inner == nullptr) continue;
    if (inner->is_array())
      for (const Value& one : inner->array()) add_components(one, spec->component_kind, catalog, found);
    else
      add_components(*inner, spec->component_kind, catalog, found);
  }
}

/// All tables at a path such as "tables.place.tier", whose parts may be lists.
void visit_tables(const Value& from, std::string_view path, std::vector<const Value*>& found) {
  if (from.is_array()) {
    for (const Value& one : from.array()) visit_tables(one, path, found);
    return;
  }
  if (path.empty()) {
    found.push_back(&from);
    return;
  }
  const std::size_t dot = std::min(path.find('.'), path.size());
  const Value* const next = from.find(path.substr(0, dot));
  if (next != nullptr) visit_tables(*next, path.substr(std::min(dot + 1, path.size())), found);
}

}  // namespace

std::set<std::string> components_of(const Value& root, const ComponentCatalog& catalog) {
  std::set<std::string> found;
  for (const config::ComponentSection& section : config::component_sections()) {
    std::vector<const Value*> tables;
    visit_tables(root, section.table, tables);
    for (const Value* const table : tables) add_components(*table, section.kind, catalog, found);
  }
  return found;
}

Space::Space(Registry& registry, SpaceRequest request) : registry_(registry), request_(std::move(request)) {
  bases_ = request_.base ? std::vector<Base>{*request_.base} : small_bases(request_.folder);
  std::vector<std::string> known;
  for (const char* const kind : kTaken) known.emplace_back(kind_word(kind));
  for (const std::string& kind : request_.kinds) {
    if (std::find(known.begin(), known.end(), kind) == known.end())
      fail_config(fmt::format("tenon fuzz: --kinds: '{}' is none of {}{}", kind, fmt::join(known, ", "),
                              config::suggestion(kind, known)));
  }
  pairs_with_rows_ = pairs_of(true), pairs_without_rows_ = pairs_of(false);
}

bool Space::varies(std::string_view kind) const {
  if (request_.kinds.empty()) return true;
  return std::find(request_.kinds.begin(), request_.kinds.end(), kind_word(kind)) != request_.kinds.end();
}

std::string Space::turn(std::string_view kind, std::uint64_t index) const {
  const std::vector<std::string> ids = registry_.ids(kind);
  if (ids.empty()) return "";
  Draws round(request_.seed, fmt::format("fuzz.turns.{}", kind), index / ids.size());
  return ids[round.order(ids.size())[index % ids.size()]];
}

std::vector<std::string> Space::components() const {
  std::vector<std::string> all;
  for (const char* const kind : kTaken) {
    if (!varies(kind)) continue;
    for (const std::string& id : registry_.ids(kind)) {
      try {
        all.push_back(registry_.describe(kind, id).id);
      } catch (const Error&) {  // a plugin that cannot be loaded: compositions that name it are refused
        all.push_back(fmt::format("{}.{}", kind_word(kind), id));
      }
    }
  }
  return all;
}

Value Space::component(std::string_view kind, const std::string& type, OptionRequest& options,
                       const Value& kept) const {
  Value table = draw_component(kind, type, options, kept);
  for (int again = 1; request_.makes && again < kComponentDraws && !request_.makes(kind, table); ++again)
    table = draw_component(kind, type, options, kept);
  return table;
}

Space::Pairs Space::pairs_of(bool has_rows) const {
  const auto paired = has_rows ? std::span<const char* const>(kPairedWithRows)
                               : std::span<const char* const>(kPairedWithoutRows);
  Pairs pairs;
  std::set<std::string_view> done;
  for (const char* const kind : paired) {
    done.insert(kind);
    for (const char* const other : kTaken) {
      if (!varies(kind) || !varies(other) || done.count(other) > 0) continue;
      if (!has_rows && other == std::string_view("tier/1")) continue;
      for (const std::string& id : registry_.ids(kind))
        for (const std::string& other_id : registry_.ids(other))
          pairs.push_back({{kind, id}, {other, other_id}});
    }
  }
  return pairs;
}

std::vector<Space::Named> Space::kept_by(std::uint64_t index, int attempt) const {
  const Base& base = base_of(index, 0);
  // A user's run keeps what is its own.
  if (base.is_file || attempt_of(attempt).kept == 0) return {};
  const Pairs& pairs = base.has_rows ? pairs_with_rows_ : pairs_without_rows_;
  if (pairs.empty()) return {};
  // Pairs take turns among the compositions of their bases.
  const std::uint64_t round = index / bases_.size();
  const std::vector<std::size_t> order = order_of_bases(round);
  const auto alike = [&](std::size_t place) { return bases_[place].has_rows == base.has_rows; };
  const auto here = order.begin() + static_cast<std::ptrdiff_t>(index % bases_.size());
  const auto number = round * static_cast<std::uint64_t>(std::count_if(order.begin(), order.end(), alike)) +
                      static_cast<std::uint64_t>(std::count_if(order.begin(), here, alike));
  Draws draws(request_.seed, fmt::format("fuzz.pairs.{}", base.has_rows ? "rows" : "plain"),
              number / pairs.size());
  const auto& [first, second] = pairs[draws.order(pairs.size())[number % pairs.size()]];
  return attempt_of(attempt).kept == 1 ? std::vector{first} : std::vector{first, second};
}

std::string Space::choice(std::string_view kind, std::uint64_t index, int attempt,
                          const std::vector<Named>& kept) const {
  if (!varies(kind)) return "";
  for (const auto& [kept_kind, id] : kept)
    if (kept_kind == kind) return id;
  Draws draws(request_.seed, fmt::format("fuzz.choice.{}.{}", kind, attempt), index);
  if (draws.chance(attempt_of(attempt).turns)) return turn(kind, index);
  const std::vector<std::string> ids = registry_.ids(kind);
  return ids.empty() || draws.chance(0.5) ? "" : draws.one_of(ids);
}

std::vector<std::size_t> Space::order_of_bases(std::uint64_t round) const {
  return Draws(request_.seed, "fuzz.turns.base", round).order(bases_.size());
}

const Base& Space::base_of(std::uint64_t index, int attempt) const {
  const Base& own = bases_[order_of_bases(index / bases_.size())[index % bases_.size()]];
  if (!attempt_of(attempt).other_base) return own;
  Draws draws(request_.seed, fmt::format("fuzz.base.{}", attempt), index);
  std::vector<const Base*> all;
  for (const Base& base : bases_)
    if (attempt_of(attempt).kept == 0 || base.has_rows == own.has_rows) all.push_back(&base);
  return *draws.one_of(all);
}

Composition Space::draw(std::uint64_t index, int attempt) const {
  const Base& base = base_of(index, attempt);
  Composition drawn{index, base.name, base.root};
  const std::vector<Named> kept = kept_by(index, attempt);
  draw_components(drawn.root, base, index, attempt, kept);
  draw_tables(drawn.root, base, index, attempt, kept);
  draw_core(drawn.root, base, index, attempt);
  return drawn;
}

void Space::draw_components(Value& root, const Base& base, std::uint64_t index, int attempt,
                            const std::vector<Named>& kept) const {
  Draws draws(request_.seed, fmt::format("fuzz.components.{}", attempt), index);
  OptionRequest options{registry_, draws, attempt_of(attempt).options, 2, request_.folder};
  // Options of the model and its data, rarely: most of them are sizes that must fit one another.
  options.share = attempt_of(attempt).sizes;
  for (const auto& [table, kind] : {std::pair("data", "dataset/1"), std::pair("model", "model/1")}) {
    Value* const found = root.find(table);
    const Value* const type = found == nullptr ? nullptr : found->find("type");
    if (type == nullptr || base.is_file) continue;
    const std::string id = type->text();
    Value own = std::move(*found);
    *found = draw_component(kind, id, options, std::move(own));
  }
  // Data that keep what they have made would write beside the files of all runs.
  if (Value* const data = root.find("data"); data != nullptr && !base.is_file && !request_.folder.empty()) {
    for (const tenon_option_v1* const spec :
         registry_.describe("dataset/1", data->find("type")->text()).options)
      if (spec->name == std::string_view("cache")) data->set("cache", Value(request_.folder), {});
  }
  options.share = attempt_of(attempt).options;
  for (const DrawnKind& one : kSingle) {
    const bool keeps = base.is_file && root.find(one.table) != nullptr && draws.chance(0.5);
    const std::string id = choice(one.kind, index, attempt, kept);
    if (keeps || id.empty()) {
      if (one.otherwise != nullptr && root.find(one.table) == nullptr)
        set_member(root, fmt::format("{}.type", one.table), Value(std::string(one.otherwise)));
      continue;
    }
    root.set(one.table, component(one.kind, id, options, core_part(root.find(one.table), one.table)), {});
  }
}

void Space::draw_tables(Value& root, const Base& base, std::uint64_t index, int attempt,
                        const std::vector<Named>& kept) const {
  Draws draws(request_.seed, fmt::format("fuzz.tables.{}", attempt), index);
  OptionRequest options{registry_, draws, attempt_of(attempt).options, 2, request_.folder};
  const auto is_kept = [&](std::string_view kind) {
    return std::any_of(kept.begin(), kept.end(), [&](const Named& one) { return one.first == kind; });
  };
  if (const std::string first = choice("observer/1", index, attempt, kept); !first.empty()) {
    const std::uint64_t least = is_kept("observer/1") ? 1 : 0;
    const std::uint64_t count = std::max(least, std::vector<std::uint64_t>{0, 1, 1, 2, 3}[draws.below(5)]);
    const std::vector<std::string> ids = registry_.ids("observer/1");
    Value::Array observers;
    std::set<std::string> taken;
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::string id = i == 0 ? first : draws.one_of(ids);
      if (taken.insert(id).second) observers.push_back(component("observer/1", id, options));
    }
    if (!observers.empty()) root.set("observe", Value(std::move(observers)), {});
  }
  const std::string tier = choice("tier/1", index, attempt, kept);
  if (base.has_rows && !tier.empty() && (!base.is_file || draws.chance(0.25))) {
    Value place;
    place.set("match", Value(std::string("*")), {});
    place.set("tier", component("tier/1", tier, options), {});
    if (draws.chance(0.2))
      place.set("state", component("tier/1", draws.one_of(registry_.ids("tier/1")), options), {});
    Value tables;
    if (draws.chance(0.25)) {
      // The drawn tier has room for some of the rows, and the last one for the rest.
      Value some, rest;
      some.set("bytes", Value(std::vector<std::string>{"0B", "700B", "64KiB"}[draws.below(3)]), {});
      some.set("tier", *place.find("tier"), {});
      rest.set("bytes", Value(std::string("1GiB")), {});
      rest.set("tier", component("tier/1", "dram", options), {});
      tables.set("plan", Value(std::string("auto")), {});
      tables.set("budget", Value(Value::Array{std::move(some), std::move(rest)}), {});
    } else {
      tables.set("place", Value(Value::Array{std::move(place)}), {});
    }
    if (draws.chance(0.2)) tables.set("prefetch", Value(draws.between(0, 3)), {});
    root.set("tables", std::move(tables), {});
  }
  const std::string power = choice("power/1", index, attempt, kept);
  if (!power.empty() && (is_kept("power/1") || draws.chance(0.6))) {
    Value table;
    table.set(draws.chance(0.5) ? "source" : "actuator", component("power/1", power, options), {});
    root.set("power", std::move(table), {});
  }
}

void Space::draw_core(Value& root, const Base& base, std::uint64_t index, int attempt) const {
  Draws draws(request_.seed, fmt::format("fuzz.core.{}", attempt), index);
  const bool plain = attempt_of(attempt).plain;
  const std::int64_t mesh = mesh_of(root);
  const std::int64_t steps = std::vector<std::int64_t>{4, 6, 8, 8, 8, 11}[draws.below(6)];
  set_member(root, "run.steps", Value(steps));
  set_member(root, "run.eval_batches", Value(std::int64_t{1}));
  set_member(root, "run.on_nan", Value(std::string("continue")));
  set_member(root, "run.deadline", Value(kDeadline));
  set_member(root, "run.seed", Value(draws.between(0, 1000)));
  set_member(root, "run.log_every", Value(draws.between(1, 3)));
  if (!plain) {
    if (draws.chance(0.3)) set_member(root, "run.eval_every", Value(draws.between(0, 4)));
    if (draws.chance(0.2)) set_member(root, "run.evaluate_first", Value(true));
    if (draws.chance(0.3)) set_member(root, "run.accumulate", Value(draws.between(1, 3)));
    if (draws.chance(0.3))
      set_member(root, "run.clip", Value(std::vector<double>{0, 0.05, 1}[draws.below(3)]));
    if (draws.chance(0.15)) set_member(root, "run.seed_init", Value(draws.between(0, 9)));
    if (draws.chance(0.15)) set_member(root, "run.seed_order", Value(draws.between(0, 9)));
    if (draws.chance(0.15)) set_member(root, "run.seed_rounding", Value(draws.between(0, 9)));
  }
  set_member(root, "device.threads", Value(std::int64_t{!plain && draws.chance(0.15) ? 2 : 1}));

  const std::int64_t most = std::max<std::int64_t>(1, kMostRanks / mesh);
  std::int64_t ranks = std::min(most, std::vector<std::int64_t>{1, 2, 2, 2, 2, 3, 4}[draws.below(7)]);
  if (attempt_of(attempt).other_base) ranks = std::min<std::int64_t>(most, 2);
  if (attempt_of(attempt).alone) ranks = 1;
  if (base.is_file && draws.chance(0.5)) ranks = integer_at(root, "parallel.ranks", ranks);
  std::int64_t servers = !plain && draws.chance(0.1) ? draws.between(1, 2) : 0;
  if (attempt_of(attempt).server) servers = 1;
  if (base.is_file) servers = integer_at(root, "parallel.servers", servers);
  set_member(root, "parallel.ranks", Value(ranks));
  if (servers > 0) set_member(root, "parallel.servers", Value(servers));
  if (!plain && draws.chance(0.1)) set_member(root, "parallel.workers", Value(std::int64_t{2}));
  if (!plain && base.has_rows && draws.chance(0.15))
    set_member(root, "parallel.rows", Value(std::string("request")));
  if (!plain && varies("sync/1") && draws.chance(0.3))
    set_member(root, "sync.buffers",
               Value(std::vector<std::string>{"average", "local", "broadcast"}[draws.below(3)]));

  const std::int64_t world = ranks * mesh + servers;
  if (!base.is_file || root.find("transport") == nullptr) draw_link(root, draws, world, plain);
  if (!plain && draws.chance(0.1)) draw_fault(root, draws, world, steps);
  // A resume of a run that saves nothing begins anew, and shows nothing.
  if (varies("recovery/1") && root.find("recovery") == nullptr && draws.chance(0.75)) {
    set_member(root, "recovery.type", Value(std::string("full")));
    set_member(root, "recovery.every", Value(draws.between(1, 3)));
  }
  if (!plain && base.has_rows && draws.chance(0.1)) {
    Value emulate;
    emulate.set("hours", Value(std::vector<double>{1, 24}[draws.below(2)]), {});
    emulate.set("shards", Value(draws.between(1, 8)), {});
    // Without a policy that restores them, lost rows end the run, as they should.
    if (draws.chance(0.7) && saves(root)) {
      emulate.set("law", Value(std::vector<std::string>{"exponential", "gamma"}[draws.below(2)]), {});
      emulate.set("mtbf_hours", Value(12.0), {});
      emulate.set("at_least", Value(draws.between(0, 2)), {});
    }
    root.set("emulate", std::move(emulate), {});
  }
  if (!plain && !base.is_file && draws.chance(0.1)) {
    Value further;
    further.set("name", Value(std::string("other")), {});
    further.set("data", *root.find("data"), {});
    if (draws.chance(0.5)) further.set("every", Value(draws.between(0, 4)), {});
    root.set("evaluate", Value(Value::Array{std::move(further)}), {});
  }
}

}  // namespace tenon::fuzz
