// The counts of the tiers of a rank's tables, for observers: those of the weights and of the optimizer's
// rows.
#pragma once

#include "loop/update.hpp"

#include <tenon/parameter.hpp>
#include <tenon/tier.hpp>

namespace tenon::train {

class RunTableCounts final : public TableCounts {
 public:
  /// Both outlive this.
  RunTableCounts(const ParameterSet& live, const Updater& updater) : live_(live), updater_(updater) {}

  void visit(const std::function<void(int parameter, std::string_view state, const TierCount& level)>& each)
      const override;

 private:
  const ParameterSet& live_;
  const Updater& updater_;
};

}  // namespace tenon::train
