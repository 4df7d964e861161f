// For authors of precisions: selects the sites that stay in the activations' own type, by place, name or
// module. Counts and patterns that match nothing are refused at the last layer of a model.
#pragma once

#include <tenon/options.hpp>
#include <tenon/site.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

TENON_ABI_BEGIN

namespace option {

constexpr OptionSpec keep_first_blocks() {
  return integer("keep_first", "0")
      .between(0, 2147483647)
      .in_unit("blocks")
      .doc_text("number of blocks at the beginning of the network that stay in bf16");
}

constexpr OptionSpec keep_last_blocks() {
  return integer("keep_last", "0")
      .between(0, 2147483647)
      .in_unit("blocks")
      .doc_text("number of blocks at the end of the network that stay in bf16; a head is not a block");
}

constexpr OptionSpec keep_first_gemms() {
  return integer("keep_first_gemms", "0")
      .between(0, 2147483647)
      .in_unit("GEMM layers")
      .doc_text("number of linear sites at the beginning of the network that stay in bf16");
}

constexpr OptionSpec keep_last_gemms() {
  return integer("keep_last_gemms", "0")
      .between(0, 2147483647)
      .in_unit("GEMM layers")
      .doc_text("number of linear sites at the end of the network that stay in bf16; a head is none");
}

constexpr OptionSpec keep_layers() {
  return texts("keep", "[]").doc_text("patterns of layer names that stay in bf16; * matches anything");
}

}  // namespace option

class SiteSelection {
 public:
  /// Reads the options above and `head` (whether sites of the module "head" are taken) of the precision
  /// `component`.
  SiteSelection(std::string_view component, const Options& options);

  /// Returns true if the site stays as a whole. Sites come in the order of layers; a model may be traversed
  /// again.
  bool keeps(const SiteInfo& site);
  /// Adds a pattern that must match some layer; returns its number.
  std::size_t add_pattern(std::string_view text);
  bool match(std::size_t pattern, const SiteInfo& site);
  /// Reports whether a site was taken. For a model's last layer it throws Error(kConfig) if every site stayed
  /// or a pattern matched no layer.
  void bound(const SiteInfo& site, bool taken);

 private:
  struct Pattern {
    std::string text;
    bool used = false;
  };

  void begin(const SiteInfo& site);

  std::string component_;
  std::int64_t keep_first_, keep_last_, keep_first_gemms_, keep_last_gemms_;
  bool head_;
  std::vector<Pattern> patterns_;
  std::size_t keep_patterns_;  ///< patterns_[0 .. here) are those of `keep`
  bool any_ = false;
  std::string layers_;  ///< names, for messages
};

TENON_ABI_END
