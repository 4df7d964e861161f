// The products of a site with channels first, where it is kept in one dtype: no operand is turned round.
#pragma once

#include <tenon/site.hpp>

#include <memory>

namespace tenon::graph {

/// info.activation and info.parameter are equal.
std::unique_ptr<LinearSite> make_channel_site(const SiteInfo& info, SiteHost& host);

}  // namespace tenon::graph
