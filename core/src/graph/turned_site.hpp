// A site with channels first around one that reads rows: operands are turned round on the way.
#pragma once

#include <tenon/site.hpp>

#include <memory>

namespace tenon::graph {

/// `rows`: the site of the policy, for operands [rows, k] and [rows, n].
std::unique_ptr<LinearSite> make_turned_site(const SiteInfo& info, SiteHost& host,
                                             std::unique_ptr<LinearSite> rows);

}  // namespace tenon::graph
