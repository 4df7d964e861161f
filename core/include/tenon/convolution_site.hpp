// For authors of convolutional layers: a linear site whose rows are windows of images. Where its products are
// computed from images, no windows are made; where a policy or the device wants rows, the layer makes them.
#pragma once

#include <tenon/layer.hpp>
#include <tenon/ops/convolution.hpp>

TENON_ABI_BEGIN

/// Declares a site as linear_site() does; `images` says of what its m rows are the windows. Bias, map and
/// dtype are the site's: those of `images` are not looked at.
SiteRef convolution_site(InferContext& context, const SiteSpec& site, const ConvolutionSpec& images);

/// Whether the products of such a site take images. Then each of fprop, dgrad and wgrad is called once, with
/// first_row 0: x and dx are [batch, channels, extent...], y and dy [batch, features, places...]. Known once
/// sites are bound, so in forward and backward, and the same in both.
bool takes_images(RunContext& context, SiteRef site);

TENON_ABI_END
