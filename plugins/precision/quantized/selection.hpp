// Which sites stay in bf16: by place, by name, by what they are. Counts and patterns that match nothing are
// refused when the last layer of a model asks.
#pragma once

#include <tenon/options.hpp>
#include <tenon/site.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace tenon::quantized {

/// `*` stands for any characters, also none.
bool matches(std::string_view pattern, std::string_view name);

struct Pattern {
  std::string text;
  bool used = false;
};

class Selection {
 public:
  Selection(std::string_view component, const Options& options);

  /// True if the site stays in bf16 as a whole.
  bool keeps(const SiteInfo& site);
  /// Adds a pattern that must match some layer; returns its number.
  std::size_t add_pattern(std::string_view text);
  bool match(std::size_t pattern, const SiteInfo& site);
  /// Tells what became of a site. For a model's last layer it throws Error(kConfig) if nothing was quantized
  /// or a pattern matched no layer.
  void bound(const SiteInfo& site, bool quantized);

 private:
  void begin(const SiteInfo& site);

  std::string component_;
  std::int64_t keep_first_, keep_last_;
  bool head_;
  std::vector<Pattern> patterns_;
  std::size_t keep_patterns_;  ///< patterns_[0 .. here) are those of `keep`
  bool any_ = false;
  std::string layers_;  ///< names, for messages
};

}  // namespace tenon::quantized
