// Rules of selection.hpp.
#include "selection.hpp"

#include <tenon/error.hpp>

namespace tenon::quantized {

bool matches(std::string_view pattern, std::string_view name) {
  // Position behind the last star, and where the name stood when it was met: try one character more there.
  std::size_t p = 0, n = 0, star = std::string_view::npos, from = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = ++p;
      from = n;
    } else if (p < pattern.size() && pattern[p] == name[n]) {
      ++p, ++n;
    } else if (star != std::string_view::npos) {
      p = star;
      n = ++from;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

Selection::Selection(std::string_view component, const Options& options)
    : component_(component),
      keep_first_(options.integer("keep_first")),
      keep_last_(options.integer("keep_last")),
      head_(options.boolean("head")) {
  for (const std::string_view text : options.texts("keep")) add_pattern(text);
  keep_patterns_ = patterns_.size();
}

std::size_t Selection::add_pattern(std::string_view text) {
  if (text.empty())
    fail_config("precision " + component_ + ": an empty pattern matches no layer; write \"*\" for all");
  patterns_.push_back({std::string(text)});
  return patterns_.size() - 1;
}

bool Selection::match(std::size_t pattern, const SiteInfo& site) {
  const bool found = matches(patterns_[pattern].text, site.layer);
  patterns_[pattern].used |= found;
  return found;
}

void Selection::begin(const SiteInfo& site) {
  if (site.layer_index != 0 || site.site != 0) return;
  any_ = false;
  layers_.clear();
  for (Pattern& pattern : patterns_) pattern.used = false;
}

bool Selection::keeps(const SiteInfo& site) {
  begin(site);
  if (site.site == 0) layers_ += (layers_.empty() ? "" : ", ") + std::string(site.layer);
  bool kept = site.module == "head" && !head_;
  if (site.block_index >= 0)
    kept |= site.block_index < keep_first_ || site.block_index >= site.block_count - keep_last_;
  for (std::size_t i = 0; i < keep_patterns_; ++i) kept |= match(i, site);
  return kept;
}

void Selection::bound(const SiteInfo& site, bool quantized) {
  any_ |= quantized;
  if (site.layer_index + 1 != site.layer_count || site.site != 0) return;
  for (const Pattern& pattern : patterns_) {
    if (!pattern.used)
      fail_config("precision " + component_ + ": the pattern '" + pattern.text +
                  "' matches no layer with products; there are " + layers_);
  }
  if (!any_)
    fail_config(
        "precision " + component_ +
        ": every site stays in bf16 (keep_first, keep_last, keep, head), so "
        "nothing would run in the format that was asked for; take precision \"bf16\", or keep fewer of " +
        layers_);
}

}  // namespace tenon::quantized
