// The search for homes, and the caches of given homes. Bands of all tables are sorted by accesses per byte
// once; a trial of homes walks them once per tier.
#include "tables/table_plan.hpp"

#include <tenon/error.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

namespace tenon::train {
namespace {

/// Smaller differences, as shares of all accesses, are of rounding.
constexpr double kEqual = 1e-9;
/// More tables change their homes one by one alone.
constexpr std::size_t kMostSwapped = 64;
/// Rounds of changes, each of all tables.
constexpr int kMostRounds = 16;

using Homes = std::vector<std::size_t>;

struct Trial {
  std::vector<double> served;  ///< accesses by each tier and those before it
  std::int64_t bytes = 0;
};

/// Tables in the order of their names.
class HomeSearch {
 public:
  HomeSearch(std::vector<const PlannedTable*> tables, std::span<const PlannedTier> tiers)
      : tables_(std::move(tables)), tiers_(tiers) {
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      for (const RowBand& band : tables_[table]->bands) {
        if (band.rows <= 0 || band.accesses <= 0) continue;
        const double bytes = static_cast<double>(band.rows) * static_cast<double>(tables_[table]->row_bytes);
        bands_.push_back(
            {table, band.rows, band.accesses / static_cast<double>(band.rows), band.accesses / bytes});
        total_ += band.accesses;
      }
    }
    // Of equal ones by table, then from the more frequent row on: the order in which they were added.
    std::stable_sort(bands_.begin(), bands_.end(),
                     [](const Band& a, const Band& b) { return a.density > b.density; });
    accesses_.resize(tables_.size());
    for (const Band& band : bands_) accesses_[band.table] += band.per_row * static_cast<double>(band.rows);
    smallest_row_ = std::numeric_limits<std::int64_t>::max();
    for (const PlannedTable* table : tables_) smallest_row_ = std::min(smallest_row_, table->row_bytes);
    left_.resize(bands_.size());
  }

  std::int64_t bytes_of(std::size_t table) const { return tables_[table]->rows * tables_[table]->row_bytes; }

  /// Empty where the tables do not fit their homes.
  std::optional<Trial> attempt(const Homes& homes, std::vector<TableHome>* placed = nullptr) {
    std::vector<std::int64_t> room = room_beside(homes);
    if (std::any_of(room.begin(), room.end(), [](std::int64_t bytes) { return bytes < 0; })) return {};
    for (std::size_t i = 0; i < bands_.size(); ++i) left_[i] = bands_[i].rows;
    Trial trial{std::vector<double>(tiers_.size(), 0.0), 0};
    std::vector<double> cached(tables_.size(), 0.0);
    if (placed != nullptr) prepare(homes, *placed);
    for (std::size_t tier = 0; tier + 1 < tiers_.size(); ++tier) {
      fill(tier, homes, room[tier], [&](std::size_t band, std::int64_t rows) {
        const double accesses = bands_[band].per_row * static_cast<double>(rows);
        const std::size_t table = bands_[band].table;
        cached[table] += accesses;
        trial.served[tier] += accesses;
        if (placed == nullptr) return;
        (*placed)[table].cached[tier] += rows;
        (*placed)[table].served[tier] += accesses;
      });
    }
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      const double rest = std::max(0.0, accesses_[table] - cached[table]);
      trial.served[homes[table]] += rest;
      if (placed != nullptr) (*placed)[table].served[homes[table]] += rest;
    }
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) trial.bytes += tiers_[tier].bytes - room[tier];
    std::partial_sum(trial.served.begin(), trial.served.end(), trial.served.begin());
    return trial;
  }

  bool better(const Trial& a, const Trial& b) const {
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      const double more = a.served[tier] - b.served[tier];
      if (std::abs(more) > kEqual * total_) return more > 0;
    }
    return a.bytes < b.bytes;
  }

  /// Whether there are at most `most` ways to choose homes.
  bool few(std::size_t most) const {
    std::size_t ways = 1;
    for (std::size_t i = 0; i < tables_.size(); ++i) {
      if (ways > most / tiers_.size()) return false;
      ways *= tiers_.size();
    }
    return true;
  }

  /// The first of the best; empty where nothing fits.
  Homes best_of_all() {
    Homes homes(tables_.size(), 0), best;
    Trial of_best;
    for (;;) {
      if (const std::optional<Trial> trial = attempt(homes);
          trial && (best.empty() || better(*trial, of_best))) {
        best = homes;
        of_best = *trial;
      }
      std::size_t at = 0;
      while (at < homes.size() && ++homes[at] == tiers_.size()) homes[at++] = 0;
      if (at == homes.size()) return best;
    }
  }

  /// Each table, the largest first, in the slowest tier with room. Empty where one finds none.
  Homes slowest() const {
    return in_order([&](std::size_t a, std::size_t b) { return bytes_of(a) > bytes_of(b); },
                    [&](std::size_t i) { return tiers_.size() - 1 - i; });
  }

  /// Each table, that with most accesses per byte first, in the fastest tier with room. Empty where one finds
  /// none.
  Homes fastest() const {
    return in_order(
        [&](std::size_t a, std::size_t b) {
          return accesses_[a] * static_cast<double>(bytes_of(b)) >
                 accesses_[b] * static_cast<double>(bytes_of(a));
        },
        [&](std::size_t i) { return i; });
  }

  /// The better end of changes that begin with these homes. Empty where both are.
  Homes improved(const Homes& first, const Homes& second) {
    if (first.empty() && second.empty()) return {};
    if (first.empty() || second.empty()) return improved(first.empty() ? second : first);
    const Homes a = improved(first), b = improved(second);
    return better(*attempt(b), *attempt(a)) ? b : a;
  }

  Homes improved(Homes homes) {
    Trial best = *attempt(homes);
    for (int round = 0; round < kMostRounds; ++round) {
      const bool moved = move_each(homes, best);
      const bool swapped = tables_.size() <= kMostSwapped && swap_each(homes, best);
      if (!moved && !swapped) break;
    }
    return homes;
  }

  /// What tiers up to each serve if rows need no home.
  std::vector<double> bound() const {
    std::vector<double> most;
    double reach = 0;
    for (const PlannedTier& tier : tiers_) {
      reach += static_cast<double>(tier.bytes);
      double room = reach, sum = 0;
      for (const Band& band : bands_) {
        const double bytes =
            static_cast<double>(band.rows) * static_cast<double>(tables_[band.table]->row_bytes);
        sum += band.density * std::min(room, bytes);
        room -= bytes;
        if (room <= 0) break;
      }
      most.push_back(sum);
    }
    return most;
  }

 private:
  struct Band {
    std::size_t table;
    std::int64_t rows;
    double per_row, density;  ///< accesses per row and per byte
  };

  /// Tables by `before`, each in the first tier with room in the order tier_at(0), tier_at(1), ...
  template <typename Before, typename TierAt>
  Homes in_order(const Before& before, const TierAt& tier_at) const {
    std::vector<std::size_t> order(tables_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), before);
    std::vector<std::int64_t> room;
    for (const PlannedTier& tier : tiers_) room.push_back(tier.bytes);
    Homes homes(tables_.size(), 0);
    for (const std::size_t table : order) {
      std::size_t i = 0;
      while (i < tiers_.size() && room[tier_at(i)] < bytes_of(table)) ++i;
      if (i == tiers_.size()) return {};
      homes[table] = tier_at(i);
      room[tier_at(i)] -= bytes_of(table);
    }
    return homes;
  }

  std::vector<std::int64_t> room_beside(const Homes& homes) const {
    std::vector<std::int64_t> room;
    for (const PlannedTier& tier : tiers_) room.push_back(tier.bytes);
    for (std::size_t table = 0; table < tables_.size(); ++table) room[homes[table]] -= bytes_of(table);
    return room;
  }

  void prepare(const Homes& homes, std::vector<TableHome>& placed) const {
    placed.assign(tables_.size(), {});
    for (std::size_t table = 0; table < tables_.size(); ++table) {
      placed[table].home = homes[table];
      placed[table].cached.assign(homes[table], 0);
      placed[table].served.assign(tiers_.size(), 0.0);
    }
  }

  /// Caches of a tier. Of equally dense rows those with the slowest home come first: what is left of others
  /// needs less room in the tiers between.
  template <typename Take>
  void fill(std::size_t tier, const Homes& homes, std::int64_t& room, const Take& take) {
    for (std::size_t begin = 0, end = 0; begin < bands_.size() && room >= smallest_row_; begin = end) {
      while (end < bands_.size() && bands_[end].density == bands_[begin].density) ++end;
      for (std::size_t home = tiers_.size(); home-- > tier + 1;) {
        for (std::size_t i = begin; i < end; ++i) {
          const std::size_t table = bands_[i].table;
          if (homes[table] != home || left_[i] == 0) continue;
          const std::int64_t rows = std::min(left_[i], room / tables_[table]->row_bytes);
          if (rows == 0) continue;
          left_[i] -= rows;
          room -= rows * tables_[table]->row_bytes;
          take(i, rows);
        }
      }
    }
  }

  bool accept(Homes& homes, const Homes& other, Trial& best) {
    const std::optional<Trial> trial = attempt(other);
    if (!trial || !better(*trial, best)) return false;
    homes = other;
    best = *trial;
    return true;
  }

  bool move_each(Homes& homes, Trial& best) {
    bool any = false;
    for (std::size_t table = 0; table < homes.size(); ++table) {
      for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
        Homes other = homes;
        other[table] = tier;
        if (tier != homes[table] && accept(homes, other, best)) any = true;
      }
    }
    return any;
  }

  bool swap_each(Homes& homes, Trial& best) {
    bool any = false;
    for (std::size_t a = 0; a < homes.size(); ++a) {
      for (std::size_t b = a + 1; b < homes.size(); ++b) {
        if (homes[a] == homes[b]) continue;
        Homes other = homes;
        std::swap(other[a], other[b]);
        if (accept(homes, other, best)) any = true;
      }
    }
    return any;
  }

  std::vector<const PlannedTable*> tables_;
  std::span<const PlannedTier> tiers_;
  std::vector<Band> bands_;  ///< by falling accesses per byte
  std::vector<double> accesses_;
  std::vector<std::int64_t> left_;  ///< rows of each band that the trial's caches have not taken
  double total_ = 0;
  std::int64_t smallest_row_ = 0;
};

/// A cache of all rows is a home.
void at_home(TableHome& placed, std::int64_t rows) {
  const auto found = std::find(placed.cached.begin(), placed.cached.end(), rows);
  if (found == placed.cached.end()) return;
  placed.home = static_cast<std::size_t>(found - placed.cached.begin());
  placed.cached.resize(placed.home);
}

void require_a_row_of_each(std::span<const PlannedTable> tables, std::span<const PlannedTier> tiers) {
  std::int64_t row_of_each = 0;
  for (const PlannedTable& table : tables) row_of_each += table.row_bytes;
  for (const PlannedTier& tier : tiers) {
    if (tier.bytes >= row_of_each) continue;
    fail_config(fmt::format(
        "{} has {} bytes, and one row of each of the {} tables, with its optimizer rows, takes {}; raise it, "
        "or leave this tier out",
        tier.name, tier.bytes, tables.size(), row_of_each));
  }
}

[[noreturn]] void refuse(std::span<const PlannedTable> tables, std::span<const PlannedTier> tiers) {
  std::int64_t needed = 0, there = 0;
  std::vector<std::string> sizes;
  const PlannedTable* largest = tables.data();
  for (const PlannedTable& table : tables) {
    needed += table.rows * table.row_bytes;
    if (table.rows * table.row_bytes > largest->rows * largest->row_bytes) largest = &table;
  }
  for (const PlannedTier& tier : tiers) {
    there += tier.bytes;
    sizes.push_back(fmt::format("{}: {} bytes", tier.name, tier.bytes));
  }
  const std::string missing =
      needed > there
          ? fmt::format("{} bytes are missing", needed - there)
          : fmt::format("a table lies whole in one tier, and the rest of no tier holds the last one");
  fail_config(
      fmt::format("the budgets of [tables] do not hold the {} tables on this rank, which take {} bytes with "
                  "their optimizer "
                  "rows, the largest, '{}', {}: {} ({}); raise the budget of the slowest tier",
                  tables.size(), needed, largest->name, largest->rows * largest->row_bytes, missing,
                  fmt::join(sizes, "; ")));
}

}  // namespace

TablePlan plan_tables(std::span<const PlannedTable> tables, std::span<const PlannedTier> tiers,
                      const PlanSearch& limits) {
  TablePlan plan;
  plan.bytes.assign(tiers.size(), 0);
  plan.served.assign(tiers.size(), 0.0);
  plan.bound.assign(tiers.size(), 0.0);
  if (tables.empty()) return plan;
  require_a_row_of_each(tables, tiers);
  std::vector<std::size_t> order(tables.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return tables[a].name < tables[b].name; });
  std::vector<const PlannedTable*> by_name;
  for (const std::size_t table : order) by_name.push_back(&tables[table]);
  HomeSearch search(std::move(by_name), tiers);

  plan.searched_all = search.few(limits.most_homes);
  const Homes homes =
      plan.searched_all ? search.best_of_all() : search.improved(search.slowest(), search.fastest());
  if (homes.empty()) refuse(tables, tiers);
  std::vector<TableHome> placed;
  search.attempt(homes, &placed);
  for (std::size_t i = 0; i < order.size(); ++i) at_home(placed[i], tables[order[i]].rows);
  plan.bound = search.bound();
  plan.tables.resize(tables.size());
  for (std::size_t i = 0; i < order.size(); ++i) {
    const PlannedTable& table = tables[order[i]];
    for (std::size_t tier = 0; tier < tiers.size(); ++tier) {
      const std::int64_t rows = tier == placed[i].home  ? table.rows
                                : tier < placed[i].home ? placed[i].cached[tier]
                                                        : 0;
      plan.bytes[tier] += rows * table.row_bytes;
      plan.served[tier] += placed[i].served[tier];
    }
    plan.tables[order[i]] = std::move(placed[i]);
  }
  return plan;
}

}  // namespace tenon::train
