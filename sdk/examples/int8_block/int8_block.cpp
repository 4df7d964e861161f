// Creates sites from options; site.cpp does the work.
#include "int8_block.hpp"

#include "site.hpp"

namespace int8_block {

Int8Block::Int8Block(const tenon::Options& options)
    : block_(options.integer("block")),
      keep_last_(options.integer("keep_last")),
      products_{false, false, false} {
  for (const std::string_view gemm : options.texts("gemms")) {
    products_.fprop |= gemm == "fprop";
    products_.dgrad |= gemm == "dgrad";
    products_.wgrad |= gemm == "wgrad";
  }
}

// [bind]
std::unique_ptr<tenon::LinearSite> Int8Block::bind(const tenon::SiteInfo& site, tenon::SiteHost& host) {
  if (site.layer_index >= site.layer_count - keep_last_) return nullptr;  // keep
  return std::make_unique<Site>(site, host, block_, products_);
}
// [/bind]

}  // namespace int8_block

TENON_PLUGIN(tenon::PluginInfo{.id = "example.int8_block",
                               .version = "0.1.0",
                               .summary = "int8 operands with a scale per block",
                               .vendor = "Tenon contributors",
                               .licence = "Apache-2.0"},
             int8_block::Int8Block)
