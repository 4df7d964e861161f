#include "run/table_counts.hpp"

namespace tenon::train {

void RunTableCounts::visit(
    const std::function<void(int parameter, std::string_view state, const TierCount& level)>& each) const {
  const auto visit_levels = [&](int parameter, std::string_view state, RowTable& table) {
    const auto* const counted = static_cast<TierCounts*>(table.query(TierCounts::kId));
    if (counted == nullptr) return;
    counted->counts([&](const TierCount& level) { each(parameter, state, level); });
  };
  for (const ParameterInfo& info : live_.parameters()) {
    RowTable* const weights = live_.table(info.index);
    if (weights == nullptr) continue;
    visit_levels(info.index, {}, *weights);
    for (const Updater::TableState& state : updater_.table_state()) {
      if (state.parameter == info.index) visit_levels(info.index, state.name, *state.table);
    }
  }
}

}  // namespace tenon::train
