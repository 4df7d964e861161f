// Selection of the sites that `mor` handles.
#include "mor.hpp"

#include "site.hpp"

namespace tenon::mor {

std::unique_ptr<LinearSite> Mor::bind(const SiteInfo& site, SiteHost& host) {
  const bool kept = selection_.keeps(site);
  selection_.bound(site, !kept);
  if (kept) return nullptr;
  return std::make_unique<MorSite>(site, host, settings_, ledger_);
}

void* Mor::query(std::string_view interface_id) {
  if (interface_id == PrecisionMetrics::kId) return static_cast<PrecisionMetrics*>(this);
  if (interface_id == Quantizer::kId) return static_cast<Quantizer*>(&quantizer_);
  return nullptr;
}

}  // namespace tenon::mor
