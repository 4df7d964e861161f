// Which sites are taken.
#include "mor.hpp"

#include "site.hpp"

#include <algorithm>

namespace tenon::mor {

std::unique_ptr<LinearSite> Mor::bind(const SiteInfo& site, SiteHost& host) {
  if (site.module == "head" && !settings_.head) return nullptr;
  if (site.block_index >= 0 &&
      (site.block_index < settings_.keep_first || site.block_index >= site.block_count - settings_.keep_last))
    return nullptr;
  const auto named = [&](const std::string& pattern) { return matches(pattern, site.layer); };
  if (std::any_of(settings_.keep.begin(), settings_.keep.end(), named)) return nullptr;
  return std::make_unique<MorSite>(site, host, settings_, ledger_);
}

void* Mor::query(std::string_view interface_id) {
  if (interface_id == PrecisionMetrics::kId) return static_cast<PrecisionMetrics*>(this);
  if (interface_id == Quantizer::kId) return static_cast<Quantizer*>(&quantizer_);
  return nullptr;
}

}  // namespace tenon::mor
