// Accesses from a law or a record, the plan, and its tiers: a budget's own for whole tables, and for others
// the component `cached` over it, made as if the configuration named it.
#include "run/table_planner.hpp"

#include "record/run_folder.hpp"
#include "tables/table_record.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

namespace tenon::train {
namespace {

/// The tier that holds some rows of another one.
constexpr std::string_view kCached = "cached";
constexpr double kPercent = 100;

/// "cached (dram over file)"; "host memory" for the core's own.
std::string described(std::string_view type, ResolvedOptions* options) {
  if (type != kCached || options == nullptr) return std::string(type);
  std::string front = "host memory", behind = front;
  for (const auto& [name, inner] : options->inner())
    (name == "front" ? front : behind) = described(inner->type, inner->options.get());
  return fmt::format("cached ({} over {})", front, behind);
}

/// Shares of the rows that the caches of a tier hold, from the outermost on.
std::vector<double> load_factors(std::string_view type, ResolvedOptions* options) {
  if (type != kCached || options == nullptr) return {};
  std::vector<double> all{options->real("load_factor")};
  for (const auto& [name, inner] : options->inner()) {
    if (name != "behind") continue;
    for (const double factor : load_factors(inner->type, inner->options.get())) all.push_back(factor);
  }
  return all;
}

std::string size_text(std::int64_t bytes) {
  constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; size >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return fmt::format("{:.4g} {}", size, kUnits[unit]);
}

/// "1 table", "2 tables"
std::string counted(std::size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

std::string percent(double part, double whole) {
  return fmt::format("{:.1f} %", whole > 0 ? kPercent * part / whole : 0.0);
}

}  // namespace

TablePlanner::TablePlanner(const Setup& setup, std::span<const ParameterInfo> parameters)
    : with_(setup), settings_(setup.run.core.tables) {
  if (settings_.places.empty() && !settings_.plan) return;
  for (const ParameterInfo& info : parameters) {
    if (info.spec.role == Role::kRowTable) tables_.push_back(rows_of(info));
  }
  if (tables_.empty()) return;
  read_accesses(parameters);
  if (settings_.plan) plan();
}

TablePlanner::Rows TablePlanner::rows_of(const ParameterInfo& info) const {
  Rows table{.name = info.spec.name, .rows = info.local[0]};
  table.weight_bytes = dtype_bytes(info.spec.dtype, info.spec.shape[1]);
  auto* const by_rows = with_.parts.optimizer.offered<RowOptimizer>();
  if (by_rows != nullptr && info.spec.trainable) {
    for (const RowStateSlot& slot : with_.parts.optimizer.guarded(*by_rows)->row_slots())
      table.state_bytes += dtype_bytes(info.spec.dtype, slot.width == 0 ? info.spec.shape[1] : slot.width);
  }
  const auto place = std::find_if(
      settings_.places.begin(), settings_.places.end(),
      [&](const config::TablePlace& entry) { return matches_pattern(entry.match, info.spec.name); });
  if (place != settings_.places.end()) table.place = static_cast<int>(place - settings_.places.begin());
  return table;
}

// A shard of a table is taken to have its part of frequent rows: ids say nothing about frequencies.
void TablePlanner::read_accesses(std::span<const ParameterInfo> parameters) {
  RunTables record;
  if (!settings_.accesses.empty()) {
    counted_ = open_newest_attempt(with_.files, settings_.accesses).path;
    record = read_tables(with_.files, counted_);
  }
  std::size_t next = 0;
  for (const ParameterInfo& info : parameters) {
    if (info.spec.role != Role::kRowTable) continue;
    Rows& table = tables_[next++];
    const std::int64_t rows = info.spec.shape[0];
    if (counted_.empty()) {
      table.bands = power_law_bands(table.rows, settings_.power_law);
      for (RowBand& band : table.bands)
        band.accesses *= static_cast<double>(table.rows) / static_cast<double>(rows);
      continue;
    }
    const auto found = std::find_if(record.tables.begin(), record.tables.end(),
                                    [&](const TableFacts& facts) { return facts.name == table.name; });
    if (found == record.tables.end()) {
      std::vector<std::string> names;
      for (const TableFacts& facts : record.tables) names.push_back(facts.name);
      fail_config(fmt::format(
          "[tables] accesses: the record in {} has no table '{}'; it has: {}. Name a run of the same model",
          counted_, table.name, fmt::join(names, ", ")));
    }
    if (found->rows != rows) {
      fail_config(
          fmt::format("[tables] accesses: the record in {} has {} rows of table '{}', and this model has {}; "
                      "name a run of "
                      "the same model",
                      counted_, found->rows, table.name, rows));
    }
    const std::int64_t first = info.offset.rank() == 0 ? 0 : info.offset[0];
    table.bands = recorded_bands(*found, first, first + table.rows);
    per_sample_ = record.samples > 0;
    const auto units =
        static_cast<double>(std::max<std::int64_t>(1, per_sample_ ? record.samples : record.slots));
    for (RowBand& band : table.bands) band.accesses /= units;
  }
}

void TablePlanner::plan() {
  std::vector<PlannedTable> tables;
  for (std::size_t i = 0; i < tables_.size(); ++i) {
    const Rows& table = tables_[i];
    if (table.place >= 0 || table.rows == 0) continue;
    planned_.push_back(i);
    tables.push_back({table.name, table.rows, table.weight_bytes + table.state_bytes, table.bands});
  }
  std::vector<PlannedTier> tiers;
  for (std::size_t i = 0; i < settings_.budgets.size(); ++i) {
    const config::TableBudget& budget = settings_.budgets[i];
    tiers.push_back(
        {fmt::format("{}: [[tables.budget]] of {}", budget.origin.text(), tier_name(i)), budget.bytes});
  }
  plan_ = plan_tables(tables, tiers);
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    const Rows& table = tables_[planned_[i]];
    tiers_.emplace(table.name, make_tier(table, plan_->tables[i]));
  }
}

const Part<Tier>* TablePlanner::make_tier(const Rows& table, const TableHome& home) {
  const auto& budgets = with_.run.resolved.root().find("tables")->find("budget")->array();
  const auto tier_at = [&](std::size_t i) -> const Value& { return *budgets.at(i).find("tier"); };
  Value tier = tier_at(home.home);
  bool cached = false;
  for (std::size_t i = home.home; i-- > 0;) {
    if (home.cached[i] == 0) continue;
    cached = true;
    const Origin& origin = tier_at(i).origin;
    Value over;
    over.origin = origin;
    over.set("type", Value(std::string(kCached)), origin);
    over.set("load_factor", Value(static_cast<double>(home.cached[i]) / static_cast<double>(table.rows)),
             origin);
    over.set("policy", Value(std::string("lfu")), origin);
    over.set("front", tier_at(i), origin);
    over.set("behind", std::move(tier), origin);
    tier = std::move(over);
  }
  if (!cached) return &with_.parts.tiers.at(fmt::format("tables.budget[{}].tier", home.home));
  Resolution made = resolve_options(
      component_request(tier, with_.registry.describe(Tier::kKind, kCached), &with_.registry));
  // Options stay where they are when the list grows.
  with_.parts.checked.push_back({fmt::format("tables.plan.{}", table.name), Tier::kKind, std::string(kCached),
                                 tier.origin, std::move(made.options)});
  config::CheckedComponent& checked = with_.parts.checked.back();
  return &with_.parts.tiers.emplace(checked.table, train::make_tier(checked, with_.registry, with_.host))
              .first->second;
}

const Part<Tier>* TablePlanner::tier_of(std::string_view table) const {
  const auto found = tiers_.find(table);
  return found == tiers_.end() ? nullptr : found->second;
}

std::string TablePlanner::tier_name(std::size_t budget) const {
  config::CheckedComponent& checked =
      *config::find_component(with_.parts.checked, fmt::format("tables.budget[{}].tier", budget));
  return described(checked.type, checked.options.get());
}

std::string TablePlanner::unit() const {
  return per_sample_ ? "of a sample" : "of a slot there";
}

std::vector<std::string> TablePlanner::facts() const {
  std::vector<std::string> lines;
  if (tables_.empty()) return lines;
  add_places(lines);
  if (plan_) add_plan(lines);
  return lines;
}

void TablePlanner::add_places(std::vector<std::string>& lines) const {
  const int first = plan_ ? 0 : -1;  // -1: host memory of the core's own
  for (int place = first; place < static_cast<int>(settings_.places.size()); ++place) {
    std::size_t count = 0;
    std::int64_t rows = 0, weights = 0, state = 0;
    for (const Rows& table : tables_) {
      if (table.place != place) continue;
      ++count;
      rows += table.rows;
      weights += table.rows * table.weight_bytes;
      state += table.rows * table.state_bytes;
    }
    if (count == 0) continue;
    std::string tier = "host memory", own;
    std::vector<double> caches;
    if (place >= 0) {
      const auto component = [&](const char* use) -> config::CheckedComponent& {
        return *config::find_component(with_.parts.checked, fmt::format("tables.place[{}].{}", place, use));
      };
      tier = described(component("tier").type, component("tier").options.get());
      caches = load_factors(component("tier").type, component("tier").options.get());
      if (settings_.places[place].has_state)
        own = " in " + described(component("state").type, component("state").options.get());
    }
    lines.push_back(fmt::format("{}: {}, {} rows, {} of weights, {} of optimizer rows{}", tier,
                                counted(count, "table"), rows, size_text(weights), size_text(state), own));
    for (const Rows& table : tables_) {
      if (table.place != place || caches.empty()) continue;
      const double all = hottest_accesses(table.bands, table.rows);
      std::string hits;
      std::int64_t before = 0;
      for (const double factor : caches) {
        const std::int64_t held =
            std::clamp<std::int64_t>(std::llround(factor * static_cast<double>(table.rows)),
                                     std::min<std::int64_t>(1, table.rows), table.rows);
        const double here =
            hottest_accesses(table.bands, before + held) - hottest_accesses(table.bands, before);
        hits += fmt::format("{}{} rows for {} of its reads", hits.empty() ? "" : ", then ", held,
                            percent(here, all));
        before += held;
      }
      lines.push_back(fmt::format("  {}: {} rows, a cache of {}", table.name, table.rows, hits));
    }
  }
}

void TablePlanner::add_plan(std::vector<std::string>& lines) const {
  double all = 0;
  for (const double served : plan_->served) all += served;
  lines.push_back(fmt::format("plan of {}, rows read {}; {}", counted(planned_.size(), "table"),
                              counted_.empty()
                                  ? fmt::format("k^-{} times as often as the first", settings_.power_law)
                                  : "as counted in " + counted_,
                              plan_->searched_all ? "no plan serves more reads by its first tiers"
                                                  : "found by changes of single tables"));
  double reached = 0;
  for (std::size_t tier = 0; tier < settings_.budgets.size(); ++tier) {
    std::size_t homes = 0, caches = 0;
    std::int64_t weights = 0, state = 0;
    for (std::size_t i = 0; i < planned_.size(); ++i) {
      const TableHome& home = plan_->tables[i];
      const Rows& table = tables_[planned_[i]];
      const std::int64_t rows = tier == home.home ? table.rows : tier < home.home ? home.cached[tier] : 0;
      homes += tier == home.home ? 1 : 0;
      caches += tier < home.home && rows > 0 ? 1 : 0;
      weights += rows * table.weight_bytes;
      state += rows * table.state_bytes;
    }
    reached += plan_->served[tier];
    lines.push_back(
        fmt::format("  tier {} ({}): {} whole, caches of {}; {} of weights and {} of optimizer rows, of {}",
                    tier + 1, tier_name(tier), counted(homes, "table"), caches, size_text(weights),
                    size_text(state), size_text(settings_.budgets[tier].bytes)));
    std::string serves = fmt::format("    serves {:.4g} of {:.4g} reads {}, {}", plan_->served[tier], all,
                                     unit(), percent(plan_->served[tier], all));
    if (tier > 0 && tier + 1 < settings_.budgets.size())
      serves += fmt::format(", with the tiers before it {}", percent(reached, all));
    if (tier + 1 < settings_.budgets.size())
      serves += fmt::format("; in no plan more than {}", percent(plan_->bound[tier], all));
    lines.push_back(std::move(serves));
  }
  for (std::size_t i = 0; i < planned_.size(); ++i) {
    const TableHome& home = plan_->tables[i];
    const Rows& table = tables_[planned_[i]];
    const double reads = hottest_accesses(table.bands, table.rows);
    std::string text = fmt::format("  {}: {} rows in tier {}", table.name, table.rows, home.home + 1);
    for (std::size_t tier = 0; tier < home.home; ++tier) {
      if (home.cached[tier] == 0) continue;
      text += fmt::format(", {} cached in tier {} for {} of its reads", home.cached[tier], tier + 1,
                          percent(home.served[tier], reads));
    }
    lines.push_back(std::move(text));
  }
}

}  // namespace tenon::train
