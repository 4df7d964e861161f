// Formulas on the devices of this tree: the checks of their arguments, and the table of rules that a device
// compiles ahead (<tenon/sdk/update_rules.hpp>). A formula is one of them if its steps are: constants are
// values of a call.
#pragma once

#include "device_common/arguments.hpp"

#include <tenon/ops/formula.hpp>
#include <tenon/sdk/update_rules.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>

namespace tenon::device_arguments {

/// Refuses a formula whose tensors or sums are not as many as it has.
inline void check_formula(const Formula& formula, std::span<const TensorView> tensors,
                          std::span<const double> sums) {
  const std::size_t wanted = formula.tensors();
  if (tensors.size() == wanted && sums.size() == formula.sums() && wanted > 0) return;
  fail_run("device " + std::string(device_name()) + ": a formula of " + std::to_string(wanted) +
           " tensors and " + std::to_string(formula.sums()) + " sums was given " +
           std::to_string(tensors.size()) + " and " + std::to_string(sums.size()));
}

/// The formulas of a RuleList.
template <class List>
class RecordedRules;

template <class... Rules>
class RecordedRules<RuleList<Rules...>> {
 public:
  static constexpr std::size_t kNone = sizeof...(Rules);

  RecordedRules() {
    std::size_t at = 0;
    (Rules{}.write(formulas_[at++]), ...);
  }

  /// Number of the rule whose formula this is, or kNone.
  std::size_t find(const Formula& formula) const {
    const auto same = [](const FormulaStep& a, const FormulaStep& b) {
      return a.op == b.op && a.to == b.to && a.a == b.a && a.b == b.b && a.c == b.c;
    };
    for (std::size_t i = 0; i < formulas_.size(); ++i) {
      const auto own = formulas_[i].steps(), found = formula.steps();
      if (formula.constants().size() == formulas_[i].constants().size() &&
          std::equal(own.begin(), own.end(), found.begin(), found.end(), same))
        return i;
    }
    return kNone;
  }

 private:
  std::array<Formula, sizeof...(Rules)> formulas_;
};

}  // namespace tenon::device_arguments
