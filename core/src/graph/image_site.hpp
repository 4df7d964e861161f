// The linear site of a policy that keeps, where the device computes the convolution from images.
#pragma once

#include <tenon/ops/convolution.hpp>
#include <tenon/site.hpp>

#include <memory>

namespace tenon::graph {

/// Null where the device computes no such convolution, or the activations are narrower than the weight.
std::unique_ptr<LinearSite> make_image_site(const SiteInfo& info, SiteHost& host,
                                            const ConvolutionSpec& images);

}  // namespace tenon::graph
