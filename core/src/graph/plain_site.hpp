// The linear site of a policy that keeps: products in the activations' dtype, weight converted once per
// version.
#pragma once

#include <tenon/site.hpp>

#include <memory>

namespace tenon::graph {

/// `channels_first`: operands are as SiteSpec::channels_first says.
std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first);

}  // namespace tenon::graph
