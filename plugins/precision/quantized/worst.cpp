// Decision and state of worst.hpp.
#include "worst.hpp"

#include <algorithm>
#include <cmath>

namespace tenon::quantized {
namespace {

bool lists(const std::string& names, const std::string& name) {
  const std::size_t at = names.find(";" + name + ";");
  return at != std::string::npos || names.rfind(name + ";", 0) == 0;
}

}  // namespace

int KeepWorst::add(std::string_view layer, int site) {
  const std::string name = std::string(layer) + ":" + std::to_string(site);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (sites_[i].name == name) return static_cast<int>(i);
  }
  sites_.push_back({name, -1, lists(names_, name)});
  return static_cast<int>(sites_.size()) - 1;
}

void KeepWorst::apply(const std::string& names) {
  names_ = names;
  for (Entry& site : sites_) site.kept = lists(names_, site.name);
}

void KeepWorst::end_slot(std::int64_t slot) {
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

void KeepWorst::state(StateVisitor& visitor) {
  if (!active()) return;
  std::int64_t decided = decided_ ? 1 : 0;
  std::string names = names_;
  visitor.integer("keep_worst_decided", decided);
  visitor.text("keep_worst_sites", names);
  decided_ = decided != 0;
  if (visitor.loading()) apply(names);
}

}  // namespace tenon::quantized
