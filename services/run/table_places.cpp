#include "run/table_places.hpp"

#include "graph/memory_budget.hpp"

#include <fmt/format.h>

namespace tenon::train {

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

}  // namespace tenon::train
