// keep_worst: in one slot every site measures the rounding error of its weight, and from the next slot on the
// worst sites run in bf16. The decision depends on the weights alone, so replicas with equal weights make the
// same one; it is saved with the run.
#pragma once

#include "site.hpp"

#include <tenon/state.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tenon::quantized {

class HighPrecisionFallback final : public SiteWatch {
 public:
  HighPrecisionFallback(double fraction, std::int64_t slot) : fraction_(fraction), slot_(slot) {}

  bool active() const { return fraction_ > 0; }
  /// Returns the number of a site; the same for the same layer and site in another executor.
  int add(std::string_view layer, int site);
  /// Ends a slot: decides once its sites have measured.
  void end_slot(std::int64_t slot);
  void state(StateVisitor& visitor);

  bool kept(int handle) const override { return sites_[handle].kept; }
  bool measures(std::int64_t slot) const override { return active() && !decided_ && slot >= slot_; }
  void measured(int handle, double error) override { sites_[handle].error = error; }

 private:
  struct Entry {
    std::string name;
    double error = -1;  ///< noise / signal; -1: not measured
    bool kept = false;
  };
  void apply(const std::string& names);

  double fraction_;
  std::int64_t slot_;
  bool decided_ = false;
  std::string names_;  ///< names of the unquantized sites, each followed by ';'
  std::vector<Entry> sites_;
};

inline bool lists(const std::string& names, const std::string& name) {
  const std::size_t at = names.find(";" + name + ";");
  return at != std::string::npos || names.rfind(name + ";", 0) == 0;
}

inline int HighPrecisionFallback::add(std::string_view layer, int site) {
  const std::string name = std::string(layer) + ":" + std::to_string(site);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].name == name) return static_cast<int>(i);
  }
  sites_.push_back({name, -1, lists(names_, name)});
  return static_cast<int>(sites_.size()) - 1;
}

inline void HighPrecisionFallback::apply(const std::string& names) {
  names_ = names;
  for (Entry& site : sites_) site.kept = lists(names_, site.name);
}

inline void HighPrecisionFallback::end_slot(std::int64_t slot) {
  if (!measures(slot)) return;
  std::vector<const Entry*> ranked;
  for (const Entry& site : sites_) {
    if (site.error >= 0) ranked.push_back(&site);
  }
  if (ranked.empty()) return;
  // Equal errors keep the order of the model.
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Entry* a, const Entry* b) { return a->error > b->error; });
  const auto count = static_cast<std::size_t>(std::ceil(fraction_ * static_cast<double>(ranked.size())));
  std::string names;
  for (std::size_t i = 0; i < std::min(count, ranked.size()); ++i) names += ranked[i]->name + ";";
  decided_ = true;
  apply(names);
}

inline void HighPrecisionFallback::state(StateVisitor& visitor) {
  if (!active()) return;
  std::int64_t decided = decided_ ? 1 : 0;
  std::string names = names_;
  visitor.integer("keep_worst_decided", decided);
  visitor.text("keep_worst_sites", names);
  decided_ = decided != 0;
  if (visitor.loading()) apply(names);
}

}  // namespace tenon::quantized
