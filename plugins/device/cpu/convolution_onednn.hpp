// Convolutions of images by oneDNN's own primitives. Must not be run inside parallel_for: oneDNN would
// silently use one thread there.
#pragma once

#include "common.hpp"

#include <tenon/operators_convolution.hpp>

#include <memory>

namespace tenon::cpu {

/// Null where the library would make windows itself, or has only its plain loops. f32.
std::unique_ptr<Convolution> make_onednn_convolution(const Kernels& kernels, const ConvolutionSpec& spec);

}  // namespace tenon::cpu
