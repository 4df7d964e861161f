#include <tenon/sdk/site_selection.hpp>

#include <tenon/error.hpp>
#include <tenon/options.hpp>

namespace tenon {

SiteSelection::SiteSelection(std::string_view component, const Options& options)
    : component_(component),
      keep_first_(options.integer("keep_first")),
      keep_last_(options.integer("keep_last")),
      keep_first_gemms_(options.integer("keep_first_gemms")),
      keep_last_gemms_(options.integer("keep_last_gemms")),
      head_(options.boolean("head")) {
  for (const std::string_view text : options.texts("keep")) add_pattern(text);
  keep_patterns_ = patterns_.size();
}

std::size_t SiteSelection::add_pattern(std::string_view text) {
  if (text.empty())
    fail_config("precision " + component_ + ": an empty pattern matches no layer; write \"*\" for all");
  patterns_.push_back({std::string(text)});
  return patterns_.size() - 1;
}

bool SiteSelection::match(std::size_t pattern, const SiteInfo& site) {
  const bool found = matches_pattern(patterns_[pattern].text, site.layer);
  patterns_[pattern].used |= found;
  return found;
}

void SiteSelection::begin(const SiteInfo& site) {
  if (site.layer_index != 0 || site.site != 0) return;
  any_ = false;
  layers_.clear();
  for (Pattern& pattern : patterns_) pattern.used = false;
}

bool SiteSelection::keeps(const SiteInfo& site) {
  begin(site);
  if (site.site == 0) layers_ += (layers_.empty() ? "" : ", ") + std::string(site.layer);
  bool kept = site.module == "head" && !head_;
  if (site.block_index >= 0)
    kept |= site.block_index < keep_first_ || site.block_index >= site.block_count - keep_last_;
  if (site.gemm_index >= 0)
    kept |= site.gemm_index < keep_first_gemms_ ||
            (keep_last_gemms_ > 0 && site.gemm_index >= site.gemm_count - keep_last_gemms_);
  for (std::size_t i = 0; i < keep_patterns_; ++i) kept |= match(i, site);
  return kept;
}

void SiteSelection::bound(const SiteInfo& site, bool taken) {
  any_ |= taken;
  if (site.layer_index + 1 != site.layer_count || site.site != 0) return;
  for (const Pattern& pattern : patterns_) {
    if (!pattern.used)
      fail_config("precision " + component_ + ": the pattern '" + pattern.text +
                  "' matches no layer with products; there are " + layers_);
  }
  if (!any_)
    fail_config(
        "precision " + component_ +
        ": every site stays in bf16 (keep_first, keep_last, keep_first_gemms, keep_last_gemms, keep, head), "
        "so "
        "nothing would run in the format that was asked for; take precision \"bf16\", or keep fewer of " +
        layers_);
}

}  // namespace tenon
