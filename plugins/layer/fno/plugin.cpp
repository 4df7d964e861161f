// The plugin `tenon.layer_fno`: layers of Fourier neural operators.
#include "box.hpp"
#include "channel_linear.hpp"
#include "refine.hpp"
#include "relative_l2.hpp"
#include "spectral_conv.hpp"

TENON_PLUGIN(tenon::PluginInfo{.id = "tenon.layer_fno",
                               .version = "0.1.0",
                               .summary = "layers of Fourier neural operators"},
             tenon::fno::SpectralConv, tenon::fno::ChannelLinear, tenon::fno::Coordinates, tenon::fno::PadFar,
             tenon::fno::CropFar, tenon::fno::Refine, tenon::fno::RelativeL2)
