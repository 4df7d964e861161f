#include "check.hpp"

namespace tenon::conformance {

void fail(const std::string& text) {
  throw Failure{text};
}

void not_applicable(const std::string& reason) {
  throw NotApplicable{reason};
}

std::vector<Check> all_checks() {
  std::vector<Check> all;
  for (const std::span<const Check> group :
       {plugin_checks(), component_checks(), layer_checks(), layer_gradient_checks(), model_checks(),
        optimizer_checks(), optimizer_row_checks(), schedule_checks(), dataset_checks(), simulator_checks(),
        precision_checks(), sync_checks(), recovery_checks(), transport_checks(), device_checks(),
        device_quant_checks(), observer_checks(), run_checks()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

const Check* find_check(const std::vector<Check>& checks, const std::string& name) {
  for (const Check& check : checks) {
    if (check.name == name) return &check;
  }
  return nullptr;
}

}  // namespace tenon::conformance
