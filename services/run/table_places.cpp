#include "run/table_places.hpp"

#include "graph/memory_budget.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tenon::train {
namespace {

constexpr std::size_t kMostNames = 8;

/// "emb.0.weight, emb.1.weight and 24 more"
std::string names(std::span<const ParameterInfo> tables) {
  std::string text;
  for (std::size_t i = 0; i < std::min(tables.size(), kMostNames); ++i)
    text += (i == 0 ? "" : ", ") + tables[i].spec.name;
  return tables.size() <= kMostNames ? text : fmt::format("{} and {} more", text, tables.size() - kMostNames);
}

}  // namespace

RowMemorySpec TablePlaces::completed(RowMemorySpec spec) const {
  spec.device = parts_.device.get();
  spec.run = run_;
  spec.rank = rank_;
  spec.resumes = resumes_;
  spec.seed = settings_.run.seed_rounding;
  return spec;
}

const Part<Tier>* TablePlaces::tier_of(const RowMemorySpec& spec) const {
  for (std::size_t i = 0; i < settings_.tables.places.size(); ++i) {
    const config::TablePlace& place = settings_.tables.places[i];
    if (!matches_pattern(place.match, spec.table)) continue;
    const bool own = !spec.state.empty() && place.has_state;
    return &parts_.tiers.at(fmt::format("tables.place[{}].{}", i, own ? "state" : "tier"));
  }
  return planner_ == nullptr ? nullptr : planner_->tier_of(spec.table);
}

std::unique_ptr<RowMemory> TablePlaces::allocate(const RowMemorySpec& spec) {
  const Part<Tier>* const tier = tier_of(spec);
  return tier == nullptr ? nullptr : (*tier)->allocate(completed(spec));
}

std::int64_t TablePlaces::host_bytes(const RowMemorySpec& spec) const {
  const Part<Tier>* const tier = tier_of(spec);
  return tier == nullptr ? graph::saturating_product(static_cast<std::int64_t>(spec.row_bytes()), spec.rows())
                         : (*tier)->host_bytes(completed(spec));
}

std::vector<std::string> TablePlaces::warnings(std::span<const ParameterInfo> tables) const {
  const config::TableSettings& settings = settings_.tables;
  if (tables.empty()) {
    if (settings.places.empty() && settings.budgets.empty()) return {};
    const Origin& origin = settings.places.empty() ? settings.budgets[0].origin : settings.places[0].origin;
    return {fmt::format("{}: [tables] places nothing: this model has no row tables", origin.text())};
  }
  std::vector<std::string> all;
  std::vector<bool> placed(tables.size());
  for (const config::TablePlace& place : settings.places) {
    bool matches = false, holds = false;
    for (std::size_t i = 0; i < tables.size(); ++i) {
      if (!matches_pattern(place.match, tables[i].spec.name)) continue;
      matches = true;
      holds = holds || !placed[i];
      placed[i] = true;
    }
    const std::string subject =
        fmt::format("{}: [[tables.place]] match = '{}'", place.origin.text(), place.match);
    if (!matches) {
      all.push_back(fmt::format("{} matches no row table of this model; known: {}", subject, names(tables)));
    } else if (!holds) {
      all.push_back(fmt::format("{} holds no table: entries before it hold all that it matches", subject));
    }
  }
  return all;
}

}  // namespace tenon::train
