// Linear sites of the core: those of a policy that keeps, with products in the activations' dtype and the
// weight converted once per version, or from images where the device computes the convolution; and the
// turning round of operands, around the site of any policy.
#pragma once

#include <tenon/ops/convolution.hpp>
#include <tenon/site.hpp>

#include <memory>

namespace tenon::graph {

/// `channels_first`: operands are as SiteSpec::channels_first says.
std::unique_ptr<LinearSite> make_plain_site(const SiteInfo& info, SiteHost& host, bool channels_first);

/// A site with channels first around one that reads rows: operands are turned round on the way. `rows`: the
/// site of the policy, for operands [rows, k] and [rows, n].
std::unique_ptr<LinearSite> make_transposed_site(const SiteInfo& info, SiteHost& host,
                                                 std::unique_ptr<LinearSite> rows);

/// Null where the device computes no such convolution, or the activations are narrower than the weight.
std::unique_ptr<LinearSite> make_image_site(const SiteInfo& info, SiteHost& host,
                                            const ConvolutionSpec& images);

}  // namespace tenon::graph
